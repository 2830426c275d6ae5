//! Activations with what is fused in front of them.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("com.microsoft.BiasAdd", &[1], bias_add),
    Operator::new("com.microsoft.BiasGelu", &[1], |cx| gelu(cx, "none")),
    Operator::new("com.microsoft.BiasSplitGelu", &[1], bias_split_gelu),
    Operator::new("com.microsoft.FastGelu", &[1], |cx| gelu(cx, "tanh")),
    Operator::new("com.microsoft.Gelu", &[1], |cx| gelu(cx, "none")),
    Operator::new("com.microsoft.QuickGelu", &[1], quick_gelu),
];

/// The sum of the inputs that are there, through a GELU.
fn gelu(cx: &mut Cx<'_>, approximate: &str) -> Outs {
    let mut x = cx.input(0)?;
    if let Some(bias) = cx.opt(1) {
        x = cx.bin("add", x, bias)?;
    }
    Ok(vec![cx.layer("gelu", Attrs::new().with("approximate", approximate), &[Some(x)])?])
}

/// x·sigmoid(alpha·x).
fn quick_gelu(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.702)?;
    let scaled = cx.bin_num("mul", x, alpha)?;
    let gate = cx.un("sigmoid", scaled)?;
    Ok(vec![cx.bin("mul", x, gate)?])
}

fn bias_add(cx: &mut Cx<'_>) -> Outs {
    let (x, bias, skip) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let sum = cx.bin("add", x, bias)?;
    Ok(vec![cx.bin("add", sum, skip)?])
}

/// The first half of the channels, times the GELU of the second.
fn bias_split_gelu(cx: &mut Cx<'_>) -> Outs {
    let (x, bias) = (cx.input(0)?, cx.input(1)?);
    let sum = cx.bin("add", x, bias)?;
    let last = cx.rank(sum).saturating_sub(1);
    let width = cx.dim(sum, last).and_then(|d| d.as_const()).filter(|d| d % 2 == 0);
    let Some(width) = width else {
        return unsupported("a last dimension that is not known to be even");
    };
    let left = cx.slice(sum, last as i64, 0, width / 2)?;
    let right = cx.slice(sum, last as i64, width / 2, width)?;
    let gate = cx.layer("gelu", Attrs::new().with("approximate", "none"), &[Some(right)])?;
    Ok(vec![cx.bin("mul", left, gate)?])
}

/// The activation that a product or convolution names, with its parameters in the order of the operator of that name.
pub(crate) fn fused(cx: &mut Cx<'_>, x: TensorId, name: &str, params: &[f64]) -> Result<TensorId, Refusal> {
    let (op, names): (&str, &[&str]) = match name {
        "" => return Ok(x),
        "Relu" => ("relu", &[]),
        "Sigmoid" => ("sigmoid", &[]),
        "Tanh" => ("tanh", &[]),
        "LeakyRelu" => ("leaky_relu", &["alpha"]),
        "HardSigmoid" => ("hard_sigmoid", &["alpha", "beta"]),
        "Clip" => ("clip", &["min", "max"]),
        other => return unsupported(format!("fused activation '{other}'")),
    };
    if params.len() != names.len() {
        let found = format!("'{name}' with {} parameters: wanted {}", params.len(), names.len());
        return Err(cx.bad_attr("activation", &format!("is {found}")));
    }
    let mut attrs = Attrs::new();
    for (name, value) in names.iter().zip(params) {
        attrs.set(name, *value);
    }
    cx.layer(op, attrs, &[Some(x)])
}
