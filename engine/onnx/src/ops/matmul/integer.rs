//! Products of integers with zero points, in i32, and their requantization.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;
use crate::ops::conv::conv_of;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("ConvInteger", &[10], conv_integer),
    Operator::new("MatMulInteger", &[10], matmul_integer),
    Operator::new("QLinearConv", &[10], qlinear_conv),
    Operator::new("QLinearMatMul", &[10, 21], qlinear_matmul),
];

/// `x` less its zero point, in i32; as it is if it has none.
fn centred(cx: &mut Cx<'_>, x: TensorId, zero: Option<TensorId>) -> Result<TensorId, Refusal> {
    let Some(zero) = zero else { return Ok(x) };
    let (x, zero) = (cx.cast(x, DType::I32)?, cx.cast(zero, DType::I32)?);
    cx.bin("sub", x, zero)
}

/// Two factors, both narrow or both i32.
pub(crate) fn factors(
    cx: &mut Cx<'_>,
    (a, a_zero): (TensorId, Option<TensorId>),
    (b, b_zero): (TensorId, Option<TensorId>),
) -> Result<(TensorId, TensorId), Refusal> {
    let (mut a, mut b) = (centred(cx, a, a_zero)?, centred(cx, b, b_zero)?);
    if a_zero.is_some() || b_zero.is_some() {
        a = cx.cast(a, DType::I32)?;
        b = cx.cast(b, DType::I32)?;
    }
    Ok((a, b))
}

/// A value a row of a matrix as a column, so that it broadcasts; others pass unchanged.
pub(crate) fn per_row(cx: &mut Cx<'_>, v: TensorId, matrix: TensorId) -> Result<TensorId, Refusal> {
    let one = cx.rank(v) != 1 || cx.ty(v).volume().is(1) || cx.rank(matrix) < 2;
    if one { Ok(v) } else { cx.unsqueeze(v, &[1]) }
}

fn matmul_integer(cx: &mut Cx<'_>) -> Outs {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let a_zero = cx.opt(2).map(|zero| per_row(cx, zero, a)).transpose()?;
    let (a, b) = factors(cx, (a, a_zero), (b, cx.opt(3)))?;
    Ok(vec![cx.bin("matmul", a, b)?])
}

fn conv_integer(cx: &mut Cx<'_>) -> Outs {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let w_zero = cx.opt(3).map(|zero| cx.along(zero, 0, cx.rank(w))).transpose()?;
    let (x, w) = factors(cx, (x, cx.opt(2)), (w, w_zero))?;
    Ok(vec![conv_of(cx, x, w, None)?])
}

/// The exact sum in f32, times the product of the factors' scales, quantized.
fn requantize(
    cx: &mut Cx<'_>,
    sum: TensorId,
    scales: [TensorId; 2],
    (scale, zero): (TensorId, TensorId),
) -> Result<TensorId, Refusal> {
    let sum = cx.cast(sum, DType::F32)?;
    let (a, b) = (cx.cast(scales[0], DType::F32)?, cx.cast(scales[1], DType::F32)?);
    let both = cx.bin("mul", a, b)?;
    let real = cx.bin("mul", sum, both)?;
    let scale = cx.cast(scale, DType::F32)?;
    let to = cx.dtype(zero);
    cx.layer("quantize", Attrs::new().with("to", to), &[Some(real), Some(scale), Some(zero)])
}

fn qlinear_matmul(cx: &mut Cx<'_>) -> Outs {
    let (a, b) = (cx.input(0)?, cx.input(3)?);
    let (a_scale, a_zero) = (cx.input(1)?, cx.input(2)?);
    let (a_scale, a_zero) = (per_row(cx, a_scale, a)?, per_row(cx, a_zero, a)?);
    let (b_scale, b_zero) = (cx.input(4)?, cx.input(5)?);
    let (left, right) = factors(cx, (a, Some(a_zero)), (b, Some(b_zero)))?;
    let sum = cx.bin("matmul", left, right)?;
    let (scale, zero) = (cx.input(6)?, cx.input(7)?);
    let (scale, zero) = (per_row(cx, scale, sum)?, per_row(cx, zero, sum)?);
    Ok(vec![requantize(cx, sum, [a_scale, b_scale], (scale, zero))?])
}

/// The bias is i32 in units of the product of the factors' scales.
fn qlinear_conv(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    Ok(vec![qlinear_conv_of(cx, x)?])
}

/// The convolution of an image in the place of the first input.
pub(crate) fn qlinear_conv_of(cx: &mut Cx<'_>, x: TensorId) -> Result<TensorId, Refusal> {
    let (x_scale, x_zero) = (cx.input(1)?, cx.input(2)?);
    let (w, w_scale, w_zero) = (cx.input(3)?, cx.input(4)?, cx.input(5)?);
    let rank = cx.rank(x);
    let w_zero = cx.along(w_zero, 0, rank)?;
    let w_scale = cx.along(w_scale, 1, rank)?;
    let (left, right) = factors(cx, (x, Some(x_zero)), (w, Some(w_zero)))?;
    let mut sum = conv_of(cx, left, right, None)?;
    if let Some(bias) = cx.opt(8) {
        let bias = cx.along(bias, 1, rank)?;
        sum = cx.bin("add", sum, bias)?;
    }
    let (scale, zero) = (cx.input(6)?, cx.input(7)?);
    requantize(cx, sum, [x_scale, w_scale], (scale, zero))
}
