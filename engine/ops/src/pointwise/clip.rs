//! `relu`, `clip`, `prelu`, `isinf`: pieces cut by comparisons. Exact, and for integers too.

use crate::pointwise;
use crate::pointwise::unary::check;
use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{BinOp, Builder, CmpOp, Expr, Reg, UnOp};
use kiln_ir::op::{OpDef, Tolerance, attr, input};
use kiln_ir::problem::{Problem, Rng};

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const NUMBERS: &[DType] =
    &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32, DType::I64];

kiln_ir::op_names! {
    RELU = "relu",
    CLIP = "clip",
    PRELU = "prelu",
    ISINF = "isinf",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: RELU,
        doc: "max(x, 0); NaN stays NaN.",
        infer: pointwise::infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(|_, t| {
            let (mut b, x) = load(t)?;
            let zero = b.num(0.0, x);
            let y = b.bin(BinOp::Max, x, zero);
            Ok(b.finish(y, t[0]))
        }),
        problems: |rng| pointwise::problems(RELU, 1, NUMBERS, rng),
        ..PLAIN
    },
    OpDef {
        name: CLIP,
        doc: "min(max(x, min), max); NaN stays NaN. For integers the bounds are cut to the range of the type and \
              rounded inwards.",
        attrs: &[attr("min", || Attr::Float(f64::NEG_INFINITY)), attr("max", || Attr::Float(f64::INFINITY))],
        infer: pointwise::infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(clip),
        problems: clip_problems,
        ..PLAIN
    },
    OpDef {
        name: PRELU,
        doc: "x where x ≥ 0, else slope·x. The slope broadcasts to x.",
        inputs: &[input("x"), input("slope")],
        infer: pointwise::infer_like_first,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(prelu),
        tolerance: Tolerance::Elementwise,
        problems: prelu_problems,
        ..PLAIN
    },
    OpDef {
        name: ISINF,
        doc: "Is the element −∞ (if `detect_negative`) or +∞ (if `detect_positive`)? Gives bool.",
        attrs: &[attr("detect_negative", || Attr::Bool(true)), attr("detect_positive", || Attr::Bool(true))],
        infer: pointwise::infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(isinf),
        problems: isinf_problems,
        ..PLAIN
    },
];

fn load(t: &[DType]) -> Result<(Builder, Reg), OpError> {
    check(0, t, NUMBERS)?;
    let mut b = Builder::new(t);
    let x = b.load(0);
    Ok((b, x))
}

fn clip(attrs: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    let (mut b, mut x) = load(t)?;
    let bounds = [("min", BinOp::Max, attrs.float("min")?), ("max", BinOp::Min, attrs.float("max")?)];
    for (name, op, bound) in bounds {
        if bound.is_nan() {
            let (found, wanted) = ("NaN".into(), "a number".into());
            return Err(OpError::Attr { name: name.into(), found, wanted });
        }
        let least = bound == f64::NEG_INFINITY && op == BinOp::Max;
        let greatest = bound == f64::INFINITY && op == BinOp::Min;
        if least || greatest {
            continue;
        }
        let bound = match t[0].int_range() {
            // `as` saturates at the range of i64.
            Some((lo, hi)) => {
                let inwards = if op == BinOp::Max { bound.ceil() } else { bound.floor() };
                b.int((inwards as i64).clamp(lo, hi), b.ty(x))
            }
            None => b.num(bound, x),
        };
        x = b.bin(op, x, bound);
    }
    Ok(b.finish(x, t[0]))
}

fn prelu(_: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    let (mut b, x) = load(t)?;
    if t[1] != t[0] {
        return Err(OpError::DType { input: 1, found: t[1], wanted: format!("{}, as input 0 is", t[0]) });
    }
    let slope = b.load(1);
    let scaled = b.bin(BinOp::Mul, slope, x);
    let zero = b.num(0.0, x);
    let below = b.cmp(CmpOp::Lt, x, zero);
    let y = b.select(below, scaled, x);
    Ok(b.finish(y, t[0]))
}

fn isinf(attrs: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    check(0, t, FLOATS)?;
    let mut b = Builder::new(t);
    let x = b.load(0);
    let infinite = b.un(UnOp::IsInf, x);
    let side = match (attrs.bool("detect_negative")?, attrs.bool("detect_positive")?) {
        (true, true) => return Ok(b.finish(infinite, DType::Bool)),
        (false, false) => {
            let no = b.int(0, DType::Bool);
            return Ok(b.finish(no, DType::Bool));
        }
        (true, false) => CmpOp::Lt,
        (false, true) => CmpOp::Gt,
    };
    let zero = b.num(0.0, x);
    let side = b.cmp(side, x, zero);
    let y = b.bin(BinOp::And, infinite, side);
    Ok(b.finish(y, DType::Bool))
}

