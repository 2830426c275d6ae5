//! Reductions of lines by folds: the lines of a tensor along a run of its axes, whatever their length and however many lie side by side.

use super::short::{self, FEW};
use super::simd::vectorized;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;

/// Results that a task makes at once at most.
const BLOCK: usize = 256;
/// Lines side by side from which on rows of them are vectors.
const WIDE: usize = 64;
/// Elements up to which a line is folded without vectors along it.
const SHORT: usize = 32;
/// Elements that one task folds at least.
const TASK: usize = 16 << 10;
/// Elements of a piece of lines that are too few to share. Pieces do not depend on the number of threads, as results then would.
const PIECE: usize = 64 << 10;

/// Dimensions of a tensor in front of a run of axes, along it, and behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lines {
    pub outer: usize,
    pub n: usize,
    pub inner: usize,
}

impl Lines {
    /// The lines along axes from `from` to before `to`.
    pub fn of(shape: &[usize], from: usize, to: usize) -> Lines {
        let n = |s: &[usize]| s.iter().product::<usize>();
        Lines { outer: n(&shape[..from]), n: n(&shape[from..to]), inner: n(&shape[to..]) }
    }
}

/// A reduction that meets elements in any order.
pub trait Fold<T> {
    /// State of a line.
    type Acc: Copy + Send + Sync;
    /// State of no elements.
    const START: Self::Acc;
    /// Adds an element.
    fn step(acc: Self::Acc, x: T) -> Self::Acc;
    /// The state of the elements of both.
    fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

/// Dimensions of a tensor, neighbours of which either all or none are folded merged to one.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs(Vec<(usize, bool)>);

impl Runs {
    /// The dimensions of a shape; those of the mask are folded.
    pub fn of(shape: &[usize], mask: &[bool]) -> Runs {
        let mut all: Vec<(usize, bool)> = Vec::new();
        for (&n, &folded) in shape.iter().zip(mask) {
            match all.last_mut() {
                _ if n == 1 => {}
                Some((len, before)) if *before == folded => *len *= n,
                _ => all.push((n, folded)),
            }
        }
        Runs(all)
    }

    /// Elements that are folded to one.
    pub fn folded(&self) -> usize {
        self.0.iter().filter(|r| r.1).map(|r| r.0).product()
    }

    /// The lines along the last dimension that is folded, and the number of that dimension.
    fn last(&self) -> (Lines, Option<usize>) {
        let n = |runs: &[(usize, bool)]| runs.iter().map(|r| r.0).product::<usize>();
        match self.0.iter().rposition(|r| r.1) {
            Some(i) => {
                (Lines { outer: n(&self.0[..i]), n: self.0[i].0, inner: n(&self.0[i + 1..]) }, Some(i))
            }
            None => (Lines { outer: n(&self.0), n: 1, inner: 1 }, None),
        }
    }

    /// The lines, if one dimension at most is folded.
    pub fn lines(&self) -> Option<Lines> {
        (self.0.iter().filter(|r| r.1).count() < 2).then(|| self.last().0)
    }

