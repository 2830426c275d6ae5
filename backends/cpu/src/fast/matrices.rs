//! Matrices that are not plain products of floats: `det`, `matmul_sparse`, `norm_matmul`, `gated_matmul` and `sparse_prune`, and products of eight-bit floats.

use super::{Kernel, NodeCx, TABLES, Types, kernel, matmul};
use crate::threads;
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::{DType, Elems, Tensor};
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::det::DET;
use kiln_ops::matmul::gated::{GATED_MATMUL, SIDE, activation};
use kiln_ops::matmul::normed::NORM_MATMUL;
use kiln_ops::matmul::sparse::MATMUL_SPARSE;
use kiln_ops::matmul::sparse::pack::{SPARSE_PACK, dense, packed};
use kiln_ops::matmul::sparse::prune::{SPARSE_PRUNE, kept};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[
    kernel(DET, det, |t| t.all_real()),
    kernel(MATMUL, matmul::run, |t| (0..2).all(|i| t.input(i).is_some_and(|x| x.dtype == DType::F8E4M3))),
    kernel(MATMUL_SPARSE, sparse, |t| t.whole_bytes()),
    kernel(NORM_MATMUL, normed, |t| t.all_real()),
    kernel(GATED_MATMUL, gated, |t| t.all_real()),
    kernel(SPARSE_PRUNE, prune, covers_prune),
    kernel(SPARSE_PACK, pack, |t| t.whole_bytes()),
];

fn covers_prune(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| x.dtype.bits() >= 8)
}

fn det(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(shape), Some(&n)) = (cx.floats(0), cx.out_shape(0), cx.shape(0).last()) else {
        return Ok(false);
    };
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, 1, 1 + 4096 / (n * n * n).max(1), |i, y| {
            points.pass();
            let matrix = x[i * n * n..(i + 1) * n * n].iter().map(|&x| x.into()).collect();
            y[0] = determinant(matrix, n) as f32;
        });
        Ok(())
    })
}

/// Gaussian elimination with the largest pivot of each column.
fn determinant(mut a: Vec<f64>, n: usize) -> f64 {
    let mut det = 1.0;
    for k in 0..n {
        let size = |i: usize| a[i * n + k].abs();
        let pivot = (k + 1..n).fold(k, |best, i| if size(i) > size(best) { i } else { best });
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            det = -det;
        }
        let (above, below) = a.split_at_mut((k + 1) * n);
        let row = &above[k * n..];
        det *= row[k];
        if row[k] == 0.0 {
            continue;
        }
        for other in below.chunks_exact_mut(n) {
            let f = other[k] / row[k];
            other[k..].iter_mut().zip(&row[k..]).for_each(|(x, r)| *x -= f * r);
        }
    }
    det
}

/// The product with the weights as a dense matrix [K, N].
fn sparse(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(values), Some(places), Some(&depth)) =
        (cx.args[1].clone(), cx.args[2].clone(), cx.shape(0).last())
    else {
        return Ok(false);
    };
    let n = values.shape()[0];
    let turned = |i: usize| i % n * depth + i / n;
    let count = n * depth;
    let (elems, dtype) = match dense(&values.tensor()?, &places.tensor()?, depth) {
        Elems::F(v) => (Elems::F((0..count).map(|i| v[turned(i)]).collect()), DType::F32),
        Elems::I(v) => (Elems::I((0..count).map(|i| v[turned(i)]).collect()), values.dtype()),
    };
    let Some(weights) = Tensor::from_elems(dtype, &[depth, n], &elems) else { return Ok(false) };
    cx.args[1] = Some(Val::shared(weights));
    let done = matmul::run(cx)?;
    cx.args[1] = Some(values);
    Ok(done)
}

