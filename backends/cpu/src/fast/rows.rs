//! Operators along one axis, or along the last ones: `softmax`, `log_softmax`, `layer_norm`, `rms_norm`, `batch_norm`,
//! `reduce`.

use super::pointwise::math::exp;
use super::{NodeCx, Types};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ir::Dim;
use kiln_ir::infer::normalize_axis;
use kiln_ops::layout::Layout;
use kiln_ops::norm::layer_norm::RMS_NORM;
use kiln_ops::reduce::mask;
use kiln_ops::softmax::LOG_SOFTMAX;

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

/// Whether the kernel covers a softmax: floats along the last axis.
pub fn covers_softmax(t: &Types<'_>) -> bool {
    let Some(rank) = t.input(0).map(|t| t.dims.len()) else { return false };
    let axis = t.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, rank, "axis").ok());
    t.all_real() && axis.is_some_and(|a| a + 1 == rank)
}

/// Whether the kernel covers a normalization: floats, scale and bias with an element for each of a row.
pub fn covers_norm(t: &Types<'_>) -> bool {
    let Some(x) = t.input(0).filter(|_| t.all_real()) else { return false };
    let axis = t.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, x.dims.len(), "axis").ok());
    let Some(row) = axis.map(|a| &x.dims[a..]) else { return false };
    let fits = |own: &[Dim]| {
        let lead = own.len().checked_sub(row.len());
        lead.is_some_and(|n| own[..n].iter().all(|d| d.is(1)) && own[n..] == *row)
    };
    !row.iter().any(|d| d.is(0)) && (1..3).all(|i| t.input(i).is_none_or(|t| fits(&t.dims)))
}

/// Whether the kernel covers a reduction: sums, means and greatest of floats along neighbouring axes.
pub fn covers_reduce(t: &Types<'_>) -> bool {
    let Some(x) = t.input(0).filter(|_| t.all_real()) else { return false };
    let attrs = t.node.op.attrs();
    let axes = if t.input(1).is_some() { t.ints(1) } else { Some(Vec::new()) };
    let mask = axes.and_then(|axes| mask(attrs, Some(&axes), x.dims.len()).ok());
    let (Some(mask), Ok("sum" | "mean" | "max")) = (mask, attrs.str("op")) else { return false };
    let (Some(first), Some(last)) = (mask.iter().position(|&m| m), mask.iter().rposition(|&m| m)) else {
        return false;
    };
    mask[first..=last].iter().all(|&m| m) && !x.dims.iter().any(|d| d.is(0))
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
        threads::chunks(y, n, 1 + 4096 / n.max(1), |i, y| {
            let x = &x[i * n..(i + 1) * n];
            if log { log_row(x, y) } else { row(x, y) }
        });
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
    let mut stats = vec![(0f64, 0f64); x.len() / n];
    threads::chunks(&mut stats, 1, 1 + 4096 / n, |i, s| {
        let x = &x[i * n..(i + 1) * n];
        let mean = centre(x);
        let var = sum(x, |x| (f64::from(x) - mean) * (f64::from(x) - mean)) / n as f64;
        s[0] = (mean, 1.0 / (var + epsilon).sqrt());
    });
    let done = cx.write_floats(0, &shape, |y| {
        threads::chunks(y, n, 1 + 4096 / n, |i, y| {
            let (x, (mean, inv)) = (&x[i * n..(i + 1) * n], stats[i]);
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
            threads::chunks(y, channels, 1 + 4096 / channels.max(1), |i, y| {
                let x = &x[i * channels..(i + 1) * channels];
                y.iter_mut().zip(x).enumerate().for_each(|(c, (y, &x))| {
                    let (mean, factor, bias) = columns(c);
                    *y = (x - mean) * factor + bias;
                });
            });
            Ok(())
        });
    }
    cx.write_floats(0, &shape, |y| {
        threads::chunks(y, inner, 1 + 4096 / inner.max(1), |i, y| {
            let (c, x) = (i % channels, &x[i * inner..(i + 1) * inner]);
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
            threads::chunks(y, 1, 1 + 4096 / n, |i, y| {
                let x = &x[i * n..(i + 1) * n];
                y[0] = if op == "max" { greatest(x) } else { (sum(x, f64::from) * scale) as f32 };
            });
            return Ok(());
        }
        threads::chunks(y, inner, 1, |i, y| {
            let x = &x[i * n * inner..(i + 1) * n * inner];
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
