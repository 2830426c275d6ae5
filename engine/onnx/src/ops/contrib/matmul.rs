//! Products of floats with a transposition, a factor or an activation.

mod blocks;

use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::contrib::pointwise::fused;
use crate::ops::conv::conv_of;
use crate::ops::matmul::{gemm_of, scaled};

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("com.microsoft.FusedConv", &[1], fused_conv),
    Operator::new("com.microsoft.FusedGemm", &[1], fused_gemm),
    Operator::new("com.microsoft.FusedMatMul", &[1], fused_matmul),
    Operator::new("com.microsoft.TransposeMatMul", &[1], fused_matmul),
];

/// A factor of a product: first its leading dimension goes in front of the last one, then the last two change places.
/// Vectors stay as they are.
fn factor(cx: &mut Cx<'_>, x: TensorId, batch: &str, last: &str) -> Result<TensorId, Refusal> {
    let rank = cx.rank(x);
    let mut perm: Vec<i64> = (0..rank as i64).collect();
    if cx.flag(batch, false)? {
        if rank < 2 {
            return unsupported(format!("attribute '{batch}' of an input of {rank} dimensions"));
        }
        perm[..rank - 1].rotate_left(1);
    }
    if cx.flag(last, false)? && rank >= 2 {
        perm.swap(rank - 2, rank - 1);
    }
    let same = perm.iter().enumerate().all(|(i, p)| i as i64 == *p);
    if same { Ok(x) } else { cx.transpose(x, perm) }
}

fn fused_matmul(cx: &mut Cx<'_>) -> Outs {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (a, b) = (factor(cx, a, "transBatchA", "transA")?, factor(cx, b, "transBatchB", "transB")?);
    let alpha = cx.float("alpha", 1.0)?;
    let product = cx.bin("matmul", a, b)?;
    Ok(vec![scaled(cx, product, alpha)?])
}

fn fused_gemm(cx: &mut Cx<'_>) -> Outs {
    let y = gemm_of(cx)?;
    let name = cx.text("activation", "")?;
    let mut params = Vec::new();
    for attribute in ["activation_alpha", "activation_beta", "activation_gamma"] {
        params.extend(cx.attr::<f32>(attribute)?.map(f64::from));
    }
    Ok(vec![fused(cx, y, name, &params)?])
}

/// The convolution, plus Z, through the activation.
fn fused_conv(cx: &mut Cx<'_>) -> Outs {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let mut y = conv_of(cx, x, w, cx.opt(2))?;
    if let Some(z) = cx.opt(3) {
        y = cx.bin("add", y, z)?;
    }
    let (name, params) = (cx.text("activation", "")?, cx.floats("activation_params")?);
    Ok(vec![fused(cx, y, name, &params)?])
}
