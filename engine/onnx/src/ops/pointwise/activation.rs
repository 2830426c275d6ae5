//! Functions of one tensor, element by element.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Abs", &[1, 6, 13], |cx| map(cx, "abs")),
    Operator::new("Acos", &[7, 22], |cx| map(cx, "acos")),
    Operator::new("Acosh", &[9, 22], |cx| map(cx, "acosh")),
    Operator::new("Asin", &[7, 22], |cx| map(cx, "asin")),
    Operator::new("Asinh", &[9, 22], |cx| map(cx, "asinh")),
    Operator::new("Atan", &[7, 22], |cx| map(cx, "atan")),
    Operator::new("Atanh", &[9, 22], |cx| map(cx, "atanh")),
    Operator::new("Ceil", &[1, 6, 13], |cx| map(cx, "ceil")),
    Operator::new("Celu", &[12, 28], |cx| with(cx, "celu", &[("alpha", 1.0)])),
    Operator::new("Cos", &[7, 22], |cx| map(cx, "cos")),
    Operator::new("Cosh", &[9, 22], |cx| map(cx, "cosh")),
    Operator::new("Elu", &[1, 6, 22], |cx| with(cx, "elu", &[("alpha", 1.0)])),
    Operator::new("Erf", &[9, 13], |cx| map(cx, "erf")),
    Operator::new("Exp", &[1, 6, 13], |cx| map(cx, "exp")),
    Operator::new("Floor", &[1, 6, 13], |cx| map(cx, "floor")),
    Operator::new("Gelu", &[20], gelu),
    Operator::new("HardSigmoid", &[1, 6, 22], |cx| {
        with(cx, "hard_sigmoid", &[("alpha", 0.2), ("beta", 0.5)])
    }),
    Operator::new("HardSwish", &[14, 22], |cx| map(cx, "hard_swish")),
    Operator::new("Identity", &[1, 13, 14, 16, 19, 21, 23, 24, 25], |cx| {
        if cx.is_list(0) { cx.list_node() } else { map(cx, "identity") }
    }),
    Operator::new("IsInf", &[10, 20], is_inf),
    Operator::new("IsNaN", &[9, 13, 20], |cx| map(cx, "isnan")),
    Operator::new("LeakyRelu", &[1, 6, 16], |cx| with(cx, "leaky_relu", &[("alpha", 0.01)])),
    Operator::new("Log", &[1, 6, 13], |cx| map(cx, "log")),
    Operator::new("Mish", &[18, 22], |cx| map(cx, "mish")),
    Operator::new("Neg", &[1, 6, 13], |cx| map(cx, "neg")),
    Operator::new("PRelu", &[1, 6, 7, 9, 16], prelu),
    Operator::new("Reciprocal", &[1, 6, 13], |cx| map(cx, "recip")),
    Operator::new("Relu", &[1, 6, 13, 14], |cx| map(cx, "relu")),
    Operator::new("Round", &[11, 22], |cx| map(cx, "round")),
    Operator::new("Selu", &[1, 6, 22], selu),
    Operator::new("Shrink", &[9], |cx| with(cx, "shrink", &[("lambd", 0.5), ("bias", 0.0)])),
    Operator::new("Sigmoid", &[1, 6, 13], |cx| map(cx, "sigmoid")),
    Operator::new("Sign", &[9, 13], |cx| map(cx, "sign")),
    Operator::new("Sin", &[7, 22], |cx| map(cx, "sin")),
    Operator::new("Sinh", &[9, 22], |cx| map(cx, "sinh")),
    Operator::new("Softplus", &[1, 22], |cx| map(cx, "softplus")),
    Operator::new("Softsign", &[1, 22], |cx| map(cx, "softsign")),
    Operator::new("Sqrt", &[1, 6, 13], |cx| map(cx, "sqrt")),
    Operator::new("SwiGLU", &[28], swiglu),
    Operator::new("Swish", &[24], |cx| with(cx, "swish", &[("alpha", 1.0)])),
    Operator::new("Tan", &[7, 22], |cx| map(cx, "tan")),
    Operator::new("Tanh", &[1, 6, 13], |cx| map(cx, "tanh")),
    Operator::new("ThresholdedRelu", &[10, 22], |cx| with(cx, "thresholded_relu", &[("alpha", 1.0)])),
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
