//! Operators on codes: what they do to real values, between a dequantization and a quantization.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::matmul::integer::{factors, per_row};
use crate::ops::quantize::dynamic;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("com.microsoft.DynamicQuantizeMatMul", &[1], dynamic_quantize_matmul),
    Operator::new("com.microsoft.MatMulIntegerToFloat", &[1], matmul_to_float),
    Operator::new("com.microsoft.QGemm", &[1], qgemm),
    Operator::new("com.microsoft.QLinearAdd", &[1], |cx| two(cx, "add")),
    Operator::new("com.microsoft.QLinearConcat", &[1], concat),
    Operator::new("com.microsoft.QLinearLeakyRelu", &[1], |cx| {
        let alpha = cx.float("alpha", 0.01)?;
        one(cx, |cx, x| cx.layer("leaky_relu", Attrs::new().with("alpha", alpha), &[Some(x)]))
    }),
    Operator::new("com.microsoft.QLinearMul", &[1], |cx| two(cx, "mul")),
    Operator::new("com.microsoft.QLinearSigmoid", &[1], |cx| one(cx, |cx, x| cx.un("sigmoid", x))),
    Operator::new("com.microsoft.QLinearSoftmax", &[1], softmax),
    Operator::new("com.microsoft.QLinearWhere", &[1], choose),
];

/// A scale or zero point of one element as a scalar, so that it adds no dimension.
fn one_element(cx: &mut Cx<'_>, v: TensorId) -> Result<TensorId, Refusal> {
    if cx.ty(v).volume().is(1) { cx.as_scalar(v) } else { Ok(v) }
}

/// The real values of codes, with the scale at input `i + 1` and the zero point, if there is one, at `i + 2`.
pub(crate) fn real_of(cx: &mut Cx<'_>, i: usize) -> Result<TensorId, Refusal> {
    let (x, scale) = (cx.input(i)?, cx.input(i + 1)?);
    let zero = cx.opt(i + 2);
    real(cx, x, scale, zero)
}

fn real(cx: &mut Cx<'_>, x: TensorId, scale: TensorId, zero: Option<TensorId>) -> Result<TensorId, Refusal> {
    let scale = one_element(cx, scale)?;
    let zero = zero.map(|zero| one_element(cx, zero)).transpose()?;
    cx.layer("dequantize", Attrs::new().with("to", DType::F32), &[Some(x), Some(scale), zero])
}

/// Codes of type `to` of real values, with the scale at input `i` and the zero point, if there is one, at `i + 1`.
pub(crate) fn codes_of(cx: &mut Cx<'_>, y: TensorId, i: usize, to: DType) -> Result<TensorId, Refusal> {
    let scale = cx.input(i)?;
    let scale = one_element(cx, scale)?;
    let zero = cx.opt(i + 1).map(|zero| one_element(cx, zero)).transpose()?;
    cx.layer("quantize", Attrs::new().with("to", to), &[Some(y), Some(scale), zero])
}

