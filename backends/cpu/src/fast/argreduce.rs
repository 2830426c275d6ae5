//! `argmax`, `argmin`, `hardmax` and `cumulative`: along one axis, lines side by side where other dimensions follow.

use super::element::{Element, has, with_element};
use super::lines::Fold;
use super::lines::Lines;
use super::reduce_folds::{Product, Sum, Whole};
use super::simd::vectorized;
use super::{NodeCx, Types};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::reduce::argreduce::ARGMIN;

/// Neighbouring lines that are searched together.
const COLUMNS: usize = 256;
/// Elements up to which a line is searched without vectors along it.
const SHORT: usize = 32;
/// Elements that a task searches at least.
const TASK: usize = 8192;

/// Whether the kernels cover a node.
pub fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype))
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(shape)) = (cx.args[0].clone(), cx.out_shape(0)) else { return Ok(false) };
    let attrs = cx.node.op.attrs();
    let axis = attrs.int("axis").ok().and_then(|a| normalize_axis(a, x.shape().len(), "axis").ok());
    let (Some(axis), Ok(last)) = (axis, attrs.bool("select_last")) else { return Ok(false) };
    let l = Lines::of(x.shape(), axis, axis + 1);
    if i32::try_from(l.n).is_err() {
        return Ok(false);
    }
    let least = cx.node.op.is(ARGMIN);
    let mut out = Out::new(cx.pool, DType::I64, &shape, &cx.node.name)?;
    with_element!(x.dtype(), T => places::<T>(&x, l, (least, last), out.elems_mut()), else return Ok(false));
    cx.push(out.done());
    Ok(true)
}

pub fn places<T: Element>(x: &Val, l: Lines, (least, last): (bool, bool), y: &mut [i64]) {
    let Some(x) = x.view::<T>() else { return };
    let points = Checkpoints::here();
    let blocks = l.inner.div_ceil(COLUMNS);
    let width = l.inner.min(COLUMNS);
    if l.inner == 1 && l.n <= SHORT {
        threads::chunks(y, TASK / SHORT, 1, |c, y| {
            points.pass();
            best_of_short(&x[c * (TASK / SHORT) * l.n..], l.n, least, last, y);
        });
        return;
    }
    let parts = Parts::new(y);
    threads::ranges(l.outer * blocks, 1 + TASK / (l.n * width), |range| {
        for task in range {
            points.pass();
            let (o, first) = (task / blocks, task % blocks * COLUMNS);
            let end = l.inner.min(first + COLUMNS);
            // SAFETY: each block of columns belongs to one task.
            let y = unsafe { parts.part(o * l.inner + first, o * l.inner + end) };
            let x = &x[o * l.n * l.inner + first..];
            match l.inner {
                1 => y[0] = best_of(&x[..l.n], least, last) as i64,
                _ => best_of_columns(x, l, least, last, y),
            }
        }
    });
}

vectorized! {
    /// The places of the best elements of short lines, which follow each other.
    fn best_of_short<T: Element>(x: &[T], n: usize, least: bool, last: bool, y: &mut [i64]) {
        let key = |x: T| if least { x.reversed(true) } else { x.key() };
        for (y, x) in y.iter_mut().zip(x.chunks_exact(n)) {
            let (mut place, mut best) = (0, key(x[0]));
            for (i, &x) in x.iter().enumerate().skip(1) {
                let now = key(x);
                let better = now > best || last && now == best;
                place = if better { i } else { place };
                best = if better { now } else { best };
            }
            *y = place as i64;
        }
    }
}

vectorized! {
    /// The place of the best element of a line: its number in one pass, its place in another.
    fn best_of<T: Element>(x: &[T], least: bool, last: bool) -> usize {
        const LANES: usize = 32;
        let mut acc = [x[0].key(); LANES];
        if least {
            acc = [x[0].reversed(true); LANES];
        }
        let (whole, rest) = x.as_chunks::<LANES>();
        for c in whole {
            for i in 0..LANES {
                let key = if least { c[i].reversed(true) } else { c[i].key() };
                acc[i] = acc[i].max(key);
            }
        }
        let key = |x: T| if least { x.reversed(true) } else { x.key() };
        let best = rest.iter().map(|&x| key(x)).chain(acc).fold(acc[0], |a, b| a.max(b));
        let found = match last {
            true => x.iter().rposition(|&x| key(x) == best),
            false => x.iter().position(|&x| key(x) == best),
        };
        found.unwrap_or(0)
    }
}

vectorized! {
    /// The places of the best elements of neighbouring lines.
    fn best_of_columns<T: Element>(x: &[T], l: Lines, least: bool, last: bool, y: &mut [i64]) {
        let mut best = [T::Key::default(); COLUMNS];
        let mut place = [0i32; COLUMNS];
        let best = &mut best[..y.len()];
        let key = |x: T| if least { x.reversed(true) } else { x.key() };
        best.iter_mut().zip(x).for_each(|(b, &x)| *b = key(x));
        for r in 1..l.n {
            let row = &x[r * l.inner..r * l.inner + y.len()];
            for (p, (b, &x)) in place.iter_mut().zip(best.iter_mut().zip(row)) {
                let now = key(x);
                let better = now > *b || last && now == *b;
                *p = if better { r as i32 } else { *p };
                *b = if better { now } else { *b };
            }
        }
        y.iter_mut().zip(place).for_each(|(y, p)| *y = p.into());
    }
}

