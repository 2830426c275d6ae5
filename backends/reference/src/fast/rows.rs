//! Operators along one axis, or along the last ones: `softmax`, `log_softmax`, `layer_norm`, `rms_norm`, `batch_norm`,
//! `reduce`.

use super::NodeCx;
use super::pointwise::math::exp;
use kiln_backend::BackendError;
use kiln_ir::infer::normalize_axis;
use kiln_ops::layout::Layout;
use kiln_ops::norm::layer_norm::RMS_NORM;
use kiln_ops::reduce::mask;
use kiln_ops::softmax::LOG_SOFTMAX;
use rayon::prelude::*;

/// Accumulators that are independent, so that sums run in vectors.
const LANES: usize = 16;

/// Σ f(x) in f64.
fn sum(x: &[f32], f: impl Fn(f32) -> f64) -> f64 {
    let mut acc = [0f64; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for c in whole {
        acc.iter_mut().zip(c).for_each(|(a, &x)| *a += f(x));
    }
    acc.iter().sum::<f64>() + rest.iter().map(|&x| f(x)).sum::<f64>()
}

/// The greatest element; NaN if there is one.
fn greatest(x: &[f32]) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m || x.is_nan() { x } else { m })
}

/// Splits a shape at an axis: elements before, along and after it.
fn split(shape: &[usize], from: usize, to: usize) -> (usize, usize, usize) {
    let n = |s: &[usize]| s.iter().product::<usize>();
    (n(&shape[..from]), n(&shape[from..to]), n(&shape[to..]))
}

pub fn softmax(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(x), Some(axis)) = (cx.floats(0), axis) else { return Ok(false) };
    let (_, n, inner) = split(&shape, axis, axis + 1);
    if inner != 1 {
        return Ok(false);
    }
    let log = cx.node.op.is(LOG_SOFTMAX);
    cx.write_floats(0, &shape, |y| {
        let rows = y.par_chunks_mut(n.max(1)).zip(x.par_chunks(n.max(1)));
        rows.with_min_len(1 + 4096 / n.max(1)).for_each(|(y, x)| if log { log_row(x, y) } else { row(x, y) });
        Ok(())
    })
}

/// The softmax of one row.
pub fn row(x: &[f32], y: &mut [f32]) {
    let top = greatest(x);
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = exp(x - top));
    let scale = (1.0 / sum(y, f64::from)) as f32;
    y.iter_mut().for_each(|y| *y *= scale);
}

fn log_row(x: &[f32], y: &mut [f32]) {
    let top = greatest(x);
    let log = libm::log(sum(x, |x| exp(x - top).into()));
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = (f64::from(x - top) - log) as f32);
}

/// Scale or bias of a normalization, if it has one element for each of a row, whatever dimensions of 1 come before;
/// ones or zeros if absent.
fn along(cx: &NodeCx<'_>, i: usize, row: &[usize], fill: f32) -> Option<Vec<f32>> {
    let n = row.iter().product();
    if !cx.has(i) {
        return Some(vec![fill; n]);
    }
    let v = cx.floats(i)?;
    let own = cx.shape(i);
    let lead = own.len().checked_sub(row.len())?;
    (own[..lead].iter().all(|&d| d == 1) && own[lead..] == *row).then(|| v.to_vec())
}

pub fn layer_norm(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let attrs = cx.node.op.attrs();
    let axis = attrs.int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(x), Some(axis), Ok(epsilon)) = (cx.floats(0), axis, attrs.float("epsilon")) else {
        return Ok(false);
    };
    let rms = cx.node.op.is(RMS_NORM);
    let row = shape[axis..].to_vec();
    let n: usize = row.iter().product();
    let (scale, bias) = (along(cx, 1, &row, 1.0), along(cx, 2, &row, 0.0));
    let (Some(scale), Some(bias)) = (scale, bias) else { return Ok(false) };
    if n == 0 {
        return Ok(false);
    }
    let centre = |x: &[f32]| if rms { 0.0 } else { sum(x, f64::from) / n as f64 };
    let stats: Vec<(f64, f64)> = x
        .par_chunks(n)
        .map(|x| {
            let mean = centre(x);
            let var = sum(x, |x| (f64::from(x) - mean) * (f64::from(x) - mean)) / n as f64;
            (mean, 1.0 / (var + epsilon).sqrt())
        })
        .collect();
    let done = cx.write_floats(0, &shape, |y| {
        let rows = y.par_chunks_mut(n).zip(x.par_chunks(n)).zip(&stats);
        rows.for_each(|((y, x), &(mean, inv))| {
            let parts = x.iter().zip(scale.iter().zip(&bias));
            y.iter_mut().zip(parts).for_each(|(y, (&x, (&s, &b)))| {
                *y = ((f64::from(x) - mean) * inv * f64::from(s) + f64::from(b)) as f32
            });
        });
        Ok(())
    })?;
    if !done || rms {
        return Ok(done);
    }
    for (i, pick) in [|s: &(f64, f64)| s.0, |s: &(f64, f64)| s.1].into_iter().enumerate() {
        let Some(out) = cx.out_shape(i + 1) else { return Ok(false) };
        let written = cx.write_floats(i + 1, &out, |y| {
            y.iter_mut().zip(&stats).for_each(|(y, s)| *y = pick(s) as f32);
            Ok(())
        })?;
        if !written {
            return Ok(false);
        }
    }
    Ok(true)
}