/// Inputs are x with scale and zero point, then those of the result.
pub(crate) fn one(
    cx: &mut Cx<'_>,
    f: impl FnOnce(&mut Cx<'_>, TensorId) -> Result<TensorId, Refusal>,
) -> Outs {
    let x = real_of(cx, 0)?;
    let y = f(cx, x)?;
    let to = cx.dtype(cx.input(0)?);
    Ok(vec![codes_of(cx, y, 3, to)?])
}

/// Inputs are a and b with scales and zero points, then those of the result.
fn two(cx: &mut Cx<'_>, op: &str) -> Outs {
    let (a, b) = (real_of(cx, 0)?, real_of(cx, 3)?);
    let y = cx.bin(op, a, b)?;
    let to = cx.dtype(cx.input(0)?);
    Ok(vec![codes_of(cx, y, 6, to)?])
}

fn choose(cx: &mut Cx<'_>) -> Outs {
    let condition = cx.input(0)?;
    let (a, b) = (real_of(cx, 1)?, real_of(cx, 4)?);
    let y = cx.layer("select", Attrs::new(), &[Some(condition), Some(a), Some(b)])?;
    let to = cx.dtype(cx.input(1)?);
    Ok(vec![codes_of(cx, y, 7, to)?])
}

/// Inputs are scale and zero point of the result, then each part with its own.
fn concat(cx: &mut Cx<'_>) -> Outs {
    let axis = cx.require_attr::<i64>("axis")?;
    let n = cx.input_count();
    if n < 5 || n % 3 != 2 {
        return unsupported(format!("{n} inputs: wanted two and three for each part"));
    }
    let parts = (2..n).step_by(3).map(|i| real_of(cx, i)).collect::<Result<Vec<_>, _>>()?;
    let y = cx.concat(&parts, axis)?;
    let to = cx.dtype(cx.input(1)?);
    Ok(vec![codes_of(cx, y, 0, to)?])
}

/// Over one axis where `opset` is 13 or more, else over everything from the axis on.
fn softmax(cx: &mut Cx<'_>) -> Outs {
    let (opset, axis) = (cx.require_attr::<i64>("opset")?, cx.int("axis", -1)?);
    one(cx, |cx, x| {
        let rank = cx.rank(x);
        let axis = cx.axis(axis, rank)?;
        if opset >= 13 || axis + 1 == rank {
            return cx.layer("softmax", Attrs::new().with("axis", axis as i64), &[Some(x)]);
        }
        let rows = cx.flatten(x, axis)?;
        let y = cx.layer("softmax", Attrs::new().with("axis", -1), &[Some(rows)])?;
        cx.reshape_like(y, x)
    })
}

/// The exact sums of products of two matrices of codes, as f32.
fn sums(
    cx: &mut Cx<'_>,
    a: (TensorId, Option<TensorId>),
    b: (TensorId, Option<TensorId>),
) -> Result<TensorId, Refusal> {
    let a_zero = a.1.map(|zero| one_element(cx, zero)).transpose()?;
    let b_zero = b.1.map(|zero| one_element(cx, zero)).transpose()?;
    let (a, b) = factors(cx, (a.0, a_zero), (b.0, b_zero))?;
    let product = cx.bin("matmul", a, b)?;
    cx.cast(product, DType::F32)
}

/// Sums times both scales, plus a bias.
fn to_float(
    cx: &mut Cx<'_>,
    sums: TensorId,
    scales: [TensorId; 2],
    bias: Option<TensorId>,
) -> Result<TensorId, Refusal> {
    let (a, b) = (one_element(cx, scales[0])?, one_element(cx, scales[1])?);
    let (to, both) = (cx.dtype(scales[0]), cx.bin("mul", a, b)?);
    let both = cx.cast(both, DType::F32)?;
    let mut y = cx.bin("mul", sums, both)?;
    if let Some(bias) = bias {
        let bias = cx.cast(bias, DType::F32)?;
        y = cx.bin("add", y, bias)?;
    }
    cx.cast(y, to)
}

fn matmul_to_float(cx: &mut Cx<'_>) -> Outs {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let scales = [cx.input(2)?, cx.input(3)?];
    let a_zero = cx.opt(4).map(|zero| per_row(cx, zero, a)).transpose()?;
    let sums = sums(cx, (a, a_zero), (b, cx.opt(5)))?;
    Ok(vec![to_float(cx, sums, scales, cx.opt(6))?])
}

fn dynamic_quantize_matmul(cx: &mut Cx<'_>) -> Outs {
    let (a, b, b_scale) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let [codes, scale, zero] = dynamic(cx, a)?;
    let sums = sums(cx, (codes, Some(zero)), (b, cx.opt(3)))?;
    Ok(vec![to_float(cx, sums, [scale, b_scale], cx.opt(4))?])
}

/// alpha·(A·B + C) in units of both scales; codes where the result has a zero point, else floats.
fn qgemm(cx: &mut Cx<'_>) -> Outs {
    let matrix = |cx: &mut Cx<'_>, i: usize, flag: &str| {
        let x = cx.input(i)?;
        let turned = cx.flag(flag, false)?;
        if turned { cx.transpose(x, vec![1, 0]) } else { Ok::<_, Refusal>(x) }
    };
    let (a, b) = (matrix(cx, 0, "transA")?, matrix(cx, 3, "transB")?);
    let (a_zero, b_zero) = (cx.opt(2), cx.opt(5));
    let a_zero = a_zero.map(|zero| one_element(cx, zero)).transpose()?;
    let b_zero = b_zero.map(|zero| one_element(cx, zero)).transpose()?;
    let (a, b) = factors(cx, (a, a_zero), (b, b_zero))?;
    let mut sum = cx.bin("matmul", a, b)?;
    if let Some(c) = cx.opt(6) {
        sum = cx.bin("add", sum, c)?;
    }
    let alpha = cx.float("alpha", 1.0)?;
    let (a_scale, b_scale) = (cx.input(1)?, cx.input(4)?);
    let (a_scale, b_scale) = (one_element(cx, a_scale)?, one_element(cx, b_scale)?);
    let mut scale = cx.bin("mul", a_scale, b_scale)?;
    if alpha != 1.0 {
        scale = cx.bin_num("mul", scale, alpha)?;
    }
    let sum = cx.cast(sum, DType::F32)?;
    let y = cx.bin("mul", sum, scale)?;
    match (cx.opt(7), cx.opt(8)) {
        (None, None) => Ok(vec![y]),
        (Some(_), Some(zero)) => {
            let to = cx.dtype(zero);
            Ok(vec![codes_of(cx, y, 7, to)?])
        }
        _ => unsupported("one of y_scale and y_zero_point without the other"),
    }
}
