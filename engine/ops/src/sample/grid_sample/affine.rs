//! `affine_grid`.

use crate::util::{REAL, for_each_index, host_dims, is_real};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ, unify};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

/// The coordinate of point `i` of `n` along one dimension.
pub fn point(i: usize, n: usize, align_corners: bool) -> f64 {
    match (align_corners, n) {
        (true, 0 | 1) => -1.0,
        (true, n) => 2.0 * i as f64 / (n - 1) as f64 - 1.0,
        (false, n) => (2 * i + 1) as f64 / n as f64 - 1.0,
    }
}

pub(super) fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    let shaped =
        |d: &[Dim], r: i64| d.len() == 3 && !differ(&d[1], &r.into()) && !differ(&d[2], &(r + 1).into());
    cx.check_shape(0, |d| shaped(d, 2) || shaped(d, 3), "[N, 2, 3] or [N, 3, 4]")?;
    let theta = cx.ty(0)?;
    let size = host_dims(cx, 1, "size")?;
    let r = size.len() as i64 - 2;
    if !shaped(&theta.dims, r) {
        return Err(OpError::Mismatch {
            a: dims_text(&theta.dims),
            b: dims_text(&size),
            wanted: "size must be [N, C, H, W] for theta [N, 2, 3], [N, C, D, H, W] for [N, 3, 4]".into(),
        });
    }
    let batch = unify(&theta.dims[0], &size[0]).ok_or_else(|| OpError::Mismatch {
        a: dims_text(&theta.dims),
        b: dims_text(&size),
        wanted: "theta and size must have the same batch size".into(),
    })?;
    let mut dims = vec![batch];
    dims.extend_from_slice(&size[2..]);
    dims.push(r.into());
    Ok(vec![Fact::of(TensorType { dtype: theta.dtype, dims })])
}

pub(super) fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let theta = cx.input(0)?.to_f64();
    let align = cx.attrs().bool("align_corners")?;
    let shape = cx.out_shape(0)?;
    let (r, sizes) = (shape.len() - 2, &shape[1..shape.len() - 1]);
    let mut out = Vec::new();
    for_each_index(&shape[..shape.len() - 1], |at| {
        // Innermost dimension first, then 1.
        let mut p: Vec<f64> = (0..r).rev().map(|d| point(at[1 + d], sizes[d], align)).collect();
        p.push(1.0);
        let matrix = &theta[at[0] * r * (r + 1)..];
        for row in matrix.chunks(r + 1).take(r) {
            out.push(row.iter().zip(&p).map(|(a, b)| a * b).sum());
        }
    });
    Ok(vec![cx.make(0, &shape, Elems::F(out))?])
}

pub(super) fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], &[i64])] = &[
        ("2-D", &[2, 2, 3], &[2, 3, 5, 4]),
        ("3-D", &[2, 3, 4], &[2, 1, 3, 5, 4]),
        ("single points", &[1, 2, 3], &[1, 1, 1, 3]),
        ("batch 0", &[0, 2, 3], &[0, 1, 2, 3]),
        ("empty", &[1, 2, 3], &[1, 1, 0, 3]),
    ];
    let mut out = Vec::new();
    for &(label, theta, size) in cases {
        for (t, align) in [(DType::F32, false), (DType::F32, true), (DType::F16, true)] {
            let inputs = [Some(rng.tensor(t, theta)), Some(rng.i64s(&[size.len()], size))];
            let attrs = Attrs::new().with("align_corners", align);
            out.push(Problem::of(&format!("{label} align {align} {t}"), "affine_grid", attrs, inputs));
        }
    }
    out
}
