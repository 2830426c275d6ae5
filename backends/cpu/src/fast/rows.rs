//! Operators along one axis, or along the last ones: `softmax`, `log_softmax`, and normalizations.

use super::lines::Lines;
use super::pointwise::math::exp_below;
use super::reduce::{add, add_exps, greatest, greatest_rows, sum, sum_deviations};
use super::short::{self, FEW};
use super::simd::vectorized;
use super::{NodeCx, Types};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_ir::Dim;
use kiln_ir::infer::normalize_axis;
use kiln_ops::layout::Layout;
use kiln_ops::norm::layer_norm::RMS_NORM;
use kiln_ops::softmax::LOG_SOFTMAX;

/// Neighbouring lines of a softmax that are computed together.
const COLUMNS: usize = 256;
/// Elements up to which a row is short.
const SHORT: usize = 96;
/// Short rows that are computed together.
const TURNED: usize = 32;

/// Splits a shape at an axis: elements before, along and after it.
fn split(shape: &[usize], from: usize, to: usize) -> (usize, usize, usize) {
    let n = |s: &[usize]| s.iter().product::<usize>();
    (n(&shape[..from]), n(&shape[from..to]), n(&shape[to..]))
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

pub fn softmax(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(x), Some(axis)) = (cx.floats(0), axis) else { return Ok(false) };
    let lines = Lines::of(&shape, axis, axis + 1);
    let (n, inner) = (lines.n, lines.inner);
    let log = cx.node.op.is(LOG_SOFTMAX);
    cx.write_floats(0, &shape, |y| {
        if inner != 1 {
            columns(&x, lines, y, log);
            return Ok(());
        }
        if n <= if log { SHORT / 4 } else { SHORT } {
            threads::chunks(y, TURNED * n, 1 + 4096 / (TURNED * n).max(1), |i, y| {
                short_rows(&x[i * TURNED * n..][..y.len()], n, log, y);
            });
            return Ok(());
        }
        threads::chunks(y, n, 1 + 4096 / n, |i, y| {
            let x = &x[i * n..(i + 1) * n];
            if log { log_row(x, y) } else { row(x, y) }
        });
        Ok(())
    })
}

/// The softmax of one row.
pub fn row(x: &[f32], y: &mut [f32]) {
    y.copy_from_slice(x);
    row_in_place(y);
}

vectorized! {
    /// The softmax of one row, in its own memory.
    pub fn row_in_place(x: &mut [f32]) {
        let top = greatest(x);
        let (whole, rest) = x.as_chunks_mut::<FEW>();
        for x in whole.as_flattened_mut() {
            *x = exp_below::<FMA>(*x - top);
        }
        if !rest.is_empty() {
            let mut few = short::padded(rest, top);
            for x in &mut few {
                *x = exp_below::<FMA>(*x - top);
            }
            short::put(&few, rest);
        }
        let scale = (1.0 / sum(x)) as f32;
        for x in x {
            *x *= scale;
        }
    }
}

vectorized! {
    fn log_row(x: &[f32], y: &mut [f32]) {
        let top = greatest(x);
        let mut all = 0f64;
        for x in x.chunks(COLUMNS) {
            // Few exponentials a lane: their sum in f32 is as good as their terms.
            let mut sums = [0f32; FEW];
            let (whole, rest) = x.as_chunks::<FEW>();
            for x in whole {
                for l in 0..FEW {
                    sums[l] += exp_below::<FMA>(x[l] - top);
                }
            }
            let few = short::padded(rest, top);
            for l in 0..FEW {
                sums[l] += if l < rest.len() { exp_below::<FMA>(few[l] - top) } else { 0.0 };
            }
            all += sums.iter().map(|&s| f64::from(s)).sum::<f64>();
        }
        let log = libm::log(all) as f32;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - top) - log;
        }
    }
}

/// Softmax of rows that are short: their elements become columns, so that vectors are of as many rows.
fn short_rows(x: &[f32], n: usize, log: bool, y: &mut [f32]) {
    let mut turned = [0f32; TURNED * SHORT];
    let (turned, count) = (&mut turned[..TURNED * n], y.len() / n.max(1));
    for (r, x) in x.chunks_exact(n.max(1)).enumerate() {
        for (k, x) in x.iter().enumerate() {
            turned[k * TURNED + r] = *x;
        }
    }
    let (mut top, mut sums) = ([0f32; TURNED], [0f64; TURNED]);
    let l = Lines { outer: 1, n, inner: TURNED };
    greatest_rows(turned, l, &mut top);
    match log {
        true => {
            add_exps(turned, l, &top, &mut sums);
            sums.iter_mut().for_each(|s| *s = libm::log(*s));
            for x in turned.chunks_exact_mut(TURNED) {
                x.iter_mut()
                    .zip(top.iter().zip(&sums))
                    .for_each(|(x, (t, s))| *x = (f64::from(*x - t) - s) as f32);
            }
        }
        false => exps(turned, &top, &mut sums),
    }
    for (r, y) in y.chunks_exact_mut(n.max(1)).enumerate().take(count) {
        for (k, y) in y.iter_mut().enumerate() {
            *y = turned[k * TURNED + r];
        }
    }
}

