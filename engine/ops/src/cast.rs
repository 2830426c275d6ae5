//! `cast` and `identity`.

pub mod bitcast;

use crate::pointwise;
use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::{Builder, CmpOp, Expr, UnOp};
use kiln_ir::infer::{Fact, InferCx, Value};
use kiln_ir::op::{Movement, OpDef, Roles, attr, required};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    CAST = "cast",
    IDENTITY = "identity",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: CAST,
        doc: "The elements converted to the type `to`. Float to integer truncates toward zero (outside the range of \
              i32, of i64 for i64, it saturates; narrower types then wrap; NaN gives 0). Integer to narrower integer \
              wraps. To bool is x ≠ 0. To a narrower float rounds to nearest even; f8e4m3 then saturates at ±448 or, \
              without `saturate`, gives NaN.",
        attrs: &[required("to", || Attr::DType(DType::F32)), attr("saturate", || Attr::Bool(true))],
        infer: infer_cast,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(cast_expr),
        problems: cast_problems,
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: IDENTITY,
        doc: "The input as it is.",
        infer: |cx| Ok(vec![Fact { ty: cx.ty(0)?.clone(), value: cx.fact(0).and_then(|f| f.value.clone()) }]),
        eval: |cx: &EvalCx<'_>| Ok(vec![cx.input(0)?.clone()]),
        ranges: None,
        expr: Some(|_, t| {
            let mut b = Builder::new(t);
            let x = b.load(0);
            Ok(b.finish(x, t[0]))
        }),
        problems: identity_problems,
        roles: Roles { movement: Movement::Identity, ..Roles::NONE },
        ..PLAIN
    },
];

fn infer_cast(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let mut out = pointwise::infer(cx)?;
    let holds_dims = |t| matches!(t, DType::I32 | DType::I64);
    if let Some(Value::Dims(d)) = cx.fact(0).and_then(|f| f.value.as_ref())
        && holds_dims(out[0].ty.dtype)
    {
        out[0] = Fact::contents(out[0].ty.clone(), d.clone());
    }
    Ok(out)
}

/// The largest magnitude that still rounds to the largest f8e4m3: half a step above it, the tie going to even.
const F8_LIMIT: f64 = 464.0;

fn cast_expr(attrs: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    let to = attrs.dtype("to")?;
    let mut b = Builder::new(t);
    let mut x = b.load(0);
    if to == DType::F8E4M3 && !attrs.bool("saturate")? {
        x = b.cast(x, DType::F32);
        let size = b.un(UnOp::Abs, x);
        let limit = b.num(F8_LIMIT, x);
        let fits = b.cmp(CmpOp::Le, size, limit);
        let nan = b.num(f64::NAN, x);
        x = b.select(fits, x, nan);
    }
    Ok(b.finish(x, to))
}

fn cast_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for from in DType::ALL {
        for to in DType::ALL {
            let op = kiln_ir::problem::op("cast", Attrs::new().with("to", to));
            let x = rng.tensor_in(from, &[3, 5, 7], -100.0, 100.0, 100);
            out.push(Problem::new(&format!("{from} to {to}"), op.clone(), [x]));
            if let Some(x) = edges(from) {
                out.push(Problem::new(&format!("edges of {from} to {to}"), op.clone(), [x]));
            }
            if from == to {
                out.push(Problem::new(&format!("empty {from}"), op.clone(), [rng.tensor(from, &[0, 3])]));
                out.push(Problem::new(&format!("scalar {from}"), op, [rng.tensor(from, &[])]));
            }
        }
    }
    out
}

/// Values around limits, ties and zero.
fn edges(t: DType) -> Option<Tensor> {
    let elems = match (t.int_range(), t.is_float()) {
        (Some((lo, hi)), _) => {
            let mut v = vec![lo, lo + 1, -1, 0, 1, hi - 1, hi];
            v.extend([127, 128, 255, 256, 2049, 1 << 24, (1 << 24) + 1, 1 << 31, (1 << 40) + 5]);
            Elems::I(v.into_iter().filter(|x| (lo..=hi).contains(x)).collect())
        }
        (None, true) => Elems::F(vec![
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            17.0,
            19.0,
            127.5,
            -129.0,
            255.9,
            448.0,
            464.0,
            480.0,
            65504.0,
            1e-9,
            2049.0,
            3e9,
            -3e9,
            1e19,
            -1e19,
            3.4e38,
            1e-40,
        ]),
        _ => Elems::I(vec![0, 1, 1]),
    };
    let n = match &elems {
        Elems::F(v) => v.len(),
        Elems::I(v) => v.len(),
    };
    Tensor::from_elems(t, &[n], &elems)
}

