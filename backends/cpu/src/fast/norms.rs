//! Normalizations that [`super::rows`] leaves: `lp_norm`, layers whose scale is not a row, and vectors without a dimension of channels.

use super::lines::{Lines, Runs, fold_all};
use super::reduce_folds::{Magnitudes, Squares};
use super::simd::vectorized;
use super::{Floats, Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::norm::batch_norm::BATCH_NORM;
use kiln_ops::norm::layer_norm::{LAYER_NORM, RMS_NORM};
use kiln_ops::norm::lrn::LP_NORM;
use kiln_ops::util::{broadcast_strides, for_each_index, offset};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[
    kernel(LP_NORM, lp_norm, |t| t.all_real()),
    kernel(LAYER_NORM, layer_norm, |t| t.all_real()),
    kernel(RMS_NORM, layer_norm, |t| t.all_real()),
    kernel(BATCH_NORM, vector, |t| t.all_real() && t.input(0).is_some_and(|x| x.dims.len() < 2)),
];

/// Elements that one task takes at least.
const TASK: usize = 1 << 13;

fn lp_norm(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(x), Some(axis), Ok(p)) =
        (cx.floats(0), cx.axis("axis", shape.len()), cx.node.op.attrs().int("p"))
    else {
        return Ok(false);
    };
    let l = Lines::of(&shape, axis, axis + 1);
    let mask: Vec<bool> = (0..shape.len()).map(|d| d == axis).collect();
    let runs = Runs::of(&shape, &mask);
    // Reciprocals of norms; a line whose norm is 0 has no other elements.
    let reciprocal = |norm: f64| if norm == 0.0 { 0.0 } else { 1.0 / norm };
    let mut factors = vec![0f64; l.outer * l.inner];
    match p {
        2 => fold_all::<f32, Squares, f64>(&x, &runs, &mut factors, |sum| reciprocal(sum.sqrt())),
        _ => fold_all::<f32, Magnitudes, f64>(&x, &runs, &mut factors, reciprocal),
    }
    cx.write_floats(0, &shape, |y| {
        if l.inner == 1 {
            threads::chunks(y, l.n, TASK.div_ceil(l.n.max(1)), |i, y| {
                multiplied(&x[i * l.n..(i + 1) * l.n], factors[i], y);
            });
            return Ok(());
        }
        let points = Checkpoints::here();
        threads::chunks(y, l.inner, TASK.div_ceil(l.inner.max(1)), |i, y| {
            points.pass();
            let first = i / l.n * l.inner;
            multiplied_by(&x[i * l.inner..(i + 1) * l.inner], &factors[first..first + l.inner], y);
        });
        Ok(())
    })
}

vectorized! {
    /// Elements times a factor.
    fn multiplied(x: &[f32], factor: f64, y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (f64::from(x) * factor) as f32;
        }
    }
}

vectorized! {
    /// Elements times factors of their own.
    fn multiplied_by(x: &[f32], factors: &[f64], y: &mut [f32]) {
        for ((y, &x), &f) in y.iter_mut().zip(x).zip(factors) {
            *y = (f64::from(x) * f) as f32;
        }
    }
}

/// A scale or bias as it is read: elements, strides along the dimensions in front, and places along a row.
struct Spread {
    data: Floats,
    lead: Vec<usize>,
    row: Vec<usize>,
}

impl Spread {
    fn of(cx: &NodeCx<'_>, i: usize, shape: &[usize], axis: usize) -> Option<Spread> {
        let data = cx.floats(i)?;
        let steps = broadcast_strides(cx.shape(i), shape);
        let mut row = Vec::new();
        for_each_index(&shape[axis..], |at| row.push(offset(at, &steps[axis..])));
        Some(Spread { data, lead: steps[..axis].to_vec(), row })
    }

    fn at(&self, base: usize, k: usize) -> f64 {
        self.data[base + self.row[k]].into()
    }
}

fn layer_norm(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(x), Some(axis), Ok(epsilon)) =
        (cx.floats(0), cx.axis("axis", shape.len()), cx.node.op.attrs().float("epsilon"))
    else {
        return Ok(false);
    };
    let rms = cx.node.op.is(RMS_NORM);
    let n: usize = shape[axis..].iter().product();
    let scale = Spread::of(cx, 1, &shape, axis);
    let bias = if rms { None } else { Spread::of(cx, 2, &shape, axis) };
    let mut bases = Vec::new();
    for_each_index(&shape[..axis], |at| {
        let base = |s: &Option<Spread>| s.as_ref().map_or(0, |s| offset(at, &s.lead));
        bases.push((base(&scale), base(&bias)));
    });
    let mut stats = vec![(0f64, 0f64); bases.len()];
    threads::chunks(&mut stats, 1, TASK.div_ceil(n.max(1)), |r, s| {
        let x = &x[r * n..(r + 1) * n];
        let mean = if rms { 0.0 } else { x.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64 };
        let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n as f64;
        s[0] = (mean, 1.0 / (var + epsilon).sqrt());
    });
    let done = cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, n, TASK.div_ceil(n.max(1)), |r, y| {
            points.pass();
            let (x, (mean, inv), (s, b)) = (&x[r * n..(r + 1) * n], stats[r], bases[r]);
            for (k, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                let scale = scale.as_ref().map_or(1.0, |v| v.at(s, k));
                let bias = bias.as_ref().map_or(0.0, |v| v.at(b, k));
                *y = ((f64::from(x) - mean) * inv * scale + bias) as f32;
            }
        });
        Ok(())
    })?;
    if !done || rms {
        return Ok(done);
    }
    let (Some(means), Some(inverse)) = (cx.out_shape(1), cx.out_shape(2)) else { return Ok(false) };
    let mut write = |i: usize, shape: &[usize], pick: fn(&(f64, f64)) -> f64| {
        cx.write_floats(i, shape, |y| {
            y.iter_mut().zip(&stats).for_each(|(y, s)| *y = pick(s) as f32);
            Ok(())
        })
    };
    Ok(write(1, &means, |s| s.0)? && write(2, &inverse, |s| s.1)?)
}

/// Batch normalization of one channel.
fn vector(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let Ok(epsilon) = cx.node.op.attrs().float("epsilon") else { return Ok(false) };
    let all: Option<Vec<Floats>> = (0..5).map(|i| cx.floats(i)).collect();
    let Some(all) = all else { return Ok(false) };
    let [x, parameters @ ..] = &all[..] else { return Ok(false) };
    let numbers: Option<Vec<f64>> = parameters.iter().map(|p| p.first().map(|&p| p.into())).collect();
    let Some(&[scale, bias, mean, var]) = numbers.as_deref() else { return Ok(false) };
    let factor = scale / (var + epsilon).sqrt();
    cx.write_floats(0, &shape, |y| {
        y.iter_mut().zip(x.iter()).for_each(|(y, &x)| *y = ((f64::from(x) - mean) * factor + bias) as f32);
        Ok(())
    })
}
