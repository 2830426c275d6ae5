//! Panels of right matrices that are weights: packed in the first run and kept for all later ones, of all contexts.

use super::pointwise::tail::At;
use crate::buffer::{Line, Pool, afford};
use bytemuck::{Pod, Zeroable};
use kiln_backend::BackendError;
use kiln_ir::budget::Reservation;
use std::sync::{Arc, Mutex, PoisonError};

/// Packed panels of one matrix: elements of four bytes.
pub struct Panels {
    /// Whole lines of the cache: a vector of elements is inside of one.
    lines: Vec<Line>,
    len: usize,
    _held: Reservation,
}

impl Panels {
    /// Panels of `len` elements of four bytes.
    pub fn new<T: Pod>(len: usize, pack: impl FnOnce(&mut [T])) -> Result<Panels, BackendError> {
        let held = afford((len as u64).saturating_mul(4), "packed columns of a product")?;
        let mut lines = vec![Line::zeroed(); len.div_ceil(Line::WORDS)];
        let all: &mut [T] = bytemuck::try_cast_slice_mut(&mut lines).unwrap_or_default();
        pack(all.get_mut(..len).unwrap_or_default());
        Ok(Panels { lines, len, _held: held })
    }

    /// The elements.
    pub fn data<T: Pod>(&self) -> &[T] {
        let all: &[T] = bytemuck::try_cast_slice(&self.lines).unwrap_or_default();
        all.get(..self.len).unwrap_or_default()
    }
}

/// The panels of an operation's weights, by number of the product.
#[derive(Default)]
pub struct Kept {
    panels: Mutex<Vec<Option<Arc<Panels>>>>,
    /// Whether all products had their panels when the program was loaded. The weights are not read then.
    whole: bool,
}

impl Kept {
    /// Panels of `len` elements of four bytes: those of the `i`-th product of an operation where they are kept and packed already, or
    /// new ones.
    pub fn of<T: Pod>(
        kept: Option<(&Kept, usize)>,
        len: usize,
        pack: impl FnOnce(&mut [T]),
    ) -> Result<Arc<Panels>, BackendError> {
        if let Some(found) = kept.and_then(|(kept, i)| kept.get(i)) {
            return Ok(found);
        }
        let made = Arc::new(Panels::new(len, pack)?);
        // Contexts that run for the first time at once may all pack; the last one's panels are kept.
        if let Some((kept, i)) = kept {
            let mut all = kept.panels.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() <= i {
                all.resize(i + 1, None);
            }
            all[i] = Some(made.clone());
        }
        Ok(made)
    }

    /// The panels of a product, if they are packed.
    pub fn get(&self, i: usize) -> Option<Arc<Panels>> {
        self.panels.lock().unwrap_or_else(PoisonError::into_inner).get(i).cloned().flatten()
    }

    /// All panels of an operation.
    pub fn whole(panels: &[Arc<Panels>]) -> Kept {
        Kept { panels: Mutex::new(panels.iter().cloned().map(Some).collect()), whole: true }
    }

    /// Whether all panels were made when the program was loaded.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

/// Depth of the blocks, memory, panels that are kept, with the number of the product among those of the operation, and layers after
/// the product.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub depth: usize,
    pub pool: &'a Arc<Pool>,
    pub kept: Option<(&'a Kept, usize)>,
    pub tail: Option<At<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_packed_once_for_each_product() {
        let kept = Kept::default();
        let make = |i: usize, x: f32| {
            let all = Kept::of(Some((&kept, i)), 3, |to: &mut [f32]| to.fill(x)).unwrap();
            all.data::<f32>().to_vec()
        };
        assert_eq!(
            [make(1, 2.0), make(1, 3.0), make(0, 4.0), make(1, 5.0)].map(|v| v[0]),
            [2.0, 2.0, 4.0, 2.0]
        );
        let alone = Kept::of(None, 2, |to: &mut [[i16; 2]]| to.fill([7, -1])).unwrap();
        assert_eq!(alone.data::<[i16; 2]>(), [[7, -1]; 2]);
        assert!(Kept::of(None, usize::MAX, |_: &mut [f32]| {}).is_err());
    }
}
