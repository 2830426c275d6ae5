//! Functions of one tensor, element by element.

use kiln_ir::Attrs;

use super::Handler;
use crate::convert::{Cx, Outs, unsupported};

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] = &[
    ("Abs", |cx| map(cx, "abs")),
    ("Acos", |cx| map(cx, "acos")),
    ("Acosh", |cx| map(cx, "acosh")),
    ("Asin", |cx| map(cx, "asin")),
    ("Asinh", |cx| map(cx, "asinh")),
    ("Atan", |cx| map(cx, "atan")),
    ("Atanh", |cx| map(cx, "atanh")),
    ("Ceil", |cx| map(cx, "ceil")),
    ("Celu", |cx| with(cx, "celu", &[("alpha", 1.0)])),
    ("Cos", |cx| map(cx, "cos")),
    ("Cosh", |cx| map(cx, "cosh")),
    ("Elu", |cx| with(cx, "elu", &[("alpha", 1.0)])),
    ("Erf", |cx| map(cx, "erf")),
    ("Exp", |cx| map(cx, "exp")),
    ("Floor", |cx| map(cx, "floor")),
    ("Gelu", gelu),
    ("HardSigmoid", |cx| with(cx, "hard_sigmoid", &[("alpha", 0.2), ("beta", 0.5)])),
    ("HardSwish", |cx| map(cx, "hard_swish")),
    ("Identity", |cx| if cx.is_list(0) { cx.list_node() } else { map(cx, "identity") }),
    ("IsInf", is_inf),
    ("IsNaN", |cx| map(cx, "isnan")),
    ("LeakyRelu", |cx| with(cx, "leaky_relu", &[("alpha", 0.01)])),
    ("Log", |cx| map(cx, "log")),
    ("Mish", |cx| map(cx, "mish")),
    ("Neg", |cx| map(cx, "neg")),
    ("PRelu", prelu),
    ("Reciprocal", |cx| map(cx, "recip")),
    ("Relu", |cx| map(cx, "relu")),
    ("Round", |cx| map(cx, "round")),
    ("Selu", selu),
    ("Shrink", |cx| with(cx, "shrink", &[("lambd", 0.5), ("bias", 0.0)])),
    ("Sigmoid", |cx| map(cx, "sigmoid")),
    ("Sign", |cx| map(cx, "sign")),
    ("Sin", |cx| map(cx, "sin")),
    ("Sinh", |cx| map(cx, "sinh")),
    ("Softplus", |cx| map(cx, "softplus")),
    ("Softsign", |cx| map(cx, "softsign")),
    ("Sqrt", |cx| map(cx, "sqrt")),
    ("SwiGLU", swiglu),
    ("Swish", |cx| with(cx, "swish", &[("alpha", 1.0)])),
    ("Tan", |cx| map(cx, "tan")),
    ("Tanh", |cx| map(cx, "tanh")),
    ("ThresholdedRelu", |cx| with(cx, "thresholded_relu", &[("alpha", 1.0)])),
];

fn map(cx: &mut Cx<'_>, op: &str) -> Outs {
    let x = cx.input(0)?;
    Ok(vec![cx.un(op, x)?])
}

/// An operator whose float attributes have the same names here and there.
fn with(cx: &mut Cx<'_>, op: &str, names: &[(&str, f32)]) -> Outs {
    let mut attrs = Attrs::new();
    for &(name, default) in names {
        attrs.set(name, cx.float(name, default)?);
    }
    Ok(vec![cx.layer(op, attrs, &[cx.opt(0)])?])
}

fn swiglu(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("alpha", cx.float("alpha", 1.0)?);
    Ok(vec![cx.layer("swiglu", attrs, &[Some(cx.input(0)?), Some(cx.input(1)?)])?])
}

fn gelu(cx: &mut Cx<'_>) -> Outs {
    let approximate = cx.text("approximate", "none")?;
    Ok(vec![cx.layer("gelu", Attrs::new().with("approximate", approximate), &[cx.opt(0)])?])
}

fn is_inf(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new()
        .with("detect_negative", cx.flag("detect_negative", true)?)
        .with("detect_positive", cx.flag("detect_positive", true)?);
    Ok(vec![cx.layer("isinf", attrs, &[cx.opt(0)])?])
}

/// Defaults were given with four decimals before version 6.
fn selu(cx: &mut Cx<'_>) -> Outs {
    let (alpha, gamma) = if cx.version() < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
    with(cx, "selu", &[("alpha", alpha), ("gamma", gamma)])
}

/// Before version 7 a 1-D slope belongs to the channels; from then on it broadcasts as numpy does.
fn prelu(cx: &mut Cx<'_>) -> Outs {
    let (x, mut slope) = (cx.input(0)?, cx.input(1)?);
    if cx.rank(slope) > cx.rank(x) {
        return unsupported("a slope of more dimensions than the input");
    }
    if cx.version() < 7 {
        slope = cx.along(slope, 1, cx.rank(x))?;
    }
    Ok(vec![cx.bin("prelu", x, slope)?])
}
