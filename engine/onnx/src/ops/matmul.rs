//! Matrix products and what is built on them.

pub(crate) mod integer;

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Det", &[11, 22], |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("det", x)?])
    }),
    Operator::new("Einsum", &[12, 28], einsum),
    Operator::new("Gemm", &[1, 6, 7, 9, 11, 13], gemm),
    Operator::new("MatMul", &[1, 9, 13], |cx| {
        let (a, b) = (cx.input(0)?, cx.input(1)?);
        Ok(vec![cx.bin("matmul", a, b)?])
    }),
];

fn einsum(cx: &mut Cx<'_>) -> Outs {
    let equation = cx.require_attr::<&str>("equation")?;
    let inputs = cx.all();
    Ok(vec![cx.layer("einsum", Attrs::new().with("equation", equation), &inputs)?])
}

fn gemm(cx: &mut Cx<'_>) -> Outs {
    Ok(vec![gemm_of(cx)?])
}

/// alpha·A·B + beta·C, with factors of 1 left out.
pub(crate) fn gemm_of(cx: &mut Cx<'_>) -> Result<TensorId, Refusal> {
    let attrs =
        Attrs::new().with("trans_a", cx.flag("transA", false)?).with("trans_b", cx.flag("transB", false)?);
    // The third input broadcasts in any case.
    cx.skip("broadcast");
    let (alpha, beta) = (cx.float("alpha", 1.0)?, cx.float("beta", 1.0)?);
    let product = cx.layer("matmul", attrs, &[cx.opt(0), cx.opt(1)])?;
    let product = scaled(cx, product, alpha)?;
    match cx.opt(2) {
        Some(c) if beta != 0.0 => {
            let c = scaled(cx, c, beta)?;
            cx.bin("add", product, c)
        }
        _ => Ok(product),
    }
}

pub(crate) fn scaled(cx: &mut Cx<'_>, x: TensorId, factor: f64) -> Result<TensorId, Refusal> {
    if factor == 1.0 { Ok(x) } else { cx.bin_num("mul", x, factor) }
}