fn clip_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (lo, hi) in [(-1.0, 1.5), (f64::NEG_INFINITY, 0.5), (0.25, f64::INFINITY), (2.0, -2.0)] {
        let op = kiln_ir::problem::op("clip", Attrs::new().with("min", lo).with("max", hi));
        out.extend(pointwise::problems_of(&op, 1, NUMBERS, rng));
    }
    let wide = Attrs::new().with("min", -1e12).with("max", 1e12);
    let x = rng.i64s(&[3], &[i64::MIN, 1 << 33, i64::MAX]);
    out.push(Problem::of("beyond 32 bits", "clip", wide, [Some(x)]));
    out
}

fn prelu_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let op = kiln_ir::problem::op("prelu", Attrs::new());
    let shapes: &[(&str, &[usize], &[usize])] = &[
        ("odd sizes", &[3, 7, 5], &[3, 7, 5]),
        ("a slope for each channel", &[2, 3, 5, 1], &[3, 1, 1]),
        ("one slope", &[7, 5], &[]),
        ("empty", &[0, 3], &[3]),
    ];
    for &t in NUMBERS {
        for (label, x, slope) in shapes {
            let ins = [rng.tensor(t, x), rng.tensor(t, slope)];
            out.push(Problem::new(&format!("{label} {t}"), op.clone(), ins));
        }
        if t.is_float() {
            let ins = [rng.edge_floats(t, 19), rng.edge_floats(t, 19)];
            out.push(Problem::new(&format!("special values {t}"), op.clone(), ins));
        }
    }
    out
}

fn isinf_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (neg, pos) in [(true, true), (true, false), (false, true), (false, false)] {
        let attrs = Attrs::new().with("detect_negative", neg).with("detect_positive", pos);
        let op = kiln_ir::problem::op("isinf", attrs);
        out.extend(pointwise::problems_of(&op, 1, FLOATS, rng));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run};
    use kiln_ir::dim::Dim;

    #[test]
    fn relu_keeps_nan_and_takes_integers() {
        let y = run("relu", Attrs::new(), &[f32s(&[4], &[-1.0, 2.0, f64::NAN, f64::NEG_INFINITY])]);
        assert_near(&y, &[4], &[0.0, 2.0, f64::NAN, 0.0], 0.0);
        assert_eq!(run("relu", Attrs::new(), &[ints(DType::I8, &[2], &[-5, 5])]).to_i64(), [0, 5]);
    }

    #[test]
    fn clip_by_each_bound() {
        let x = f32s(&[4], &[-3.0, 0.5, 3.0, f64::NAN]);
        let clip = |lo: f64, hi: f64| {
            run("clip", Attrs::new().with("min", lo).with("max", hi), std::slice::from_ref(&x))
        };
        assert_near(&clip(-1.0, 1.0), &[4], &[-1.0, 0.5, 1.0, f64::NAN], 0.0);
        assert_near(&clip(f64::NEG_INFINITY, 1.0), &[4], &[-3.0, 0.5, 1.0, f64::NAN], 0.0);
        // With min above max, all become max.
        assert_near(&clip(2.0, -2.0), &[4], &[-2.0, -2.0, -2.0, f64::NAN], 0.0);
        let y = run(
            "clip",
            Attrs::new().with("min", -0.5).with("max", 1e30),
            &[ints(DType::I64, &[3], &[i64::MIN, 0, i64::MAX])],
        );
        assert_eq!(y.to_i64(), [0, 0, i64::MAX]);
    }

    #[test]
    fn prelu_stretches_only_the_slope() {
        let (x, s) = (f32s(&[2, 2], &[-1.0, 2.0, -3.0, -4.0]), f32s(&[2], &[0.5, 0.25]));
        assert_near(&run("prelu", Attrs::new(), &[x, s]), &[2, 2], &[-0.5, 2.0, -1.5, -1.0], 0.0);
        let t = |n: i64| (DType::F32, vec![Dim::new(n)]);
        assert!(infer("prelu", Attrs::new(), &[t(1), t(3)]).is_err());
    }

    #[test]
    fn isinf_by_sign() {
        let x = f32s(&[4], &[f64::INFINITY, f64::NEG_INFINITY, 1.0, f64::NAN]);
        let only = |n: bool, p: bool| {
            let attrs = Attrs::new().with("detect_negative", n).with("detect_positive", p);
            run("isinf", attrs, std::slice::from_ref(&x)).to_i64()
        };
        assert_eq!(only(true, true), [1, 1, 0, 0]);
        assert_eq!(only(true, false), [0, 1, 0, 0]);
        assert_eq!(only(false, true), [1, 0, 0, 0]);
        assert_eq!(only(false, false), [0, 0, 0, 0]);
    }
}
