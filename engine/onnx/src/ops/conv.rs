//! Convolutions.

mod causal;

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Conv", &[1, 11, 22], conv),
    Operator::new("ConvTranspose", &[1, 11, 22], conv_transpose),
    Operator::new("DeformConv", &[19, 22], deform_conv),
    Operator::new("Col2Im", &[18], col2im),
];

/// Pad mode of a node.
pub(crate) fn pad_mode(cx: &Cx<'_>) -> Result<&'static str, Refusal> {
    match cx.text("auto_pad", "NOTSET")? {
        "NOTSET" | "" => Ok("explicit"),
        "SAME_UPPER" => Ok("same_upper"),
        "SAME_LOWER" => Ok("same_lower"),
        "VALID" => Ok("valid"),
        other => {
            let reason = format!("is '{other}': wanted NOTSET, SAME_UPPER, SAME_LOWER or VALID");
            Err(cx.bad_attr("auto_pad", &reason))
        }
    }
}

/// Strides, pads and dilations, empty where the node leaves them out.
pub(crate) fn steps(cx: &Cx<'_>) -> Result<Attrs, Refusal> {
    let mut attrs = Attrs::new().with("pad_mode", pad_mode(cx)?);
    for name in ["strides", "pads", "dilations"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    Ok(attrs)
}

/// Refuses a `kernel_shape` that contradicts the weights.
fn kernel_shape(cx: &Cx<'_>, w: TensorId) -> Result<(), Refusal> {
    let Some(given) = cx.ints("kernel_shape")? else { return Ok(()) };
    let own = cx.ty(w).dims.get(2..).unwrap_or_default();
    let differ = own.iter().zip(&given).any(|(d, g)| d.as_const().is_some_and(|d| d != *g));
    if own.len() == given.len() && !differ {
        return Ok(());
    }
    Err(cx.bad_attr("kernel_shape", &format!("is {given:?}, where the weights are {}", cx.ty(w))))
}

/// A convolution of these tensors with the attributes of the node.
pub(crate) fn conv_of(
    cx: &mut Cx<'_>,
    x: TensorId,
    w: TensorId,
    bias: Option<TensorId>,
) -> Result<TensorId, Refusal> {
    kernel_shape(cx, w)?;
    let attrs = steps(cx)?.with("groups", cx.int("group", 1)?);
    cx.layer("conv", attrs, &[Some(x), Some(w), bias])
}

fn conv(cx: &mut Cx<'_>) -> Outs {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![conv_of(cx, x, w, cx.opt(2))?])
}

fn conv_transpose(cx: &mut Cx<'_>) -> Outs {
    kernel_shape(cx, cx.input(1)?)?;
    let attrs = steps(cx)?
        .with("groups", cx.int("group", 1)?)
        .with("output_padding", cx.ints("output_padding")?.unwrap_or_default())
        .with("output_shape", cx.ints("output_shape")?.unwrap_or_default());
    Ok(vec![cx.layer("conv_transpose", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}

fn deform_conv(cx: &mut Cx<'_>) -> Outs {
    kernel_shape(cx, cx.input(1)?)?;
    let mut attrs =
        Attrs::new().with("groups", cx.int("group", 1)?).with("offset_groups", cx.int("offset_group", 1)?);
    for name in ["strides", "pads", "dilations"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    let inputs = [cx.opt(0), cx.opt(1), cx.opt(2), cx.opt(3), cx.opt(4)];
    Ok(vec![cx.layer("deform_conv", attrs, &inputs)?])
}

fn col2im(cx: &mut Cx<'_>) -> Outs {
    let mut attrs = Attrs::new();
    for name in ["dilations", "pads", "strides"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    Ok(vec![cx.layer("col2im", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}