fn identity_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = pointwise::problems(IDENTITY, 1, &DType::ALL, rng);
    {
        let op = kiln_ir::problem::op("identity", Attrs::new());
        let x = rng.i64s(&[3], &[i64::MIN, 1 << 40, i64::MAX]);
        out.push(Problem::new("beyond 32 bits", op, [x]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use kiln_ir::dim::Dim;
    use kiln_ir::op::Op;
    use kiln_ir::ty::TensorType;

    fn cast(x: Tensor, to: DType) -> Tensor {
        run("cast", Attrs::new().with("to", to), &[x])
    }

    #[test]
    fn floats_truncate_saturate_and_wrap() {
        let x = f32s(&[6], &[-1.7, 2.9, 3e9, -3e9, f64::NAN, 300.0]);
        assert_eq!(cast(x.clone(), DType::I32).to_i64(), [-1, 2, i32::MAX as i64, i32::MIN as i64, 0, 300]);
        assert_eq!(cast(x.clone(), DType::I64).to_i64(), [-1, 2, 3_000_000_000, -3_000_000_000, 0, 300]);
        assert_eq!(cast(x, DType::U8).to_i64(), [255, 2, 255, 0, 0, 44]);
        let x = f32s(&[5], &[-9.0, -8.0, 7.0, 8.0, 15.0]);
        assert_eq!(cast(x, DType::I4).to_i64(), [7, -8, 7, -8, -1]);
    }

    #[test]
    fn truth_is_being_other_than_zero() {
        let x = f32s(&[5], &[0.0, -0.0, 1e-40, f64::NAN, -3.0]);
        assert_eq!(cast(x, DType::Bool).to_i64(), [0, 0, 1, 1, 1]);
        assert_eq!(cast(ints(DType::I64, &[3], &[0, 1 << 32, -1]), DType::Bool).to_i64(), [0, 1, 1]);
        assert_eq!(cast(ints(DType::Bool, &[2], &[0, 1]), DType::F16).to_f64(), [0.0, 1.0]);
    }

    #[test]
    fn integers_wrap_and_round_once() {
        assert_eq!(cast(ints(DType::I64, &[2], &[300, -200]), DType::I8).to_i64(), [44, 56]);
        // Between two f32, just above the middle.
        let x = ints(DType::I64, &[1], &[(1 << 60) + (1 << 36) + 1]);
        assert_eq!(cast(x, DType::F32).to_f64(), [((1i64 << 60) + (1 << 37)) as f64]);
    }

    #[test]
    fn f8_saturates_or_gives_nan() {
        let x = f32s(&[4], &[464.0, 465.0, f64::NEG_INFINITY, 17.0]);
        assert_eq!(cast(x.clone(), DType::F8E4M3).to_f64(), [448.0, 448.0, -448.0, 16.0]);
        let y = run("cast", Attrs::new().with("to", DType::F8E4M3).with("saturate", false), &[x]);
        assert_near(&y, &[4], &[448.0, f64::NAN, f64::NAN, 16.0], 0.0);
    }

    #[test]
    fn contents_go_through() {
        let f = Fact::contents(TensorType::new(DType::I64, [2]), vec![Dim::host("n"), Dim::new(3)]);
        for (op, t) in [("cast", DType::I32), ("identity", DType::I64)] {
            let attrs = if op == "cast" { Attrs::new().with("to", t) } else { Attrs::new() };
            let out = Op::new(op, attrs).unwrap().infer(&[Some(f.clone())], "t").unwrap();
            assert_eq!((out[0].ty.dtype, out[0].as_dims()), (t, f.as_dims()));
        }
    }
}
