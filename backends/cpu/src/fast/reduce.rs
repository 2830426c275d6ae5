//! `reduce` over any axes: lines of reduced elements, side by side where other dimensions follow.

use super::copy::{self, Map};
use super::element::{Element, has, with_element};
use super::lines::{Lines, Runs, fold_all};
use super::pointwise::math::exp_below;
use super::reduce_folds::{Exact, Greatest, Least, Magnitudes, Norm, Product, Squares, Sum, Whole, max};
use super::short;
use super::simd::vectorized;
use super::{Floats, NodeCx, Types};
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

/// The tensor with the masked axes as one run, copied where they are several, and its lines.
fn gathered(x: Val, mask: &[bool], pool: &Arc<Pool>, what: &str) -> Result<(Val, Lines), BackendError> {
    let shape = x.shape().to_vec();
    if let Some(lines) = Runs::of(&shape, mask).lines() {
        return Ok((x, lines));
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
    let runs = Runs::of(x.shape(), &mask);
    if matches!(op, ReduceOp::LogSum | ReduceOp::LogSumExp) && (op == ReduceOp::LogSumExp || !is_real(dtype))
    {
        return logarithms(cx, op, gathered(x, &mask, cx.pool, &cx.node.name)?, &shape);
    }
    if is_real(dtype) {
        cx.args[0] = Some(x);
        let Some(x) = cx.floats(0) else { return Ok(false) };
        return cx.write_floats(0, &shape, |y| {
            floats(op, &x, &runs, y);
            Ok(())
        });
    }
    let mut out = Out::new(cx.pool, dtype, &shape, &cx.node.name)?;
    match dtype {
        DType::I8 => integers::<i8>(op, &x, &runs, dtype, out.elems_mut()),
        DType::U8 => integers::<u8>(op, &x, &runs, dtype, out.elems_mut()),
        DType::I32 => integers::<i32>(op, &x, &runs, dtype, out.elems_mut()),
        DType::I64 => integers::<i64>(op, &x, &runs, dtype, out.elems_mut()),
        DType::Bool => truths(op, &x, &runs, out.elems_mut()),
        _ => return Ok(false),
    }
    cx.push(out.done());
    Ok(true)
}

/// Logarithms of sums, of all types; of integers those of sums of exponentials too.
fn logarithms(
    cx: &mut NodeCx<'_>,
    op: ReduceOp,
    (x, l): (Val, Lines),
    shape: &[usize],
) -> Result<bool, BackendError> {
    let dtype = x.dtype();
    if is_real(dtype) {
        let x = Floats::of(x);
        return cx.write_floats(0, shape, |y| {
            log_sums(&x, l, y);
            Ok(())
        });
    }
    let mut out = Out::new(cx.pool, dtype, shape, &cx.node.name)?;
    with_element!(dtype, T => each_line::<T>(op, &x, l, dtype, out.elems_mut()), else return Ok(false));
    cx.push(out.done());
    Ok(true)
}

/// Integers of a type that wraps.
fn integers<T: Whole>(op: ReduceOp, x: &Val, runs: &Runs, dtype: DType, y: &mut [T]) {
    let Some(x) = x.view::<T>() else { return };
    let (least, greatest) = dtype.int_range().unwrap_or((0, 1));
    let n = runs.folded() as i64;
    match op {
        ReduceOp::Sum => fold_all::<T, Sum, T>(x, runs, y, |a| a),
        ReduceOp::Prod => fold_all::<T, Product, T>(x, runs, y, |a| a),
        ReduceOp::Max => fold_all::<T, Greatest, T>(x, runs, y, |a| a),
        ReduceOp::Min => fold_all::<T, Least, T>(x, runs, y, |a| a),
        ReduceOp::L1 => fold_all::<T, Magnitudes, T>(x, runs, y, |a| a),
        ReduceOp::SumSquare => fold_all::<T, Squares, T>(x, runs, y, |a| a),
        ReduceOp::Mean => {
            fold_all::<T, Exact, T>(x, runs, y, |a: i64| T::from_i64(a.checked_div(n).unwrap_or(0)));
        }
        // `logarithms` has the last two.
        ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp => {
            fold_all::<T, Norm, T>(x, runs, y, |a: f64| {
                T::from_i64((a.sqrt() as i64).clamp(least, greatest))
            });
        }
    }
}

/// Truth values, of which any or all are true.
fn truths(op: ReduceOp, x: &Val, runs: &Runs, y: &mut [u8]) {
    let Some(x) = x.view::<u8>() else { return };
    let some = runs.folded() > 0;
    match op {
        ReduceOp::Prod | ReduceOp::Min => fold_all::<u8, Least, u8>(x, runs, y, |a| u8::from(a != 0)),
        ReduceOp::Mean => fold_all::<u8, Least, u8>(x, runs, y, |a| u8::from(a != 0 && some)),
        _ => fold_all::<u8, Greatest, u8>(x, runs, y, |a| u8::from(a != 0)),
    }
}

/// Lines of integers by the meaning of the reduction, for those that few networks have.
fn each_line<T: Element>(op: ReduceOp, x: &Val, l: Lines, dtype: DType, y: &mut [T]) {
    let Some(x) = x.view::<T>() else { return };
    let points = Checkpoints::here();
    threads::chunks(y, 1, 1 + 4096 / l.n.max(1), |i, y| {
        points.pass();
        let start = i / l.inner * l.n * l.inner + i % l.inner;
        let line: Vec<i64> =
            x[start.min(x.len())..].iter().step_by(l.inner).take(l.n).map(|x| x.to_i64()).collect();
        let all = op.of_ints(&line, dtype);
        y[0] = T::from_i64(if dtype == DType::Bool { i64::from(all != 0) } else { all });
    });
}

fn floats(op: ReduceOp, x: &[f32], runs: &Runs, y: &mut [f32]) {
    let n = runs.folded() as f64;
    match op {
        ReduceOp::Sum => fold_all::<f32, Sum, f32>(x, runs, y, |a| a as f32),
        ReduceOp::Mean => fold_all::<f32, Sum, f32>(x, runs, y, |a| (a / n) as f32),
        ReduceOp::L1 => fold_all::<f32, Magnitudes, f32>(x, runs, y, |a| a as f32),
        ReduceOp::L2 => fold_all::<f32, Squares, f32>(x, runs, y, |a: f64| a.sqrt() as f32),
        ReduceOp::SumSquare => fold_all::<f32, Squares, f32>(x, runs, y, |a| a as f32),
        ReduceOp::Prod => fold_all::<f32, Product, f32>(x, runs, y, |a| a as f32),
        ReduceOp::Max => fold_all::<f32, Greatest, f32>(x, runs, y, |a| a),
        ReduceOp::Min => fold_all::<f32, Least, f32>(x, runs, y, |a| a),
        // `logarithms` has the last.
        ReduceOp::LogSum | ReduceOp::LogSumExp => {
            fold_all::<f32, Sum, f32>(x, runs, y, |a| libm::log(a) as f32);
        }
    }
}

/// ln Σeˣ of each line, shifted by its greatest element.
fn log_sums(x: &[f32], l: Lines, y: &mut [f32]) {
    let runs = Runs::of(&[l.outer, l.n, l.inner], &[false, true, false]);
    fold_all::<f32, Greatest, f32>(x, &runs, y, |a| a);
    let log = |top: f32, sum: f64| (f64::from(top) + libm::log(sum)) as f32;
    let points = Checkpoints::here();
    if l.inner == 1 {
        threads::chunks(y, 1, 1 + 8192 / l.n.max(1), |i, y| {
            points.pass();
            if y[0].is_finite() {
                y[0] = log(y[0], sum_exp(&x[i * l.n..(i + 1) * l.n], y[0]));
            }
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
            let mut sums = [0f64; COLUMNS];
            let sums = &mut sums[..y.len()];
            add_exps(&x[(o * l.n * l.inner + first).min(x.len())..], l, y, sums);
            let all = y.iter_mut().zip(sums).filter(|(y, _)| y.is_finite());
            all.for_each(|(y, s)| *y = log(*y, *s));
        }
    });
}

/// The sum of terms, in sums that the compiler keeps in vectors.
#[inline(always)]
fn summed(x: &[f32], f: impl Fn(f64, f32) -> f64) -> f64 {
    let mut acc = [0f64; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for c in whole {
        for i in 0..LANES {
            acc[i] = f(acc[i], c[i]);
        }
    }
    if !rest.is_empty() {
        let (c, own) = short::last(x, 0.0);
        for i in 0..LANES {
            let next = f(acc[i], c[i]);
            acc[i] = if i >= own.start && i < own.end { next } else { acc[i] };
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            acc[i] += acc[i + width];
        }
        width /= 2;
    }
    acc[0]
}

vectorized! {
    /// Σx in f64.
    pub fn sum(x: &[f32]) -> f64 {
        summed(x, |a, x| a + f64::from(x))
    }
}
vectorized! {
    /// Σ(x − mean)² in f64.
    pub fn sum_deviations(x: &[f32], mean: f64) -> f64 {
        summed(x, |a, x| a + (f64::from(x) - mean) * (f64::from(x) - mean))
    }
}
vectorized! {
    /// Σe^(x − top).
    pub fn sum_exp(x: &[f32], top: f32) -> f64 {
        // Exponentials in a loop without sums: a vector of them has twice as many as one of f64.
        let mut room = [0f32; COLUMNS];
        let mut all = 0.0;
        for x in x.chunks(COLUMNS) {
            let room = &mut room[..x.len().next_multiple_of(LANES)];
            room[..x.len()].copy_from_slice(x);
            room[x.len()..].fill(top);
            for x in room.iter_mut() {
                *x = exp_below::<FMA>(*x - top);
            }
            all += sum(&room[..x.len()]);
        }
        all
    }
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
        let (some, rest) = rest.as_chunks::<LANES>();
        for c in some {
            for i in 0..LANES {
                acc[i] = max(acc[i], c[i]);
            }
        }
        if !rest.is_empty() {
            // Elements that come twice change nothing.
            let (c, _) = short::last(x, f32::NEG_INFINITY);
            for i in 0..LANES {
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
        acc[0]
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
    /// Adds e^(x − top) of rows to sums of columns.
    pub fn add_exps(x: &[f32], l: Lines, top: &[f32], acc: &mut [f64]) {
        for row in rows(x, l, acc.len()) {
            for (a, (&x, &t)) in acc.iter_mut().zip(row.iter().zip(top)) {
                *a += f64::from(exp_below::<FMA>(x - t));
            }
        }
    }
}
vectorized! {
    /// The greatest of each column.
    pub fn greatest_rows(x: &[f32], l: Lines, y: &mut [f32]) {
        y.fill(f32::NEG_INFINITY);
        for row in rows(x, l, y.len()) {
            short::replace(y, row, max);
        }
    }
}
