//! `topk`: selection by numbers that hold order and position, so that no comparison looks at two places.

use super::element::{Element, has, with_element};
use super::simd::vectorized;
use super::{NodeCx, Types};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;

/// Whether the kernel covers a node.
pub fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype))
}

pub fn topk(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(shape)) = (cx.args[0].clone(), cx.out_shape(0)) else { return Ok(false) };
    let attrs = cx.node.op.attrs();
    let axis = attrs.int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(axis), Ok(largest)) = (axis, attrs.bool("largest")) else { return Ok(false) };
    let (n, k) = (x.shape()[axis], shape[axis]);
    if u32::try_from(n).is_err() || k > n || shape.contains(&0) {
        return Ok(false);
    }
    let inner = shape[axis + 1..].iter().product();
    let job = Job { x: &x, n, k, inner, largest };
    let mut values = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    let mut indices = Out::new(cx.pool, DType::I64, &shape, &cx.node.name)?;
    with_element!(x.dtype(), T => job.run::<T>(values.elems_mut(), indices.elems_mut()), else return Ok(false));
    cx.push(values.done());
    cx.push(indices.done());
    Ok(true)
}

/// Elements that are skipped together.
const SKIPPED: usize = 64;
/// Elements of such a block that are skipped together where others of it are not.
const GROUP: usize = 16;
/// Elements of lines that are looked at one by one for the only one that is kept, and lines of a task.
const TINY: usize = 8;
const LINES: usize = 4 << 10;
/// Elements that are kept in order while a line is read, at most.
const ORDERED: usize = 16;

vectorized! {
    /// The k least numbers of a line with their positions, in order, or the greatest. There are k elements at least.
    fn in_order<T: Element>(x: &[T], k: usize, largest: bool, best: &mut Vec<(T::Key, u32)>) {
        match largest {
            true => keep_least(x, k, |x: T| x.reversed(false), best),
            false => keep_least(x, k, |x: T| x.key(), best),
        }
    }
}

/// Keeps the k least numbers in order. Elements are skipped together where none is below the greatest of those.
#[inline(always)]
fn keep_least<T: Copy, K: Copy + Ord>(
    x: &[T],
    k: usize,
    key: impl Fn(T) -> K + Copy,
    best: &mut Vec<(K, u32)>,
) {
    let any = |x: &[T], limit: K| x.iter().fold(false, |any, &x| any | (key(x) < limit));
    best.clear();
    best.extend(x[..k].iter().zip(0..).map(|(&x, p)| (key(x), p)));
    best.sort_unstable();
    let Some(mut limit) = best.last().map(|b| b.0) else { return };
    for (b, block) in x[k..].chunks(SKIPPED).enumerate() {
        if !any(block, limit) {
            continue;
        }
        for (g, group) in block.chunks(GROUP).enumerate() {
            if !any(group, limit) {
                continue;
            }
            for (i, key) in group.iter().map(|&x| key(x)).enumerate() {
                // A later element of an equal number never displaces one that is there.
                if key < limit {
                    best.pop();
                    let at = best.iter().rposition(|b| b.0 <= key).map_or(0, |p| p + 1);
                    best.insert(at, (key, (k + b * SKIPPED + g * GROUP + i) as u32));
                    limit = best.last().map_or(limit, |b| b.0);
                }
            }
        }
    }
}

vectorized! {
    /// Whether any number is below a limit.
    fn any_below<T: Element>(x: &[T], largest: bool, limit: T::Key) -> bool {
        let mut any = false;
        match largest {
            true => {
                for x in x {
                    any |= x.reversed(false) < limit;
                }
            }
            false => {
                for x in x {
                    any |= x.key() < limit;
                }
            }
        }
        any
    }
}

struct Job<'a> {
    x: &'a Val,
    /// Elements of a line, and how many of them are kept.
    n: usize,
    k: usize,
    /// Elements from one of a line to the next.
    inner: usize,
    largest: bool,
}

