//! Convolutions.

use kiln_ir::{Attrs, TensorId};

use super::Handler;
use crate::convert::{Cx, Outs, Refusal};

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] =
    &[("Conv", conv), ("ConvTranspose", conv_transpose), ("DeformConv", deform_conv)];

/// How padding is chosen.
pub(super) fn pad_mode(cx: &Cx<'_>) -> Result<&'static str, Refusal> {
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
pub(super) fn steps(cx: &Cx<'_>) -> Result<Attrs, Refusal> {
    let mut attrs = Attrs::new().with("pad_mode", pad_mode(cx)?);
    for name in ["strides", "pads", "dilations"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    Ok(attrs)
}

/// A convolution of these tensors with the attributes of the node.
pub(super) fn conv_of(
    cx: &mut Cx<'_>,
    x: TensorId,
    w: TensorId,
    bias: Option<TensorId>,
) -> Result<TensorId, Refusal> {
    let attrs = steps(cx)?.with("groups", cx.int("group", 1)?);
    cx.layer("conv", attrs, &[Some(x), Some(w), bias])
}

fn conv(cx: &mut Cx<'_>) -> Outs {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![conv_of(cx, x, w, cx.opt(2))?])
}

fn conv_transpose(cx: &mut Cx<'_>) -> Outs {
    let attrs = steps(cx)?
        .with("groups", cx.int("group", 1)?)
        .with("output_padding", cx.ints("output_padding")?.unwrap_or_default())
        .with("output_shape", cx.ints("output_shape")?.unwrap_or_default());
    Ok(vec![cx.layer("conv_transpose", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}

fn deform_conv(cx: &mut Cx<'_>) -> Outs {
    let mut attrs =
        Attrs::new().with("groups", cx.int("group", 1)?).with("offset_groups", cx.int("offset_group", 1)?);
    for name in ["strides", "pads", "dilations"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    let inputs = [cx.opt(0), cx.opt(1), cx.opt(2), cx.opt(3), cx.opt(4)];
    Ok(vec![cx.layer("deform_conv", attrs, &inputs)?])
}
