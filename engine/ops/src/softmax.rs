//! `softmax`, `log_softmax`, `hardmax` along one axis.

pub mod ragged;

use crate::reduce::ReduceOp;
use crate::util::{PLAIN, REAL, for_each_group, is_real, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{AttrDef, OpDef, OpName, Roles, Tolerance, attr};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

const ATTRS: &[AttrDef] = &[attr("axis", || Attr::Int(-1))];

kiln_ir::op_names! {
    SOFTMAX = "softmax",
    LOG_SOFTMAX = "log_softmax",
    HARDMAX = "hardmax",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: SOFTMAX,
        doc: "eˣ/Σeˣ along one axis, shifted by the greatest so that nothing overflows. A row with NaN or +∞, or of \
              −∞ only, gives NaN. Computed in f32 at least.",
        attrs: ATTRS,
        infer,
        eval: |cx| eval(cx, softmax),
        tolerance: Tolerance::Conditioned,
        problems: |rng| problems(SOFTMAX, rng),
        roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: LOG_SOFTMAX,
        doc: "x − ln Σeˣ along one axis, shifted by the greatest so that nothing overflows. Computed in f32 at least.",
        attrs: ATTRS,
        infer,
        eval: |cx| eval(cx, log_softmax),
        tolerance: Tolerance::Conditioned,
        problems: |rng| problems(LOG_SOFTMAX, rng),
        ..PLAIN
    },
    OpDef {
        name: HARDMAX,
        doc: "1 at the first greatest element along one axis (NaN counts as greatest), 0 elsewhere.",
        attrs: ATTRS,
        infer,
        eval: |cx| eval(cx, hardmax),
        problems: |rng| problems(HARDMAX, rng),
        ..PLAIN
    },
];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    let x = cx.ty(0)?;
    cx.axis("axis", x.rank())?;
    Ok(vec![Fact::of(x.clone())])
}

fn eval(cx: &EvalCx<'_>, f: fn(&[f64]) -> Vec<f64>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let axis = normalize_axis(cx.attrs().int("axis")?, x.shape().len(), "axis")?;
    let v = x.to_f64();
    let mut out = vec![0.0; v.len()];
    for_each_group(x.shape(), &mask_of(axis, x.shape().len()), |at| {
        let row: Vec<f64> = at.iter().map(|&i| v[i]).collect();
        for (&i, y) in at.iter().zip(f(&row)) {
            out[i] = y;
        }
    });
    Ok(vec![cx.make(0, x.shape(), Elems::F(out))?])
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let top = ReduceOp::Max.of_floats(row);
    let e: Vec<f64> = row.iter().map(|&x| libm::exp(x - top)).collect();
    let sum = ReduceOp::Sum.of_floats(&e);
    e.into_iter().map(|e| e / sum).collect()
}

fn log_softmax(row: &[f64]) -> Vec<f64> {
    let top = ReduceOp::Max.of_floats(row);
    let sum = row.iter().map(|&x| libm::exp(x - top)).fold(0.0, |a, b| a + b);
    row.iter().map(|&x| (x - top) - libm::log(sum)).collect()
}

fn hardmax(row: &[f64]) -> Vec<f64> {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if !row[best].is_nan() && (x.is_nan() || *x > row[best]) {
            best = i;
        }
    }
    (0..row.len()).map(|i| if i == best { 1.0 } else { 0.0 }).collect()
}

fn problems(name: OpName, rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], i64)] = &[
        ("odd sizes, last axis", &[3, 5, 7], -1),
        ("middle axis", &[3, 33, 5], 1),
        ("first axis", &[6, 3], 0),
        ("one long row", &[1, 2049], 1),
        ("rows of a vocabulary", &[3, 20_003], -1),
        ("one row of many blocks", &[1, 70_001], 1),
        ("channels, planes of vectors", &[2, 37, 8, 16], 1),
        ("channels, odd planes", &[2, 37, 7, 9], 1),
        ("a long axis before few columns", &[1, 5001, 3], 1),
        ("a long first axis", &[2000, 8], 0),
        ("rows of one", &[4, 1], 1),
        ("batch 0", &[0, 3], 1),
        ("empty rows", &[3, 0], -1),
    ];
    let mut out = Vec::new();
    let mut add = |label: String, axis: i64, x: Tensor| {
        out.push(Problem::of(&label, name, Attrs::new().with("axis", axis), [Some(x)]));
    };
    for &(label, shape, axis) in cases {
        for t in [DType::F32, DType::F16, DType::BF16] {
            add(format!("{label} {t}"), axis, rng.tensor_in(t, shape, -6.0, 6.0, 1));
        }
    }
    add("large values".into(), -1, rng.tensor_in(DType::F32, &[2, 9], -1e4, 1e4, 1));
    add("edge values".into(), -1, rng.edge_floats(DType::F32, 12));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, run, run_all};

    #[test]
    fn the_classic_row() {
        let x = f32s(&[1, 3], &[-1.0, 0.0, 1.0]);
        let want = [0.09003057, 0.24472847, 0.66524096];
        assert_near(&run("softmax", Attrs::new(), std::slice::from_ref(&x)), &[1, 3], &want, 1e-7);
        let want = [-2.4076059, -1.407606, -0.407606];
        assert_near(&run("log_softmax", Attrs::new(), std::slice::from_ref(&x)), &[1, 3], &want, 1e-6);
        assert_near(&run("hardmax", Attrs::new(), &[x]), &[1, 3], &[0.0, 0.0, 1.0], 0.0);
    }

    #[test]
    fn large_numbers_do_not_overflow_and_axes_count_from_the_end() {
        let x = f32s(&[2, 2], &[10000.0, 10000.0, 10001.0, 10000.0]);
        let first = Attrs::new().with("axis", -2i64);
        let s = 1.0 / (1.0 + std::f64::consts::E);
        assert_near(&run("softmax", first, std::slice::from_ref(&x)), &[2, 2], &[s, 0.5, 1.0 - s, 0.5], 1e-7);
        let last = run("log_softmax", Attrs::new(), &[x]);
        let l = (1.0 - s).ln();
        assert_near(&last, &[2, 2], &[-(2f64.ln()), -(2f64.ln()), l, l - 1.0], 1e-6);
    }

    #[test]
    fn hardmax_takes_the_first_of_equals_and_nan_before_all() {
        let x = f32s(&[2, 4], &[3.0, 1.0, 3.0, 2.0, 5.0, f64::NAN, 9.0, f64::NAN]);
        let want = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        assert_near(&run("hardmax", Attrs::new(), &[x]), &[2, 4], &want, 0.0);
    }

    #[test]
    fn rows_without_a_finite_greatest_give_nan_and_scalars_have_no_axis() {
        let x = f32s(&[2], &[f64::NEG_INFINITY; 2]);
        assert_near(&run("softmax", Attrs::new(), &[x]), &[2], &[f64::NAN; 2], 0.0);
        assert!(run_all("softmax", Attrs::new(), &[Some(f32s(&[], &[1.0]))]).is_err());
    }
}
