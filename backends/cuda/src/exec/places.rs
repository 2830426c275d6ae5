//! Places in the parameters of launches that have addresses of bound memory, and what puts other addresses there: a run in other memory
//! changes a few nodes of its graph, not all of it.

use super::memory::Range;
use crate::driver::{Gpu, Launch, encode};
use kiln_backend::BackendError;
use kiln_backend::launch::Map;
use kiln_gpu::{Bound, Key};
use std::collections::HashMap;

/// A place in a launch's parameter.
#[derive(Clone, Debug)]
pub struct Place {
    /// Offset in the parameter.
    at: usize,
    /// First byte of the bound memory.
    base: u64,
    /// Bytes of it from its start that the launch touches at most.
    bytes: u64,
    /// Offset of the address in it.
    offset: u64,
    /// The tensor map that has the address, where it is not there as it is.
    map: Option<Map>,
}

impl Place {
    /// The place of an address, if it is one of bound memory.
    pub fn of(bound: &Bound<Range>, range: &Range, at: usize, map: Option<&Map>) -> Option<Place> {
        let base = base(bound, range)?;
        let offset = range.address - base;
        Some(Place { at, base, bytes: offset + range.size, offset, map: map.cloned() })
    }
}

/// First byte of the bound memory that a range is part of.
pub fn base(bound: &Bound<Range>, range: &Range) -> Option<u64> {
    let all = bound.inputs.values().chain(bound.outputs.values());
    all.filter(|b| holds(b, range.address)).map(|b| b.address).max()
}

fn holds(range: &Range, address: u64) -> bool {
    (range.address..range.address.saturating_add(range.size.max(1))).contains(&address)
}

/// Bound memory by its first byte, and the memory that takes its place.
pub struct Moved(HashMap<u64, Range>);

impl Moved {
    /// The changes from one key to another of equal shapes. None where memory is bound in one of them only, or is `own` memory of the
    /// run. None as well where ranges overlap, as launches may depend on that.
    pub fn of(from: &[Key<Range>], to: &[Key<Range>], own: impl Fn(&Range) -> bool) -> Option<Moved> {
        let mut moved = HashMap::new();
        for (a, b) in from.iter().zip(to) {
            match (a.2, b.2) {
                (None, None) => {}
                (Some(a), Some(b)) if a == b || !own(&a) && !own(&b) => drop(moved.insert(a.address, b)),
                _ => return None,
            }
        }
        (apart(from) && apart(to)).then_some(Moved(moved))
    }

    /// Whether every place has memory that is large enough.
    pub fn fits<'a>(&self, mut places: impl Iterator<Item = &'a Place>) -> bool {
        places.all(|p| self.0.get(&p.base).is_some_and(|to| to.size >= p.bytes))
    }

    /// Puts the new address into a parameter; whether it is another one.
    pub fn put(&self, place: &mut Place, launch: &mut Launch, gpu: &Gpu) -> Result<bool, BackendError> {
        let Some(to) = self.0.get(&place.base).filter(|to| to.address != place.base) else {
            return Ok(false);
        };
        let address = to.address + place.offset;
        match &place.map {
            Some(map) => launch.set(place.at, &encode(gpu, address, map)?),
            None => launch.set(place.at, &address.to_le_bytes()),
        }
        place.base = to.address;
        Ok(true)
    }
}

/// Whether the bound ranges of a key have no byte in common.
fn apart(key: &[Key<Range>]) -> bool {
    let mut all: Vec<&Range> = key.iter().filter_map(|k| k.2.as_ref()).collect();
    all.sort_by_key(|r| r.address);
    all.windows(2).all(|w| w[0].address.saturating_add(w[0].size.max(1)) <= w[1].address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(all: &[(u64, u64)]) -> Vec<Key<Range>> {
        all.iter().map(|&(address, size)| Key(vec![2], None, Some(Range { address, size }))).collect()
    }

    #[test]
    fn memory_moves_where_no_ranges_overlap() {
        let from = key(&[(100, 16), (200, 32)]);
        let moved = |to: &[(u64, u64)]| Moved::of(&from, &key(to), |r| r.address == 500);
        let place = |base: u64, offset: u64| Place { at: 0, base, bytes: offset + 8, offset, map: None };
        let all = [place(100, 8), place(200, 0)];
        assert!(moved(&[(300, 16), (400, 32)]).is_some_and(|m| m.fits(all.iter())));
        assert!(moved(&[(200, 16), (100, 32)]).is_some_and(|m| m.fits(all.iter())), "exchanged");
        assert!(moved(&[(300, 15), (400, 32)]).is_some_and(|m| !m.fits(all.iter())), "too small");
        assert!(moved(&[(300, 16), (315, 32)]).is_none(), "they overlap");
        assert!(moved(&[(500, 16), (600, 32)]).is_none(), "memory of the run");
        let unbound = [from[0].clone(), Key(vec![2], None, None)];
        assert!(Moved::of(&from, &unbound, |_| false).is_none());
    }

    #[test]
    fn addresses_inside_of_bound_memory_are_found() {
        let mut bound = Bound::default();
        bound.inputs.insert(0, Range { address: 256, size: 64 });
        let found =
            Place::of(&bound, &Range { address: 272, size: 16 }, 160, None).map(|p| (p.base, p.bytes));
        assert_eq!(found, Some((256, 32)));
        assert!(Place::of(&bound, &Range { address: 320, size: 16 }, 160, None).is_none());
    }
}
