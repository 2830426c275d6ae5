//! The places that a copy reads, dimension by dimension.

use std::ops::Range;

/// A place outside of the tensor, where the fill value is taken.
pub const OUTSIDE: isize = isize::MIN;
/// Neighbours from which on they are copied by themselves.
pub const SHORT: usize = 64;
/// Places from which on a dimension with edges has no table.
const LONG: usize = 256;
/// Elements that one task copies at least.
pub const TASK: usize = 16 << 10;

/// The places along one dimension of the result, relative to the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Map {
    /// `len` places that are `step` apart.
    Step { len: usize, step: isize },
    /// One place each, or [`OUTSIDE`].
    Table(Vec<isize>),
    /// Places of equal steps from a first one on, and a table at both ends.
    Edged { before: Vec<isize>, first: isize, len: usize, step: isize, after: Vec<isize> },
}

impl Map {
    /// All elements along a dimension of this stride.
    pub fn all(len: usize, stride: usize) -> Map {
        Map::Step { len, step: stride as isize }
    }

    /// The elements at these indices of a dimension of this stride; `None` is outside.
    pub fn indices(stride: usize, all: impl Iterator<Item = Option<usize>>) -> Map {
        Map::Table(all.map(|i| i.map_or(OUTSIDE, |i| (i * stride) as isize)).collect())
    }

    pub fn len(&self) -> usize {
        match self {
            Map::Step { len, .. } => *len,
            Map::Table(t) => t.len(),
            Map::Edged { before, len, after, .. } => before.len() + len + after.len(),
        }
    }

    pub fn at(&self, i: usize) -> isize {
        match self {
            Map::Step { step, .. } => i as isize * step,
            Map::Table(t) => t[i],
            Map::Edged { before, first, len, step, after } => {
                let middle = || i.checked_sub(before.len());
                match (before.get(i), middle()) {
                    (Some(&p), _) => p,
                    (_, Some(m)) if m < *len => first + m as isize * step,
                    _ => after.get(i - before.len() - len).copied().unwrap_or(OUTSIDE),
                }
            }
        }
    }

    /// The elements at the indices that `source` says, of a dimension of this stride; those of a range follow each other.
    pub fn edged(
        stride: usize,
        all: usize,
        middle: Range<usize>,
        source: impl Fn(usize) -> Option<usize>,
    ) -> Map {
        let of = |range: Range<usize>| -> Vec<isize> {
            range.map(|i| source(i).map_or(OUTSIDE, |i| (i * stride) as isize)).collect()
        };
        let first = source(middle.start).filter(|_| !middle.is_empty() && all > LONG);
        match first {
            Some(first) => Map::Edged {
                before: of(0..middle.start),
                first: (first * stride) as isize,
                len: middle.len(),
                step: stride as isize,
                after: of(middle.end..all),
            },
            None => Map::Table(of(0..all)),
        }
    }
}

/// Maps without dimensions of one element, neighbours that are walked as one merged; `None` if all is outside.
pub fn merged(mut base: isize, maps: Vec<Map>) -> Option<(isize, Vec<Map>)> {
    let mut out: Vec<Map> = Vec::new();
    for map in maps {
        let map = stepped(map, &mut base);
        match (out.last_mut(), map) {
            (_, Map::Step { len: 1, .. }) => {}
            (_, Map::Table(t)) if t.iter().all(|&t| t == OUTSIDE) => return None,
            (Some(Map::Edged { before, len, step, after, .. }), Map::Step { len: n, step: 1 })
                if n < SHORT && *step == n as isize =>
            {
                (*before, *after) = (neighbours(before, n), neighbours(after, n));
                (*len, *step) = (*len * n, 1);
            }
            (Some(Map::Step { len, step }), Map::Step { len: n, step: s }) if *step == s * n as isize => {
                (*len, *step) = (*len * n, s);
            }
            (Some(Map::Table(t)), Map::Step { len: n, step: 1 }) if continues(t, n) => {
                *t = neighbours(t, n);
            }
            (_, map) => out.push(map),
        }
    }
    if out.is_empty() {
        out.push(Map::Step { len: 1, step: 1 });
    }
    Some((base, out))
}

/// The places of a table, each with the `n` neighbours that begin there.
fn neighbours(t: &[isize], n: usize) -> Vec<isize> {
    let each = |&p: &isize| (0..n as isize).map(move |i| if p == OUTSIDE { p } else { p + i });
    t.iter().flat_map(each).collect()
}

/// Whether a table, with `n` neighbours at each of its places, is mostly one stretch, and not long.
fn continues(t: &[isize], n: usize) -> bool {
    let joined = t.windows(2).filter(|w| w[0] != OUTSIDE && w[1] == w[0] + n as isize).count();
    n < SHORT && t.len() <= TASK && 2 * joined > t.len()
}

/// A table of equal steps as such; its first place moves to the base.
fn stepped(map: Map, base: &mut isize) -> Map {
    let t = match &map {
        Map::Table(t) => t,
        Map::Edged { before, first, len, step, after } if before.is_empty() && after.is_empty() => {
            *base += first;
            return Map::Step { len: *len, step: *step };
        }
        _ => return map,
    };
    let (Some(&first), false) = (t.first(), t.contains(&OUTSIDE)) else { return map };
    let step = t.get(1).map_or(1, |s| s - first);
    if t.windows(2).any(|w| w[1] - w[0] != step) {
        return map;
    }
    *base += first;
    Map::Step { len: t.len(), step }
}

/// The maps of a copy whose elements are pairs of neighbours, if rows are short and all places even.
pub fn widened(base: isize, maps: &[Map]) -> Option<(isize, Vec<Map>)> {
    let (Map::Step { len, step: 1 }, outer) = maps.split_last()? else { return None };
    if len % 2 != 0 || *len >= SHORT || outer.is_empty() || base % 2 != 0 {
        return None;
    }
    let half = |map: &Map| match map {
        Map::Step { len, step } if step % 2 == 0 => Some(Map::Step { len: *len, step: step / 2 }),
        Map::Table(t) if t.iter().all(|p| p % 2 == 0) => {
            Some(Map::Table(t.iter().map(|&p| if p == OUTSIDE { p } else { p / 2 }).collect()))
        }
        _ => None,
    };
    let mut all: Vec<Map> = outer.iter().map(half).collect::<Option<_>>()?;
    all.push(Map::Step { len: len / 2, step: 1 });
    Some((base / 2, all))
}