vectorized! {
    /// Softmaxes of columns whose greatest elements are known, in their own memory.
    fn exps(x: &mut [f32], top: &[f32; TURNED], sums: &mut [f64; TURNED]) {
        for x in x.chunks_exact_mut(TURNED) {
            for (x, t) in x.iter_mut().zip(top) {
                *x = exp_below::<FMA>(*x - t);
            }
            for (s, x) in sums.iter_mut().zip(&*x) {
                *s += f64::from(*x);
            }
        }
        let mut scale = [0f32; TURNED];
        for (to, s) in scale.iter_mut().zip(sums) {
            *to = (1.0 / *s) as f32;
        }
        for x in x.chunks_exact_mut(TURNED) {
            for (x, s) in x.iter_mut().zip(&scale) {
                *x *= s;
            }
        }
    }
}

/// Softmax of lines that are side by side.
fn columns(x: &[f32], l: Lines, y: &mut [f32], log: bool) {
    let blocks = l.inner.div_ceil(COLUMNS);
    let parts = Parts::new(y);
    threads::ranges(l.outer * blocks, 1 + 4096 / (l.n * COLUMNS.min(l.inner)).max(1), |range| {
        let (mut top, mut sums) = ([0f32; COLUMNS], [0f64; COLUMNS]);
        for task in range {
            let (o, first) = (task / blocks, task % blocks * COLUMNS);
            let width = l.inner.min(first + COLUMNS) - first;
            let start = o * l.n * l.inner + first;
            let (top, sums) = (&mut top[..width], &mut sums[..width]);
            greatest_rows(&x[start..], l, top);
            sums.fill(0.0);
            add_exps(&x[start..], l, top, sums);
            sums.iter_mut().for_each(|s| *s = if log { libm::log(*s) } else { 1.0 / *s });
            for r in 0..l.n {
                let at = start + r * l.inner;
                // SAFETY: each block of columns belongs to one task.
                let y = unsafe { parts.part(at, at + width) };
                normalized(&x[at..at + width], top, sums, log, y);
            }
        }
    });
}

vectorized! {
    /// A row of softmaxes, of columns whose greatest elements are known, and the logarithms or the reciprocals of their sums.
    fn normalized(x: &[f32], top: &[f32], sums: &[f64], log: bool, y: &mut [f32]) {
        let columns = y.iter_mut().zip(x).zip(top.iter().zip(sums));
        match log {
            true => {
                for ((y, &x), (&t, &s)) in columns {
                    *y = (f64::from(x - t) - s) as f32;
                }
            }
            false => {
                for ((y, &x), (&t, &s)) in columns {
                    *y = exp_below::<FMA>(x - t) * s as f32;
                }
            }
        }
    }
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
    let centre = |x: &[f32]| if rms { 0.0 } else { sum(x) / n as f64 };
    let mut stats = vec![(0f64, 0f64); x.len() / n];
    threads::chunks(&mut stats, 1, 1 + 4096 / n, |i, s| {
        let x = &x[i * n..(i + 1) * n];
        let mean = centre(x);
        let var = sum_deviations(x, mean) / n as f64;
        s[0] = (mean, 1.0 / (var + epsilon).sqrt());
    });
    let done = cx.write_floats(0, &shape, |y| {
        threads::chunks(y, n, 1 + 4096 / n, |i, y| {
            let (x, (mean, inv)) = (&x[i * n..(i + 1) * n], stats[i]);
            scaled(x, mean, inv, &scale, &bias, y);
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
        return cx.write_floats(0, &shape, |y| {
            threads::chunks(y, channels, 1 + 4096 / channels.max(1), |i, y| {
                affine_columns(&x[i * channels..(i + 1) * channels], mean, &factors, bias, y);
            });
            Ok(())
        });
    }
    cx.write_floats(0, &shape, |y| {
        threads::chunks(y, inner, 1 + 4096 / inner.max(1), |i, y| {
            let (c, x) = (i % channels, &x[i * inner..(i + 1) * inner]);
            let factor = (f64::from(scale[c]) / (f64::from(var[c]) + epsilon).sqrt()) as f32;
            affine(x, mean[c], factor, bias[c], y);
        });
        Ok(())
    })
}

vectorized! {
    /// (x − mean)·factor + bias of one channel.
    fn affine(x: &[f32], mean: f32, factor: f32, bias: f32, y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - mean) * factor + bias;
        }
    }
}

vectorized! {
    /// (x − mean)·factor + bias of channels side by side.
    fn affine_columns(x: &[f32], mean: &[f32], factor: &[f32], bias: &[f32], y: &mut [f32]) {
        let n = y.len();
        let (x, mean, factor, bias) = (&x[..n], &mean[..n], &factor[..n], &bias[..n]);
        for i in 0..n {
            y[i] = (x[i] - mean[i]) * factor[i] + bias[i];
        }
    }
}

vectorized! {
    /// (x − mean)·inv·scale + bias, elements of scale and bias side by side.
    fn scaled(x: &[f32], mean: f64, inv: f64, scale: &[f32], bias: &[f32], y: &mut [f32]) {
        let n = y.len();
        let (x, scale, bias) = (&x[..n], &scale[..n], &bias[..n]);
        for i in 0..n {
            y[i] = ((f64::from(x[i]) - mean) * inv * f64::from(scale[i]) + f64::from(bias[i])) as f32;
        }
    }
}

vectorized! {
    /// (x − mean)·factor + bias of one channel.
    fn shifted(x: &[f32], mean: f64, factor: f64, bias: f64, y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = ((f64::from(x) - mean) * factor + bias) as f32;
        }
    }
}

