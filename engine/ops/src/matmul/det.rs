//! `det`: determinants.

use crate::util::{PLAIN, REAL, REALS, is_real};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    DET = "det",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: DET,
    doc: "The determinant of every square matrix of x [.., M, M]; 1 for M = 0.",
    infer,
    eval,
    tolerance: Tolerance::Conditioned,
    problems,
    traits: Traits::heavy(|s| s.volume(0).saturating_mul(s.from_last(0, 0))),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    let square = |d: &[Dim]| matches!(d, [.., a, b] if !differ(a, b));
    cx.check_shape(0, square, "square matrices as its last two dimensions")?;
    let x = cx.ty(0)?;
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims: x.dims[..x.rank() - 2].to_vec() })])
}

/// Gaussian elimination with the largest pivot of each column.
fn determinant(mut a: Vec<f64>, n: usize) -> f64 {
    let mut det = 1.0;
    for k in 0..n {
        let size = |i: usize, a: &[f64]| a[i * n + k].abs();
        let pivot = (k + 1..n).fold(k, |best, i| if size(i, &a) > size(best, &a) { i } else { best });
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            det = -det;
        }
        let p = a[k * n + k];
        det *= p;
        if p == 0.0 {
            continue;
        }
        for i in k + 1..n {
            let f = a[i * n + k] / p;
            (k..n).for_each(|j| a[i * n + j] -= f * a[k * n + j]);
        }
    }
    det
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let n = x.shape().last().copied().unwrap_or(0);
    let shape = cx.out_shape(0)?;
    let v = x.to_f64();
    let count: usize = shape.iter().product();
    let det = (0..count).map(|i| determinant(v[i * n * n..(i + 1) * n * n].to_vec(), n)).collect();
    Ok(vec![cx.make(0, &shape, Elems::F(det))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let shapes: &[&[usize]] = &[&[3, 3], &[2, 5, 7, 7], &[4, 1, 1], &[2, 0, 0], &[0, 3, 3]];
    let mut out = Vec::new();
    for shape in shapes {
        for t in REALS {
            let x = Some(rng.tensor(t, shape));
            out.push(Problem::of(&format!("{shape:?} {t}"), "det", Attrs::new(), [x]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, run};
    use kiln_ir::DType;

    #[test]
    fn small_matrices_by_hand() {
        let det = |shape: &[usize], v: &[f64]| run("det", Attrs::new(), &[f32s(shape, v)]);
        assert_near(&det(&[2, 2], &[0.0, 1.0, 2.0, 3.0]), &[], &[-2.0], 1e-6);
        let three = [2.0, -3.0, 1.0, 2.0, 0.0, -1.0, 1.0, 4.0, 5.0];
        assert_near(&det(&[1, 3, 3], &three), &[1], &[49.0], 1e-4);
        assert_near(&det(&[2, 2], &[1.0, 2.0, 2.0, 4.0]), &[], &[0.0], 1e-6);
        assert_near(&det(&[2, 2], &[1.0, f64::NAN, 2.0, 4.0]), &[], &[f64::NAN], 0.0);
        assert_near(&det(&[2, 0, 0], &[]), &[2], &[1.0, 1.0], 0.0);
    }

    #[test]
    fn only_square_matrices() {
        let bad = infer("det", Attrs::new(), &[(DType::F32, vec![2.into(), 3.into()])]);
        assert!(bad.unwrap_err().to_string().contains("square"));
    }
}
