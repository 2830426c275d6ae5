//! `ragged_softmax`: softmax over rows of different lengths.

use crate::util::{PLAIN, REAL, REALS, is_real};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Tolerance, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::dims_text;

kiln_ir::op_names! {
    RAGGED_SOFTMAX = "ragged_softmax",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: RAGGED_SOFTMAX,
    doc: "Softmax along the last axis of x [.., S], each row up to its length in bounds [.., 1] (i32 or i64, clamped to \
          0..=S); what lies behind gives 0.",
    inputs: &[input("x"), input("bounds")],
    infer,
    eval,
    tolerance: Tolerance::Conditioned,
    problems,
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    let x = cx.ty(0)?;
    let mut rows = x.dims.clone();
    if let Some(last) = rows.last_mut() {
        *last = Dim::new(1);
    }
    let same = |d: &[Dim]| d.len() == rows.len() && d.iter().zip(&rows).all(|(a, b)| !differ(a, b));
    cx.check_shape(1, same, &format!("[{}]", dims_text(&rows)))?;
    Ok(vec![Fact::of(x.clone())])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let len = x.shape().last().copied().unwrap_or(0);
    let bounds = cx.input(1)?.to_i64();
    let mut y = x.to_f64();
    for (row, &n) in y.chunks_mut(len.max(1)).zip(&bounds) {
        let (row, rest) = row.split_at_mut(n.clamp(0, row.len() as i64) as usize);
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|x| *x = libm::exp(*x - max));
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|x| *x /= sum);
        rest.fill(0.0);
    }
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let shapes: &[&[usize]] = &[&[2, 3, 7], &[5], &[4, 130], &[2, 0, 3], &[2, 3, 0]];
    for (shape, t) in shapes.iter().flat_map(|s| REALS.map(|t| (s, t))) {
        let mut rows = shape.to_vec();
        let len = rows.pop().unwrap_or(0) as i64;
        rows.push(1);
        let n: usize = rows.iter().product();
        let bounds: Vec<i64> = (0..n).map(|_| rng.int(0, len + 1)).collect();
        let ins = [Some(rng.tensor(t, shape)), Some(rng.i64s(&rows, &bounds))];
        out.push(Problem::of(&format!("{shape:?} {t}"), "ragged_softmax", Attrs::new(), ins));
    }
    for t in REALS {
        // NaN and infinities first, then ordinary numbers: rows with and without them.
        let x = rng.edge_floats(t, 19);
        let ins = [Some(x), Some(rng.i64s(&[1], &[12]))];
        out.push(Problem::of(&format!("special values {t}"), "ragged_softmax", Attrs::new(), ins));
        let huge = rng.tensor_in(t, &[3, 9], -1e4, 1e4, 9);
        let ins = [Some(huge), Some(rng.i64s(&[3, 1], &[9, 1, 0]))];
        out.push(Problem::of(&format!("huge values {t}"), "ragged_softmax", Attrs::new(), ins));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run};

    #[test]
    fn rows_end_at_their_bounds() {
        let nan = f64::NAN;
        let x = f32s(&[4, 3], &[0.0, 0.0, nan, 1000.0, 1000.0, 1000.0, nan, 1.0, 2.0, nan, 5.0, 5.0]);
        let bounds = ints(DType::I32, &[4, 1], &[2, 9, 0, 2]);
        let third = 1.0 / 3.0;
        let y = [0.5, 0.5, 0.0, third, third, third, 0.0, 0.0, 0.0, nan, nan, 0.0];
        assert_near(&run("ragged_softmax", Attrs::new(), &[x, bounds]), &[4, 3], &y, 1e-7);
    }

    #[test]
    fn one_bound_for_each_row() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let ins = [(DType::F32, dims(&[2, 3])), (DType::I32, dims(&[2]))];
        assert!(infer("ragged_softmax", Attrs::new(), &ins).unwrap_err().to_string().contains("[2,1]"));
    }
}
