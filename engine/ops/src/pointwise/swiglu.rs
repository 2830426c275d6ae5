//! `swiglu`: a gated activation of two tensors.

use crate::pointwise;
use crate::pointwise::unary::check;
use crate::util::{PLAIN, REALS};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{BinOp, Builder, Expr, UnOp};
use kiln_ir::infer::{Fact, InferCx, differ, unify};
use kiln_ir::op::{OpDef, Tolerance, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::ty::{TensorType, dims_text};

kiln_ir::op_names! {
    SWIGLU = "swiglu",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: SWIGLU,
    doc: "a·sigmoid(alpha·a)·b of two tensors of the same shape; nothing is stretched.",
    inputs: &[input("a"), input("b")],
    attrs: &[attr("alpha", || Attr::Float(1.0))],
    infer,
    eval: pointwise::eval,
    expr: Some(expression),
    tolerance: Tolerance::Transcendental,
    problems,
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let out = pointwise::infer(cx)?;
    let (a, b) = (cx.dims(0)?, cx.dims(1)?);
    let same = a.len() == b.len() && !a.iter().zip(b).any(|(a, b)| differ(a, b));
    if !same {
        let wanted = "the same shape: nothing is stretched".into();
        return Err(OpError::Mismatch { a: dims_text(a), b: dims_text(b), wanted });
    }
    let dims = a.iter().zip(b).map(|(a, b)| unify(a, b).unwrap_or(a.clone())).collect();
    Ok(vec![Fact::of(TensorType { dtype: out[0].ty.dtype, dims })])
}

fn expression(attrs: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    (0..t.len()).try_for_each(|i| check(i, t, &REALS))?;
    if let [a, b] = t
        && a != b
    {
        return Err(OpError::DType { input: 1, found: *b, wanted: a.name().into() });
    }
    let mut e = Builder::new(t);
    let (a, b) = (e.load(0), e.load(1));
    let alpha = e.num(attrs.float("alpha")?, a);
    let one = e.num(1.0, a);
    let x = e.bin(BinOp::Mul, alpha, a);
    let x = e.un(UnOp::Neg, x);
    let x = e.un(UnOp::Exp, x);
    let below = e.bin(BinOp::Add, one, x);
    let gate = e.bin(BinOp::Div, a, below);
    let y = e.bin(BinOp::Mul, gate, b);
    Ok(e.finish(y, t[0]))
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for t in REALS {
        for (label, shape) in
            [("odd sizes", &[3, 5, 7][..]), ("scalar", &[]), ("empty", &[2, 0, 3]), ("wide", &[1030])]
        {
            for alpha in [1.0, 1.702, -0.5, 0.0] {
                let ins = [rng.tensor(t, shape), rng.tensor(t, shape)].map(Some);
                let attrs = Attrs::new().with("alpha", alpha);
                out.push(Problem::of(&format!("{label} {t} alpha={alpha}"), "swiglu", attrs, ins));
            }
        }
        let large = [rng.tensor_in(t, &[64], -120.0, 120.0, 1), rng.tensor(t, &[64])].map(Some);
        out.push(Problem::of(&format!("large {t}"), "swiglu", Attrs::new(), large));
        let edges = [rng.edge_floats(t, 40), rng.tensor(t, &[40])].map(Some);
        out.push(Problem::of(&format!("edges {t}"), "swiglu", Attrs::new(), edges));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, run};

    #[test]
    fn the_gate_is_a_swish() {
        let (a, b) = (f32s(&[3], &[0.0, 1.0, -2.0]), f32s(&[3], &[5.0, 2.0, 3.0]));
        let y = run("swiglu", Attrs::new(), &[a.clone(), b.clone()]);
        assert_near(&y, &[3], &[0.0, 2.0 / (1.0 + (-1f64).exp()), -6.0 / (1.0 + 2f64.exp())], 1e-6);
        let y = run("swiglu", Attrs::new().with("alpha", 0.0), &[a, b]);
        assert_near(&y, &[3], &[0.0, 1.0, -3.0], 1e-6);
    }

    #[test]
    fn nothing_is_stretched() {
        let of = |a: &[i64], b: &[i64]| {
            let dims = |v: &[i64]| v.iter().map(|&n| n.into()).collect::<Vec<kiln_ir::Dim>>();
            infer("swiglu", Attrs::new(), &[(DType::F32, dims(a)), (DType::F32, dims(b))])
        };
        assert!(of(&[2, 3], &[2, 3]).is_ok());
        for (a, b) in [(&[2, 3][..], &[3][..]), (&[2, 3], &[1, 3])] {
            assert!(of(a, b).unwrap_err().to_string().contains("same shape"));
        }
    }
}