impl Job<'_> {
    /// The first of each line's greatest or least elements, for lines from one on.
    fn tops<T: Element>(&self, x: &[T], first: usize, values: &mut [T], indices: &mut [i64]) {
        for (line, (y, place)) in (first..).zip(values.iter_mut().zip(indices)) {
            let start = match self.inner {
                1 => line * self.n,
                inner => line / inner * self.n * inner + line % inner,
            };
            (*y, *place) = (x[start], 0);
            for p in 1..self.n {
                let other = x[start + p * self.inner];
                let better = match self.largest {
                    true => other.reversed(false) < y.reversed(false),
                    false => other.key() < y.key(),
                };
                if better {
                    (*y, *place) = (other, p as i64);
                }
            }
        }
    }

    fn run<T: Element>(&self, values: &mut [T], indices: &mut [i64]) {
        let Some(x) = self.x.view::<T>() else { return };
        let lines = values.len() / self.k;
        let places = Parts::new(indices);
        let points = Checkpoints::here();
        if self.k == 1 && self.n <= TINY {
            return threads::chunks(values, LINES, 1, |block, values| {
                points.pass();
                let first = block * LINES;
                // SAFETY: each block of lines belongs to one task.
                let indices = unsafe { places.part(first, first + values.len()) };
                self.tops(x, first, values, indices);
            });
        }
        let (values, indices) = (Parts::new(values), places);
        threads::ranges(lines, 1 + 4096 / self.n, |range| {
            let mut best: Vec<(T::Key, u32)> = Vec::new();
            for line in range {
                points.pass();
                let (o, i) = (line / self.inner, line % self.inner);
                let start = o * self.n * self.inner + i;
                let line = x[start..].iter().step_by(self.inner).take(self.n);
                if self.inner == 1 && self.k <= ORDERED {
                    in_order(&x[start..start + self.n], self.k, self.largest, &mut best);
                } else if self.inner == 1 && self.n >= 8 * self.k {
                    self.select_few(&x[start..start + self.n], &mut best);
                } else {
                    match self.largest {
                        true => self.select(line.map(|x| x.reversed(false)), &mut best),
                        false => self.select(line.map(|x| x.key()), &mut best),
                    }
                }
                for (j, &(_, p)) in best.iter().enumerate() {
                    let to = (o * self.k + j) * self.inner + i;
                    // SAFETY: each line has elements of its own.
                    unsafe {
                        values.part(to, to + 1)[0] = x[start + p as usize * self.inner];
                        indices.part(to, to + 1)[0] = p.into();
                    }
                }
            }
        });
    }

    /// As [`Job::select`], of few from a dense line: blocks without a number below the greatest of those so far are skipped.
    fn select_few<T: Element>(&self, x: &[T], best: &mut Vec<(T::Key, u32)>) {
        best.clear();
        let room = (2 * self.k).max(SKIPPED);
        let key = |x: T| if self.largest { x.reversed(false) } else { x.key() };
        let mut limit: Option<T::Key> = None;
        for (block, x) in x.chunks(SKIPPED).enumerate() {
            if limit.is_some_and(|l| !any_below(x, self.largest, l)) {
                continue;
            }
            for (i, &x) in x.iter().enumerate() {
                let key = key(x);
                if limit.is_none_or(|l| key < l) {
                    best.push((key, (block * SKIPPED + i) as u32));
                }
                if best.len() == room {
                    best.select_nth_unstable(self.k - 1);
                    best.truncate(self.k);
                    limit = best.last().map(|b| b.0);
                }
            }
        }
        if best.len() > self.k {
            best.select_nth_unstable(self.k - 1);
            best.truncate(self.k);
        }
        best.sort_unstable();
    }

    /// The k least numbers of a line with their positions, in order.
    fn select<K: Copy + Ord>(&self, line: impl Iterator<Item = K>, best: &mut Vec<(K, u32)>) {
        best.clear();
        let room = (2 * self.k).max(64);
        let mut limit: Option<K> = None;
        for (p, key) in line.enumerate() {
            // A later element of an equal number never displaces one that is there.
            if limit.is_some_and(|l| key >= l) {
                continue;
            }
            best.push((key, p as u32));
            if best.len() == room && room < self.n {
                best.select_nth_unstable(self.k - 1);
                best.truncate(self.k);
                limit = best.last().map(|b| b.0);
            }
        }
        if best.len() > self.k {
            best.select_nth_unstable(self.k - 1);
            best.truncate(self.k);
        }
        best.sort_unstable();
    }
}