    /// The rest once the last dimension that is folded is gone.
    fn without(&self, last: usize) -> Runs {
        let rest = self.0.iter().enumerate().filter(|(i, _)| *i != last).map(|(_, r)| *r);
        let (shape, mask): (Vec<usize>, Vec<bool>) = rest.unzip();
        Runs::of(&shape, &mask)
    }
}

/// The fold of states that another fold made.
struct Joined<T, F>(std::marker::PhantomData<(T, F)>);

impl<T, F: Fold<T>> Fold<F::Acc> for Joined<T, F> {
    type Acc = F::Acc;
    const START: F::Acc = F::START;
    #[inline(always)]
    fn step(a: F::Acc, b: F::Acc) -> F::Acc {
        F::join(a, b)
    }
    #[inline(always)]
    fn join(a: F::Acc, b: F::Acc) -> F::Acc {
        F::join(a, b)
    }
}

/// Folds dimensions of x, one after the other from the last on, and finishes each state.
pub fn fold_all<T: Copy + Send + Sync, F: Fold<T>, R: Send>(
    x: &[T],
    runs: &Runs,
    y: &mut [R],
    finish: impl Fn(F::Acc) -> R + Sync,
) {
    if let Some(lines) = runs.lines() {
        return fold::<T, F, R>(x, lines, y, finish);
    }
    let (mut runs, mut states) = (runs.clone(), Vec::new());
    loop {
        let (lines, last) = runs.last();
        if let (true, Some(lines)) = (!states.is_empty(), runs.lines()) {
            return fold::<F::Acc, Joined<T, F>, R>(&states, lines, y, finish);
        }
        let mut next = vec![F::START; lines.outer * lines.inner];
        match states.is_empty() {
            true => fold::<T, F, F::Acc>(x, lines, &mut next, |a| a),
            false => fold::<F::Acc, Joined<T, F>, F::Acc>(&states, lines, &mut next, |a| a),
        }
        let Some(last) = last else { return };
        (runs, states) = (runs.without(last), next);
    }
}

/// Folds the lines of x, and finishes each.
fn fold<T: Copy + Send + Sync, F: Fold<T>, R: Send>(
    x: &[T],
    l: Lines,
    y: &mut [R],
    finish: impl Fn(F::Acc) -> R + Sync,
) {
    let Lines { outer, n, inner } = l;
    if n == 0 || y.is_empty() {
        return y.iter_mut().for_each(|y| *y = finish(F::START));
    }
    let width = inner.min(BLOCK);
    let blocks = inner.div_ceil(width);
    // Lines that are short and apart are taken many at a time.
    let many = if inner == 1 && n <= SHORT { BLOCK } else { 1 };
    let tasks = outer.div_ceil(many) * blocks;
    let pieces = if tasks < 8 { (n * width / PIECE).clamp(1, 64) } else { 1 };
    if pieces > 1 {
        return in_pieces::<T, F, R>(x, l, pieces, y, finish);
    }
    let (points, parts) = (Checkpoints::here(), Parts::new(y));
    threads::ranges(tasks, 1 + TASK / (n * width * many).max(1), |range| {
        let mut acc = [F::START; BLOCK];
        for task in range {
            points.pass();
            let (o, first) = (task / blocks * many, task % blocks * BLOCK);
            let count = if many > 1 { many.min(outer - o) } else { width.min(inner - first) };
            let acc = &mut acc[..count];
            acc.fill(F::START);
            let x = &x[o * n * inner + first..];
            if many > 1 {
                lines::<T, F>(x, n, acc)
            } else {
                slab::<T, F>(x, 0..n, inner, acc)
            }
            // SAFETY: each block of lines belongs to one task.
            let y = unsafe { parts.part(o * inner + first, o * inner + first + count) };
            y.iter_mut().zip(acc).for_each(|(y, a)| *y = finish(*a));
        }
    });
}

/// Folds few long lines: pieces of all of them by themselves, and then the pieces.
fn in_pieces<T: Copy + Send + Sync, F: Fold<T>, R: Send>(
    x: &[T],
    l: Lines,
    pieces: usize,
    y: &mut [R],
    finish: impl Fn(F::Acc) -> R + Sync,
) {
    let Lines { outer, n, inner } = l;
    let blocks = inner.div_ceil(BLOCK);
    let each = n.div_ceil(pieces);
    let points = Checkpoints::here();
    let mut states = vec![F::START; outer * pieces * inner];
    let parts = Parts::new(&mut states);
    threads::each(outer * pieces * blocks, |task| {
        points.pass();
        let (slab_of, first) = (task / blocks, task % blocks * BLOCK);
        let (o, piece) = (slab_of / pieces, slab_of % pieces);
        let end = inner.min(first + BLOCK);
        // SAFETY: each block of columns of each piece belongs to one task.
        let acc = unsafe { parts.part(slab_of * inner + first, slab_of * inner + end) };
        let rows = (piece * each).min(n)..((piece + 1) * each).min(n);
        slab::<T, F>(&x[o * n * inner + first..], rows, inner, acc);
    });
    for (y, states) in y.chunks_exact_mut(inner).zip(states.chunks_exact(pieces * inner)) {
        for (i, y) in y.iter_mut().enumerate() {
            let of_line = states.iter().skip(i).step_by(inner);
            *y = finish(of_line.fold(F::START, |a, &b| F::join(a, b)));
        }
    }
}

/// Folds some rows of lines side by side. x begins with the first line; as many lines as there are states are wanted.
fn slab<T: Copy, F: Fold<T>>(x: &[T], rows: std::ops::Range<usize>, inner: usize, acc: &mut [F::Acc]) {
    if rows.is_empty() {
        return;
    }
    let x = &x[rows.start * inner..];
    match (inner, rows.len()) {
        (1, n) => acc[0] = F::join(acc[0], line::<T, F>(&x[..n])),
        (2..WIDE, n) if n * inner >= 2 * BLOCK => {
            // As many rows as fit are one row of as many more lines.
            let wide = BLOCK / inner * inner;
            let (whole, rest) = x[..n * inner].split_at(n * inner / wide * wide);
            let mut states = [F::START; BLOCK];
            add_rows::<T, F>(whole, wide, whole.len() / wide, &mut states[..wide]);
            for states in states[..wide].chunks_exact(inner) {
                acc.iter_mut().zip(states).for_each(|(a, &b)| *a = F::join(*a, b));
            }
            add_rows::<T, F>(rest, inner, rest.len() / inner, acc);
        }
        (_, n) => add_rows::<T, F>(x, inner, n, acc),
    }
}

vectorized! {
    /// Adds rows, each `step` elements after the one before, to the states of their columns.
    fn add_rows<T: Copy, F: Fold<T>>(x: &[T], step: usize, rows: usize, acc: &mut [F::Acc]) {
        for r in 0..rows {
            let row = &x[r * step..][..acc.len()];
            let (blocks, rest) = acc.as_chunks_mut::<{ short::BLOCK }>();
            let (elements, last) = row.as_chunks::<{ short::BLOCK }>();
            for (acc, x) in blocks.iter_mut().zip(elements) {
                let old = short::old(acc);
                for i in 0..short::BLOCK {
                    acc[i] = F::step(old[i], x[i]);
                }
            }
            for (a, &x) in rest.iter_mut().zip(last) {
                *a = F::step(*a, x);
            }
        }
    }
}

vectorized! {
    /// Folds a line.
    fn line<T: Copy, F: Fold<T>>(x: &[T]) -> F::Acc {
        // As many states as hide the time of a step, of which all fit registers.
        match size_of::<F::Acc>() {
            0..=4 => by_lanes::<T, F, 128>(x),
            _ => by_lanes::<T, F, 32>(x),
        }
    }
}

/// Folds a line, in states that the compiler keeps in vectors.
#[inline(always)]
fn by_lanes<T: Copy, F: Fold<T>, const LANES: usize>(x: &[T]) -> F::Acc {
    let mut acc = [F::START; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            acc[i] = F::step(acc[i], x[i]);
        }
    }
    let (some, rest) = rest.as_chunks::<FEW>();
    for x in some {
        for i in 0..FEW {
            acc[i] = F::step(acc[i], x[i]);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            acc[i] = F::join(acc[i], acc[i + width]);
        }
        width /= 2;
    }
    rest.iter().fold(acc[0], |all, &x| F::step(all, x))
}