/// A row of the result by one task, with the moments of its own.
fn normed(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Ok(trans), Ok(epsilon)) = (attrs.bool("trans_b"), attrs.float("epsilon")) else { return Ok(false) };
    let (Some(x), Some(w), Some(shape)) = (cx.floats(0), cx.floats(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let sums = if cx.has(2) { cx.floats(2) } else { None };
    let (depth, n) = (cx.shape(0).last().copied().unwrap_or(0), shape.last().copied().unwrap_or(0));
    let centered = cx.has(2);
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, n, 1 + 4096 / (n * depth).max(1), |row, y| {
            points.pass();
            let own = &x[row * depth..][..depth];
            let (mean, by) = moments(own, centered, epsilon);
            for (j, y) in y.iter_mut().enumerate() {
                let weights = own.iter().enumerate().map(|(k, &x)| {
                    f64::from(x) * f64::from(w[if trans { j * depth + k } else { k * n + j }])
                });
                let sum = sums.as_ref().map_or(0.0, |s| f64::from(s[j]));
                *y = ((weights.sum::<f64>() - mean * sum) / by) as f32;
            }
        });
        Ok(())
    })
}

/// The mean of a row, or 0, and what its elements are divided by.
fn moments(row: &[f32], centered: bool, epsilon: f64) -> (f64, f64) {
    let mean_of = |f: fn(f64) -> f64| row.iter().map(|&x| f(x.into())).sum::<f64>() / row.len() as f64;
    let mean = if centered { mean_of(|x| x) } else { 0.0 };
    (mean, ((mean_of(|x| x * x) - mean * mean).max(0.0) + epsilon).sqrt())
}

/// A row of the result by one task: both sums of each element, and the moments of the row where it is normalized.
fn gated(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Ok(trans), Ok(epsilon), Ok(normalized)) =
        (attrs.bool("trans_b"), attrs.float("epsilon"), attrs.bool("normalized"))
    else {
        return Ok(false);
    };
    let half = |name| attrs.str(name).ok().and_then(activation);
    let (Some(gate), Some(value)) = (half("gate"), half("value")) else { return Ok(false) };
    let (Some(x), Some(w), Some(shape)) = (cx.floats(0), cx.floats(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let [bias, sums] = [2, 3].map(|i| if cx.has(i) { cx.floats(i) } else { None });
    let (depth, n) = (cx.shape(0).last().copied().unwrap_or(0), shape.last().copied().unwrap_or(0));
    let centered = cx.has(3);
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, n, 1 + 4096 / (2 * n * depth).max(1), |row, y| {
            points.pass();
            let own = &x[row * depth..][..depth];
            let (mean, by) = if normalized { moments(own, centered, epsilon) } else { (0.0, 1.0) };
            let sum = |j: usize| {
                let weights = own.iter().enumerate().map(|(k, &x)| {
                    f64::from(x) * f64::from(w[if trans { j * depth + k } else { k * 2 * n + j }])
                });
                let less = mean * sums.as_ref().map_or(0.0, |s| f64::from(s[j]));
                (weights.sum::<f64>() - less) / by + bias.as_ref().map_or(0.0, |b| f64::from(b[j]))
            };
            for (j, y) in y.iter_mut().enumerate() {
                let first = j / SIDE * 2 * SIDE + j % SIDE;
                *y = (gate(sum(first)) * value(sum(first + SIDE))) as f32;
            }
        });
        Ok(())
    })
}

fn prune(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(w) = cx.args[0].clone() else { return Ok(false) };
    let Some(axis) = cx.axis("axis", w.shape().len()) else { return Ok(false) };
    let keep = kept(&w.tensor()?, axis);
    let size = w.dtype().bits() as usize / 8;
    let mut out = Out::new(cx.pool, w.dtype(), w.shape(), &cx.node.name)?;
    let elements = out.bytes_mut().chunks_exact_mut(size).zip(w.bytes().chunks_exact(size));
    for ((y, x), keep) in elements.zip(keep) {
        if keep { y.copy_from_slice(x) } else { y.fill(0) }
    }
    cx.push(out.done());
    Ok(true)
}

fn pack(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(w) = cx.args[0].clone() else { return Ok(false) };
    // Weights that are too dense are the oracle's error.
    let Ok((values, places)) = packed(&w.tensor()?) else { return Ok(false) };
    cx.push(Val::shared(values));
    cx.push(Val::shared(places));
    Ok(true)
}
