//! `argmax`, `argmin`, `hardmax` and `cumulative`: along one axis, lines side by side where other dimensions follow.

use super::element::{Element, has, with_element};
use super::reduce::Lines;
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
    let parts = Parts::new(y);
    threads::ranges(l.outer * blocks, 1 + 8192 / (l.n * width), |range| {
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
    let scan = Scan { l: Lines::of(x.shape(), axis, axis + 1), product: op == "prod", exclusive, reverse };
    let shape = x.shape().to_vec();
    if let Some(x) = cx.floats(0) {
        return cx.write_floats(0, &shape, |y| {
            scan.run(&x, y, f64::from, |x| x as f32, |a, b| a + b, |a, b| a * b);
            Ok(())
        });
    }
    let mut out = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    fn integers<T: Element>(scan: &Scan, x: &Val, y: &mut [T]) {
        let Some(x) = x.view::<T>() else { return };
        scan.run(x, y, T::to_i64, T::from_i64, i64::wrapping_add, i64::wrapping_mul);
    }
    with_element!(x.dtype(), T => integers::<T>(&scan, &x, out.elems_mut()), else return Ok(false));
    cx.push(out.done());
    Ok(true)
}

struct Scan {
    l: Lines,
    product: bool,
    exclusive: bool,
    reverse: bool,
}

impl Scan {
    fn run<T: Copy + Sync + Send, W: Copy + From<u8>>(
        &self,
        x: &[T],
        y: &mut [T],
        widen: impl Fn(T) -> W + Sync,
        narrow: impl Fn(W) -> T + Sync,
        add: impl Fn(W, W) -> W + Sync,
        multiply: impl Fn(W, W) -> W + Sync,
    ) {
        let l = self.l;
        let points = Checkpoints::here();
        let blocks = l.inner.div_ceil(COLUMNS);
        let parts = Parts::new(y);
        threads::ranges(l.outer * blocks, 1 + 4096 / (l.n * l.inner.min(COLUMNS)).max(1), |range| {
            for task in range {
                points.pass();
                let (o, first) = (task / blocks, task % blocks * COLUMNS);
                let width = l.inner.min(first + COLUMNS) - first;
                let mut acc = [W::from(u8::from(self.product)); COLUMNS];
                for i in 0..l.n {
                    let row = if self.reverse { l.n - 1 - i } else { i };
                    let start = (o * l.n + row) * l.inner + first;
                    // SAFETY: each block of columns belongs to one task.
                    let y = unsafe { parts.part(start, start + width) };
                    for ((a, &x), y) in acc.iter_mut().zip(&x[start..start + width]).zip(y) {
                        let next = if self.product { multiply(*a, widen(x)) } else { add(*a, widen(x)) };
                        *y = narrow(if self.exclusive { *a } else { next });
                        *a = next;
                    }
                }
            }
        });
    }
}