vectorized! {
    /// Folds short lines, which follow each other.
    fn lines<T: Copy, F: Fold<T>>(x: &[T], n: usize, acc: &mut [F::Acc]) {
        match n {
            0 => {}
            2 => equal::<T, F, 2>(x, acc),
            3 => equal::<T, F, 3>(x, acc),
            4 => equal::<T, F, 4>(x, acc),
            8 => equal::<T, F, 8>(x, acc),
            16 => equal::<T, F, 16>(x, acc),
            _ => {
                for (a, x) in acc.iter_mut().zip(x.chunks_exact(n)) {
                    *a = x.iter().fold(*a, |a, &x| F::step(a, x));
                }
            }
        }
    }
}

/// Folds lines of `N` elements.
#[inline(always)]
fn equal<T: Copy, F: Fold<T>, const N: usize>(x: &[T], acc: &mut [F::Acc]) {
    for (a, x) in acc.iter_mut().zip(x.as_chunks::<N>().0) {
        for &x in x {
            *a = F::step(*a, x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum;
    impl Fold<i32> for Sum {
        type Acc = i64;
        const START: i64 = 0;
        fn step(a: i64, x: i32) -> i64 {
            a + i64::from(x)
        }
        fn join(a: i64, b: i64) -> i64 {
            a + b
        }
    }

    #[test]
    fn dimensions_apart_are_folded() {
        let shape = [3, 4, 1, 5, 6, 2];
        let x: Vec<i32> = (0..shape.iter().product::<usize>()).map(|i| (i * 7919 % 1000) as i32).collect();
        for bits in 0..64usize {
            let mask: Vec<bool> = (0..6).map(|d| bits >> d & 1 == 1).collect();
            let kept: Vec<usize> = shape.iter().zip(&mask).map(|(&n, &m)| if m { 1 } else { n }).collect();
            let steps = kiln_ops::util::broadcast_strides(&kept, &shape);
            let mut wanted = vec![0i64; kept.iter().product()];
            let mut all = x.iter();
            kiln_ops::util::for_each_index(&shape, |at| {
                wanted[kiln_ops::util::offset(at, &steps)] += i64::from(*all.next().unwrap());
            });
            let mut found = vec![7; wanted.len()];
            let runs = Runs::of(&shape, &mask);
            assert_eq!(runs.folded() * wanted.len(), x.len());
            fold_all::<i32, Sum, i64>(&x, &runs, &mut found, |a| a);
            assert_eq!(found, wanted, "{mask:?}");
        }
    }

    #[test]
    fn lines_of_all_lengths_and_neighbours_are_folded() {
        let sizes = [
            (3, 0, 5),
            (1, 1, 1),
            (700, 2, 1),
            (300, 3, 1),
            (5, 16, 1),
            (5, 17, 1),
            (5, 33, 1),
            (2, 100, 1),
            (1, 200_000, 1),
            (2, 40, 3),
            (2, 700, 3),
            (3, 5, 7),
            (2, 9, 63),
            (2, 30, 64),
            (2, 7, 300),
            (1, 100_000, 3),
            (2, 1000, 300),
            (0, 4, 3),
        ];
        for (outer, n, inner) in sizes {
            let x: Vec<i32> = (0..outer * n * inner).map(|i| (i * 7919 % 1000) as i32 - 300).collect();
            let wanted: Vec<i64> = (0..outer * inner)
                .map(|i| (0..n).map(|k| i64::from(x[(i / inner * n + k) * inner + i % inner])).sum())
                .collect();
            for count in [1, 3] {
                let mut found = vec![7; outer * inner];
                let l = Lines { outer, n, inner };
                threads::Threads::new(count).enter(|| fold::<i32, Sum, i64>(&x, l, &mut found, |a| a));
                assert_eq!(found, wanted, "{l:?}");
            }
        }
    }
}