pub fn group_norm(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let attrs = cx.node.op.attrs();
    let (Ok(epsilon), Ok(groups)) = (attrs.float("epsilon"), attrs.int("groups")) else { return Ok(false) };
    let all: Option<Vec<_>> = (0..3).map(|i| cx.floats(i)).collect();
    let Some(all) = all else { return Ok(false) };
    let [x, scale, bias] = &all[..] else { return Ok(false) };
    let layout = Layout::of(attrs);
    let axis = layout.channel_axis(shape.len());
    let channels = shape[axis];
    let inner: usize = shape[1..].iter().product::<usize>().checked_div(channels).unwrap_or(0);
    let groups = if groups == 0 { channels } else { groups as usize };
    let Some(per) = channels.checked_div(groups).filter(|&n| n > 0 && inner > 0) else { return Ok(false) };
    let n = (per * inner) as f64;
    cx.write_floats(0, &shape, |y| {
        if layout == Layout::ChannelsLast {
            groups_last(x, y, [channels, inner, per], epsilon, scale, bias);
            return Ok(());
        }
        threads::chunks(y, per * inner, 1 + 4096 / (per * inner), |i, y| {
            let x = &x[i * per * inner..(i + 1) * per * inner];
            let mean = sum(x) / n;
            let inv = 1.0 / (sum_deviations(x, mean) / n + epsilon).sqrt();
            for (k, (x, y)) in x.chunks_exact(inner).zip(y.chunks_exact_mut(inner)).enumerate() {
                let c = i % groups * per + k;
                shifted(x, mean, inv * f64::from(scale[c]), bias[c].into(), y);
            }
        });
        Ok(())
    })
}

/// Group normalization of images whose channels are last: an image a task.
fn groups_last(
    x: &[f32],
    y: &mut [f32],
    [channels, inner, per]: [usize; 3],
    epsilon: f64,
    scale: &[f32],
    bias: &[f32],
) {
    let n = (per * inner) as f64;
    threads::chunks(y, channels * inner, 1, |i, y| {
        let x = &x[i * channels * inner..(i + 1) * channels * inner];
        let group_sums = |sums: &[f64]| -> Vec<f64> {
            sums.chunks_exact(per).flat_map(|g| std::iter::repeat_n(g.iter().sum::<f64>() / n, per)).collect()
        };
        let mut sums = vec![0f64; channels];
        add(x, Lines { outer: 1, n: inner, inner: channels }, &mut sums);
        let means = group_sums(&sums);
        sums.fill(0.0);
        for row in x.chunks_exact(channels) {
            let parts = row.iter().zip(&means);
            sums.iter_mut().zip(parts).for_each(|(s, (&x, m))| *s += (f64::from(x) - m) * (f64::from(x) - m));
        }
        let factors: Vec<f64> =
            group_sums(&sums).iter().zip(scale).map(|(v, &s)| f64::from(s) / (v + epsilon).sqrt()).collect();
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            for c in 0..channels {
                y[c] = ((f64::from(x[c]) - means[c]) * factors[c] + f64::from(bias[c])) as f32;
            }
        }
    });
}