pub fn cumulative(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(axis)) = (cx.args[0].clone(), cx.ints(1)) else { return Ok(false) };
    let attrs = cx.node.op.attrs();
    let axis = axis.first().and_then(|&a| normalize_axis(a, x.shape().len(), "axis").ok());
    let flags = (attrs.str("op"), attrs.bool("exclusive"), attrs.bool("reverse"));
    let (Some(axis), (Ok(op), Ok(exclusive), Ok(reverse))) = (axis, flags) else { return Ok(false) };
    let scan = Scan { l: Lines::of(x.shape(), axis, axis + 1), exclusive, reverse };
    let (shape, product) = (x.shape().to_vec(), op == "prod");
    if let Some(x) = cx.floats(0) {
        return cx.write_floats(0, &shape, |y| {
            let narrow = |a: f64| a as f32;
            if product {
                scan.run::<f32, Product>(&x, y, narrow)
            } else {
                scan.run::<f32, Sum>(&x, y, narrow)
            }
            Ok(())
        });
    }
    let mut out = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    fn integers<T: Whole>(scan: &Scan, product: bool, x: &Val, y: &mut [T]) {
        let Some(x) = x.view::<T>() else { return };
        if product { scan.run::<T, Product>(x, y, |a| a) } else { scan.run::<T, Sum>(x, y, |a| a) }
    }
    match x.dtype() {
        DType::I8 => integers::<i8>(&scan, product, &x, out.elems_mut()),
        DType::U8 => integers::<u8>(&scan, product, &x, out.elems_mut()),
        DType::I32 => integers::<i32>(&scan, product, &x, out.elems_mut()),
        DType::I64 => integers::<i64>(&scan, product, &x, out.elems_mut()),
        _ => return Ok(false),
    }
    cx.push(out.done());
    Ok(true)
}

/// Lines with all of their partial sums or products.
struct Scan {
    l: Lines,
    exclusive: bool,
    reverse: bool,
}

impl Scan {
    fn run<T: Copy + Sync + Send, F: Fold<T>>(
        &self,
        x: &[T],
        y: &mut [T],
        narrow: impl Fn(F::Acc) -> T + Sync,
    ) {
        let Lines { outer, n, inner } = self.l;
        let points = Checkpoints::here();
        if inner == 1 && n > 0 {
            let many = (4096 / n).max(1);
            return threads::chunks(y, many * n, 1, |i, y| {
                points.pass();
                let lines = y.chunks_exact_mut(n).zip(x[i * many * n..].chunks_exact(n));
                lines.for_each(|(y, x)| self.line::<T, F>(x, y, &narrow));
            });
        }
        let blocks = inner.div_ceil(COLUMNS);
        let parts = Parts::new(y);
        threads::ranges(outer * blocks, 1 + 4096 / (n * inner.min(COLUMNS)).max(1), |range| {
            let mut acc = [F::START; COLUMNS];
            for task in range {
                points.pass();
                let (o, first) = (task / blocks, task % blocks * COLUMNS);
                let acc = &mut acc[..inner.min(first + COLUMNS) - first];
                acc.fill(F::START);
                for i in 0..n {
                    let row = if self.reverse { n - 1 - i } else { i };
                    let start = (o * n + row) * inner + first;
                    // SAFETY: each block of columns belongs to one task.
                    let y = unsafe { parts.part(start, start + acc.len()) };
                    self.row::<T, F>(acc, &x[start..], y, &narrow);
                }
            }
        });
    }

    /// A line whose elements follow each other.
    #[inline(always)]
    fn line<T: Copy, F: Fold<T>>(&self, x: &[T], y: &mut [T], narrow: &impl Fn(F::Acc) -> T) {
        let mut acc = F::START;
        let mut next = |(y, &x): (&mut T, &T)| {
            let before = acc;
            acc = F::step(acc, x);
            *y = narrow(if self.exclusive { before } else { acc });
        };
        match self.reverse {
            true => y.iter_mut().zip(x).rev().for_each(&mut next),
            false => y.iter_mut().zip(x).for_each(&mut next),
        }
    }

    /// A row of neighbouring lines.
    #[inline(always)]
    fn row<T: Copy, F: Fold<T>>(
        &self,
        acc: &mut [F::Acc],
        x: &[T],
        y: &mut [T],
        narrow: &impl Fn(F::Acc) -> T,
    ) {
        for (a, (&x, y)) in acc.iter_mut().zip(x.iter().zip(y)) {
            let next = F::step(*a, x);
            *y = narrow(if self.exclusive { *a } else { next });
            *a = next;
        }
    }
}
