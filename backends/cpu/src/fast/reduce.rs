//! `reduce` over any axes: lines of reduced elements, side by side where other dimensions follow.

use super::copy::{self, Map};
use super::element::{Element, has, with_element};
use super::pointwise::math::exp;
use super::short;
use super::simd::vectorized;
use super::{NodeCx, Types};
use crate::buffer::Pool;
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::reduce::{ReduceOp, mask};
use kiln_ops::util::{is_real, strides};
use std::sync::Arc;

/// Accumulators of a sum.
const LANES: usize = 16;
/// Neighbouring lines that are reduced together.
const COLUMNS: usize = 256;

/// Whether the kernel covers a node.
pub fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype))
}

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

/// The tensor with the masked axes as one run, copied where they are several, and its lines.
fn gathered(x: Val, mask: &[bool], pool: &Arc<Pool>, what: &str) -> Result<(Val, Lines), BackendError> {
    let shape = x.shape().to_vec();
    let reduced = |i: &usize| mask[*i] && shape[*i] != 1;
    let Some(first) = (0..shape.len()).find(reduced) else {
        return Ok((x, Lines { outer: shape.iter().product(), n: 1, inner: 1 }));
    };
    let last = (0..shape.len()).rev().find(reduced).unwrap_or(first);
    if (first..=last).all(|i| mask[i] || shape[i] == 1) {
        return Ok((x, Lines::of(&shape, first, last + 1)));
    }
    let own = strides(&shape);
    let order = |m: bool| (0..shape.len()).filter(move |&i| mask[i] == m);
    let maps: Vec<Map> = order(false).chain(order(true)).map(|i| Map::all(shape[i], own[i])).collect();
    let kept: Vec<usize> = order(false).chain(order(true)).map(|i| shape[i]).collect();
    let split = order(false).count();
    let mut out = Out::new(pool, x.dtype(), &kept, what)?;
    copy::bytes(x.dtype().bits() as usize / 8, x.bytes(), out.bytes_mut(), 0, maps, &[]);
    Ok((out.done(), Lines::of(&kept, split, kept.len())))
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let axes = if cx.has(1) { cx.ints(1) } else { None };
    let (Some(x), Some(shape), Ok(op)) = (cx.args[0].take(), cx.out_shape(0), ReduceOp::of(attrs)) else {
        return Ok(false);
    };
    let Ok(mask) = mask(attrs, axes.as_deref(), x.shape().len()) else { return Ok(false) };
    let dtype = x.dtype();
    let (x, lines) = gathered(x, &mask, cx.pool, &cx.node.name)?;
    if is_real(dtype) {
        cx.args[0] = Some(x);
        let Some(x) = cx.floats(0) else { return Ok(false) };
        return cx.write_floats(0, &shape, |y| {
            floats(op, &x, lines, y);
            Ok(())
        });
    }
    let mut out = Out::new(cx.pool, dtype, &shape, &cx.node.name)?;
    with_element!(dtype, T => integers::<T>(op, &x, lines, dtype, out.elems_mut()), else return Ok(false));
    cx.push(out.done());
    Ok(true)
}

fn integers<T: Element>(op: ReduceOp, x: &Val, l: Lines, dtype: DType, y: &mut [T]) {
    let Some(x) = x.view::<T>() else { return };
    let points = Checkpoints::here();
    threads::chunks(y, 1, 1 + 4096 / l.n.max(1), |i, y| {
        points.pass();
        let start = i / l.inner * l.n * l.inner + i % l.inner;
        let line: Vec<i64> =
            x[start.min(x.len())..].iter().step_by(l.inner).take(l.n).map(|x| x.to_i64()).collect();
        let sum = op.of_ints(&line, dtype);
        y[0] = T::from_i64(if dtype == DType::Bool { i64::from(sum != 0) } else { sum });
    });
}

fn floats(op: ReduceOp, x: &[f32], l: Lines, y: &mut [f32]) {
    let points = Checkpoints::here();
    if l.inner == 1 {
        threads::chunks(y, 1, 1 + 8192 / l.n.max(1), |i, y| {
            points.pass();
            y[0] = line(op, &x[i * l.n..(i + 1) * l.n]) as f32;
        });
        return;
    }
    let blocks = l.inner.div_ceil(COLUMNS);
    let parts = Parts::new(y);
    threads::ranges(l.outer * blocks, 1 + 8192 / (l.n * COLUMNS).max(1), |range| {
        for task in range {
            points.pass();
            let (o, first) = (task / blocks, task % blocks * COLUMNS);
            let end = l.inner.min(first + COLUMNS);
            // SAFETY: each block of columns belongs to one task.
            let y = unsafe { parts.part(o * l.inner + first, o * l.inner + end) };
            columns(op, &x[o * l.n * l.inner + first..], l, y);
        }
    });
}

