//! `window`: Hann, Hamming and Blackman windows.

use crate::util::{PLAIN, host_scalar};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, Tolerance, attr, choice, input};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use std::f64::consts::PI;

kiln_ir::op_names! {
    WINDOW = "window",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: WINDOW,
    doc: "A window of N = `size` values, with t = n/N for a periodic one, else n/(N−1): hann sin²(πt), hamming \
          25/46 − 21/46·cos 2πt, blackman 0.42 − 0.5·cos 2πt + 0.08·cos 4πt. A symmetric window of one value is 1.",
    inputs: &[input("size").on_host()],
    attrs: &[
        choice("kind", || "hann".into(), &["hann", "hamming", "blackman"]),
        attr("periodic", || Attr::Bool(true)),
        attr("to", || Attr::DType(DType::F32)),
    ],
    infer,
    eval,
    tolerance: Tolerance::Generated,
    problems,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.ty(0)?;
    let size = host_scalar(cx, 0, "size", None)?.unwrap_or(Dim::new(0));
    if let Some(n) = size.as_const().filter(|&n| n < 0) {
        return Err(OpError::Value(format!("a window of size {n}; wants 0 or more")));
    }
    Ok(vec![Fact::of(TensorType { dtype: cx.attrs.dtype("to")?, dims: vec![size] })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let n = shape.iter().product::<usize>();
    let span = if cx.attrs().bool("periodic")? { n } else { n.saturating_sub(1) };
    let kind = cx.attrs().str("kind")?;
    let at = |i: usize| {
        let turn = 2.0 * PI * i as f64 / span as f64;
        match kind {
            _ if span == 0 => 1.0,
            "hann" => libm::sin(turn / 2.0) * libm::sin(turn / 2.0),
            "hamming" => 25.0 / 46.0 - 21.0 / 46.0 * libm::cos(turn),
            _ => 0.42 - 0.5 * libm::cos(turn) + 0.08 * libm::cos(2.0 * turn),
        }
    };
    Ok(vec![cx.make(0, &shape, Elems::F((0..n).map(at).collect()))?])
}

fn problems(_: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for kind in ["hann", "hamming", "blackman"] {
        for (size, periodic, to) in [
            (10i64, true, DType::F32),
            (11, false, DType::F32),
            (1, false, DType::F32),
            (0, true, DType::F32),
            (513, true, DType::F16),
        ] {
            let attrs = Attrs::new().with("kind", kind).with("periodic", periodic).with("to", to);
            let size = made(Tensor::i64(&[], &[size]));
            out.push(Problem::of(
                &format!("{kind} {size:?} periodic={periodic}"),
                "window",
                attrs,
                [Some(size)],
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, infer, ints, run};

    fn window(kind: &str, periodic: bool, n: i64) -> Tensor {
        let attrs = Attrs::new().with("kind", kind).with("periodic", periodic);
        run("window", attrs, &[ints(DType::I64, &[], &[n])])
    }

    #[test]
    fn windows_of_four_and_five() {
        assert_near(&window("hann", true, 4), &[4], &[0.0, 0.5, 1.0, 0.5], 1e-7);
        assert_near(&window("hann", false, 5), &[5], &[0.0, 0.5, 1.0, 0.5, 0.0], 1e-7);
        let (low, half) = (4.0 / 46.0, 25.0 / 46.0);
        assert_near(&window("hamming", true, 4), &[4], &[low, half, 1.0, half], 1e-7);
        assert_near(&window("blackman", false, 5), &[5], &[0.0, 0.34, 1.0, 0.34, 0.0], 1e-7);
        assert_near(&window("hann", false, 1), &[1], &[1.0], 0.0);
        assert_near(&window("hann", true, 0), &[0], &[], 0.0);
    }

    #[test]
    fn an_unknown_size_is_a_symbol_and_a_negative_one_refused() {
        let facts = infer("window", Attrs::new(), &[(DType::I64, vec![])]).unwrap();
        assert_eq!(facts[0].ty.rank(), 1);
        assert!(facts[0].ty.dims[0] == Dim::device("t.size", None));
        let op = kiln_ir::Op::new("window", Attrs::new()).unwrap();
        assert!(op.eval(&[Some(ints(DType::I64, &[], &[-1]))]).unwrap_err().to_string().contains("-1"));
    }
}
