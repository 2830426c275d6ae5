//! `argmax`, `argmin`: where the greatest and the least elements are.

use crate::util::{PLAIN, for_each_group, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{AttrDef, OpDef, OpName, attr};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

const ATTRS: &[AttrDef] = &[
    attr("axis", || Attr::Int(0)),
    attr("keep_dims", || Attr::Bool(true)),
    attr("select_last", || Attr::Bool(false)),
];

kiln_ir::op_names! {
    ARGMAX = "argmax",
    ARGMIN = "argmin",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: ARGMAX,
        doc: "The i64 index, along one axis, of the greatest element: the first of equals, or the last with \
              `select_last`. NaN counts as greatest. `keep_dims` leaves a dimension of 1.",
        attrs: ATTRS,
        infer,
        eval: |cx| eval(cx, |a, b| a > b, |a, b| a > b),
        problems: |rng| problems(ARGMAX, rng),
        ..PLAIN
    },
    OpDef {
        name: ARGMIN,
        doc: "The i64 index, along one axis, of the least element: the first of equals, or the last with \
              `select_last`. NaN counts as least. `keep_dims` leaves a dimension of 1.",
        attrs: ATTRS,
        infer,
        eval: |cx| eval(cx, |a, b| a < b, |a, b| a < b),
        problems: |rng| problems(ARGMIN, rng),
        ..PLAIN
    },
];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let ok = |d| !matches!(d, DType::F8E4M3 | DType::I4 | DType::Bool);
    cx.check_dtype(0, ok, "f32, f16, bf16, i8, u8, i32 or i64")?;
    let x = cx.dims(0)?;
    let axis = cx.axis("axis", x.len())?;
    if x[axis].is(0) {
        return Err(cx.bad_shape(0, &format!("at least one element along axis {axis}")));
    }
    let mut dims = x.to_vec();
    if cx.attrs.bool("keep_dims")? {
        dims[axis] = Dim::new(1);
    } else {
        dims.remove(axis);
    }
    Ok(vec![Fact::of(TensorType { dtype: DType::I64, dims })])
}

fn eval(cx: &EvalCx<'_>, f: fn(f64, f64) -> bool, i: fn(i64, i64) -> bool) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let axis = kiln_ir::infer::normalize_axis(cx.attrs().int("axis")?, x.shape().len(), "axis")?;
    let last = cx.attrs().bool("select_last")?;
    let elems = x.elems();
    let mut out = Vec::new();
    for_each_group(x.shape(), &mask_of(axis, x.shape().len()), |at| {
        let better = |a: usize, b: usize| match &elems {
            Elems::F(v) => (v[a].is_nan() && !v[b].is_nan()) || f(v[a], v[b]),
            Elems::I(v) => i(v[a], v[b]),
        };
        let mut best = 0;
        for k in 1..at.len() {
            // A NaN is beaten by nothing but, with `select_last`, by a later one.
            if if last { !better(at[best], at[k]) } else { better(at[k], at[best]) } {
                best = k;
            }
        }
        out.push(best as i64);
    });
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::I(out))?])
}

fn problems(name: OpName, rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], i64, bool, bool)] = &[
        ("odd sizes", &[3, 5, 7], 1, true, false),
        ("last axis, last of equals", &[4, 33], -1, false, true),
        ("first axis", &[6, 3], 0, false, false),
        ("one long row", &[1, 2049], 1, true, true),
        ("a row of several blocks", &[1, 20_003], 1, true, false),
        ("short columns of eights", &[3, 5, 16], 1, false, true),
        ("columns of eights", &[3, 70, 40], 1, false, true),
        ("columns of several blocks", &[5003, 8], 0, false, true),
        ("batch 0", &[0, 3], 1, true, false),
        ("vector", &[9], 0, false, false),
    ];
    let mut out = Vec::new();
    for &(label, shape, axis, keep, last) in cases {
        let attrs = Attrs::new().with("axis", axis).with("keep_dims", keep).with("select_last", last);
        for t in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I8, DType::U8, DType::I64] {
            let x = rng.tensor(t, shape);
            out.push(Problem::of(&format!("{label} {t}"), name, attrs.clone(), [Some(x)]));
        }
    }
    for last in [false, true] {
        let x = rng.edge_floats(DType::F32, 12);
        out.push(Problem::of("NaN", name, Attrs::new().with("select_last", last), [Some(x)]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, run, run_all};

    #[test]
    fn first_or_last_of_equals() {
        let x = f32s(&[2, 3], &[5.0, 1.0, 5.0, 2.0, 2.0, 1.0]);
        let go = |name: &str, last: bool| {
            let attrs = Attrs::new().with("axis", -1i64).with("select_last", last).with("keep_dims", false);
            let y = run(name, attrs, std::slice::from_ref(&x));
            assert_eq!((y.dtype(), y.shape()), (DType::I64, &[2][..]));
            y.to_i64()
        };
        assert_eq!((go("argmax", false), go("argmax", true)), (vec![0, 0], vec![2, 1]));
        assert_eq!((go("argmin", false), go("argmin", true)), (vec![1, 2], vec![1, 2]));
    }

    #[test]
    fn nan_wins_both_ways() {
        let x = f32s(&[5], &[1.0, f64::NAN, 9.0, f64::NAN, -9.0]);
        for name in ["argmax", "argmin"] {
            assert_eq!(run(name, Attrs::new(), std::slice::from_ref(&x)).to_i64(), [1], "{name}");
            let last = Attrs::new().with("select_last", true);
            assert_eq!(run(name, last, std::slice::from_ref(&x)).to_i64(), [3], "{name}");
        }
    }

    #[test]
    fn large_integers_are_compared_exactly_and_nothing_has_no_greatest() {
        let x = ints(DType::I64, &[2], &[i64::MAX - 1, i64::MAX]);
        assert_eq!(run("argmax", Attrs::new(), &[x]).to_i64(), [1]);
        assert!(run_all("argmax", Attrs::new(), &[Some(f32s(&[0, 2], &[]))]).is_err());
    }
}