/// The reduction of elements side by side.
fn line(op: ReduceOp, x: &[f32]) -> f64 {
    match op {
        ReduceOp::Sum => sum(x),
        ReduceOp::Mean => sum(x) / x.len() as f64,
        ReduceOp::L1 => sum_magnitudes(x),
        ReduceOp::L2 => sum_squares(x).sqrt(),
        ReduceOp::SumSquare => sum_squares(x),
        ReduceOp::LogSum => libm::log(sum(x)),
        ReduceOp::Prod => product(x),
        ReduceOp::Max => greatest(x).into(),
        ReduceOp::Min => least(x).into(),
        ReduceOp::LogSumExp => {
            let top = greatest(x);
            if top.is_finite() { f64::from(top) + libm::log(sum_exp(x, top)) } else { top.into() }
        }
    }
}

#[inline(always)]
fn fold(x: &[f32], start: f64, f: impl Fn(f64, f32) -> f64, join: impl Fn(f64, f64) -> f64) -> f64 {
    let mut acc = [start; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for c in whole {
        for i in 0..LANES {
            acc[i] = f(acc[i], c[i]);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            acc[i] = join(acc[i], acc[i + width]);
        }
        width /= 2;
    }
    let all = join(start, acc[0]);
    rest.iter().fold(all, |a, &x| join(a, f(start, x)))
}

vectorized! {
    /// Σx in f64.
    pub fn sum(x: &[f32]) -> f64 {
        fold(x, 0.0, |a, x| a + f64::from(x), |a, b| a + b)
    }
}
vectorized! {
    /// Σ|x| in f64.
    fn sum_magnitudes(x: &[f32]) -> f64 {
        fold(x, 0.0, |a, x| a + f64::from(x.abs()), |a, b| a + b)
    }
}
vectorized! {
    /// Σx² in f64.
    fn sum_squares(x: &[f32]) -> f64 {
        fold(x, 0.0, |a, x| a + f64::from(x) * f64::from(x), |a, b| a + b)
    }
}
vectorized! {
    /// Σ(x − mean)² in f64.
    pub fn sum_deviations(x: &[f32], mean: f64) -> f64 {
        fold(x, 0.0, |a, x| a + (f64::from(x) - mean) * (f64::from(x) - mean), |a, b| a + b)
    }
}
vectorized! {
    /// Σe^(x − top).
    pub fn sum_exp(x: &[f32], top: f32) -> f64 {
        let mut acc = [0f64; LANES];
        let (whole, rest) = x.as_chunks::<LANES>();
        for c in whole {
            for i in 0..LANES {
                acc[i] += f64::from(exp::<FMA>(c[i] - top));
            }
        }
        let rest: f64 = rest.iter().map(|&x| f64::from(exp::<FMA>(x - top))).sum();
        acc.iter().sum::<f64>() + rest
    }
}
vectorized! {
    fn product(x: &[f32]) -> f64 {
        fold(x, 1.0, |a, x| a * f64::from(x), |a, b| a * b)
    }
}

/// The greater of two; NaN if either is.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// The lesser of two; NaN if either is.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

vectorized! {
    /// The greatest element; NaN if there is one, −∞ of none.
    pub fn greatest(x: &[f32]) -> f32 {
        let mut acc = [f32::NEG_INFINITY; 4 * LANES];
        let (whole, rest) = x.as_chunks::<{ 4 * LANES }>();
        for c in whole {
            for i in 0..4 * LANES {
                acc[i] = max(acc[i], c[i]);
            }
        }
        let mut width = 2 * LANES;
        while width > 0 {
            for i in 0..width {
                acc[i] = max(acc[i], acc[i + width]);
            }
            width /= 2;
        }
        let mut all = acc[0];
        for &x in rest {
            all = max(all, x);
        }
        all
    }
}
vectorized! {
    /// The least element; NaN if there is one, ∞ of none.
    fn least(x: &[f32]) -> f32 {
        let mut acc = [f32::INFINITY; 4 * LANES];
        let (whole, rest) = x.as_chunks::<{ 4 * LANES }>();
        for c in whole {
            for i in 0..4 * LANES {
                acc[i] = min(acc[i], c[i]);
            }
        }
        let mut width = 2 * LANES;
        while width > 0 {
            for i in 0..width {
                acc[i] = min(acc[i], acc[i + width]);
            }
            width /= 2;
        }
        let mut all = acc[0];
        for &x in rest {
            all = min(all, x);
        }
        all
    }
}

/// The reductions of some neighbouring lines; x begins at the first element of the first.
fn columns(op: ReduceOp, x: &[f32], l: Lines, y: &mut [f32]) {
    let mut acc = [0f64; COLUMNS];
    let acc = &mut acc[..y.len()];
    let n = l.n as f64;
    match op {
        ReduceOp::Max => extreme_rows(x, l, y, true),
        ReduceOp::Min => extreme_rows(x, l, y, false),
        ReduceOp::Prod => {
            acc.fill(1.0);
            multiply_rows(x, l, acc);
        }
        ReduceOp::L1 => add_magnitudes(x, l, acc),
        ReduceOp::L2 | ReduceOp::SumSquare => add_squares(x, l, acc),
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::LogSum => add(x, l, acc),
        ReduceOp::LogSumExp => {
            extreme_rows(x, l, y, true);
            add_exps(x, l, y, acc);
        }
    }
    let done = y.iter_mut().zip(&*acc);
    match op {
        ReduceOp::Max | ReduceOp::Min => {}
        ReduceOp::Mean => done.for_each(|(y, a)| *y = (a / n) as f32),
        ReduceOp::L2 => done.for_each(|(y, a)| *y = a.sqrt() as f32),
        ReduceOp::LogSum => done.for_each(|(y, a)| *y = libm::log(*a) as f32),
        ReduceOp::LogSumExp => done.for_each(|(y, a)| {
            if y.is_finite() {
                *y = (f64::from(*y) + libm::log(*a)) as f32;
            }
        }),
        _ => done.for_each(|(y, a)| *y = *a as f32),
    }
}

/// The rows of a block of columns.
#[inline(always)]
fn rows(x: &[f32], l: Lines, width: usize) -> impl Iterator<Item = &[f32]> {
    (0..l.n).map(move |r| &x[r * l.inner..r * l.inner + width])
}

vectorized! {
    /// Adds rows to sums of columns.
    pub fn add(x: &[f32], l: Lines, acc: &mut [f64]) {
        for row in rows(x, l, acc.len()) {
            for (a, &x) in acc.iter_mut().zip(row) {
                *a += f64::from(x);
            }
        }
    }
}
vectorized! {
    fn add_magnitudes(x: &[f32], l: Lines, acc: &mut [f64]) {
        for row in rows(x, l, acc.len()) {
            for (a, &x) in acc.iter_mut().zip(row) {
                *a += f64::from(x.abs());
            }
        }
    }
}
vectorized! {
    fn add_squares(x: &[f32], l: Lines, acc: &mut [f64]) {
        for row in rows(x, l, acc.len()) {
            for (a, &x) in acc.iter_mut().zip(row) {
                *a += f64::from(x) * f64::from(x);
            }
        }
    }
}
vectorized! {
    fn multiply_rows(x: &[f32], l: Lines, acc: &mut [f64]) {
        for row in rows(x, l, acc.len()) {
            for (a, &x) in acc.iter_mut().zip(row) {
                *a *= f64::from(x);
            }
        }
    }
}
vectorized! {
    /// Adds e^(x − top) of rows to sums of columns.
    pub fn add_exps(x: &[f32], l: Lines, top: &[f32], acc: &mut [f64]) {
        for row in rows(x, l, acc.len()) {
            for (a, (&x, &t)) in acc.iter_mut().zip(row.iter().zip(top)) {
                *a += f64::from(exp::<FMA>(x - t));
            }
        }
    }
}
vectorized! {
    /// The greatest or least of each column.
    pub fn extreme_rows(x: &[f32], l: Lines, y: &mut [f32], greatest: bool) {
        y.fill(if greatest { f32::NEG_INFINITY } else { f32::INFINITY });
        for row in rows(x, l, y.len()) {
            match greatest {
                true => short::replace(y, row, max),
                false => short::replace(y, row, min),
            }
        }
    }
}