pub fn batch_norm(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let Ok(epsilon) = cx.node.op.attrs().float("epsilon") else { return Ok(false) };
    let all: Option<Vec<_>> = (0..5).map(|i| cx.floats(i)).collect();
    let Some(all) = all.filter(|_| shape.len() >= 2) else { return Ok(false) };
    let [x, scale, bias, mean, var] = &all[..] else { return Ok(false) };
    let layout = Layout::of(cx.node.op.attrs());
    let axis = layout.channel_axis(shape.len());
    let (_, channels, inner) = split(&shape, axis, axis + 1);
    if [scale, bias, mean, var].iter().any(|p| p.len() != channels) {
        return Ok(false);
    }
    if layout == Layout::ChannelsLast {
        let factor = |c: usize| (f64::from(scale[c]) / (f64::from(var[c]) + epsilon).sqrt()) as f32;
        let factors: Vec<f32> = (0..channels).map(factor).collect();
        let columns = move |c: usize| (mean[c], factors[c], bias[c]);
        return cx.write_floats(0, &shape, |y| {
            let rows = y.par_chunks_mut(channels.max(1)).zip(x.par_chunks(channels.max(1)));
            rows.with_min_len(1 + 4096 / channels.max(1)).for_each(|(y, x)| {
                y.iter_mut().zip(x).enumerate().for_each(|(c, (y, &x))| {
                    let (mean, factor, bias) = columns(c);
                    *y = (x - mean) * factor + bias;
                });
            });
            Ok(())
        });
    }
    cx.write_floats(0, &shape, |y| {
        let planes = y.par_chunks_mut(inner.max(1)).zip(x.par_chunks(inner.max(1)));
        planes.enumerate().for_each(|(i, (y, x))| {
            let c = i % channels;
            let factor = (f64::from(scale[c]) / (f64::from(var[c]) + epsilon).sqrt()) as f32;
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - mean[c]) * factor + bias[c]);
        });
        Ok(())
    })
}

pub fn reduce(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let attrs = cx.node.op.attrs();
    let axes = if cx.has(1) { cx.ints(1) } else { None };
    let Ok(mask) = mask(attrs, axes.as_deref(), shape.len()) else { return Ok(false) };
    // One run of reduced axes; those of size one may belong to it or not.
    let reduced = |i: &usize| mask[*i] && shape[*i] != 1;
    let Some(first) = (0..shape.len()).find(reduced) else { return Ok(false) };
    let last = (0..shape.len()).rev().find(reduced).unwrap_or(first);
    if (first..=last).any(|i| !mask[i] && shape[i] != 1) {
        return Ok(false);
    }
    let (_, n, inner) = split(&shape, first, last + 1);
    let (Some(x), Some(out), Ok(op)) = (cx.floats(0), cx.out_shape(0), attrs.str("op")) else {
        return Ok(false);
    };
    if n == 0 || inner == 0 || !matches!(op, "sum" | "mean" | "max") {
        return Ok(false);
    }
    let op = op.to_owned();
    cx.write_floats(0, &out, |y| {
        let scale = if op == "mean" { 1.0 / n as f64 } else { 1.0 };
        if inner == 1 {
            y.par_iter_mut().zip(x.par_chunks(n)).for_each(|(y, x)| {
                *y = if op == "max" { greatest(x) } else { (sum(x, f64::from) * scale) as f32 };
            });
            return Ok(());
        }
        y.par_chunks_mut(inner).zip(x.par_chunks(n * inner)).for_each(|(y, x)| {
            let mut acc = vec![if op == "max" { f64::NEG_INFINITY } else { 0.0 }; inner];
            for x in x.chunks_exact(inner) {
                let pairs = acc.iter_mut().zip(x.iter().map(|&x| f64::from(x)));
                match op.as_str() {
                    "max" => pairs.for_each(|(a, x)| *a = if x > *a || x.is_nan() { x } else { *a }),
                    _ => pairs.for_each(|(a, x)| *a += x),
                }
            }
            y.iter_mut().zip(acc).for_each(|(y, a)| *y = (a * scale) as f32);
        });
        Ok(())
    })
}
