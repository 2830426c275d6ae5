//! Arithmetic of two or more tensors, with the broadcasting of each version.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Add", &[1, 6, 7, 13, 14], |cx| two(cx, "add")),
    Operator::new("BitShift", &[11, 28], bit_shift),
    Operator::new("BitwiseAnd", &[18], |cx| two(cx, "bit_and")),
    Operator::new("BitwiseNot", &[18], |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("bit_not", x)?])
    }),
    Operator::new("BitwiseOr", &[18], |cx| two(cx, "bit_or")),
    Operator::new("BitwiseXor", &[18], |cx| two(cx, "bit_xor")),
    Operator::new("Clip", &[1, 6, 11, 12, 13], clip),
    Operator::new("Div", &[1, 6, 7, 13, 14], |cx| two(cx, "div")),
    Operator::new("Max", &[1, 6, 8, 12, 13], |cx| many(cx, "max")),
    Operator::new("Mean", &[1, 6, 8, 13], mean),
    Operator::new("Min", &[1, 6, 8, 12, 13], |cx| many(cx, "min")),
    Operator::new("Mod", &[10, 13, 28], modulo),
    Operator::new("Mul", &[1, 6, 7, 13, 14], |cx| two(cx, "mul")),
    Operator::new("Pow", &[1, 7, 12, 13, 15], pow),
    Operator::new("Sub", &[1, 6, 7, 13, 14], |cx| two(cx, "sub")),
    Operator::new("Sum", &[1, 6, 8, 13], |cx| many(cx, "add")),
];

/// The two inputs, the second in a shape that broadcasts as numpy does. Before version 7 the attribute `axis` says
/// where the dimensions of the second lie in the first.
pub(crate) fn operands(cx: &mut Cx<'_>) -> Result<(TensorId, TensorId), Refusal> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    // Without broadcasting the axis has no meaning.
    cx.skip("axis");
    if cx.version() >= 7 || !cx.flag("broadcast", false)? {
        return Ok((a, b));
    }
    let (rank_a, rank_b) = (cx.rank(a), cx.rank(b));
    let Some(last) = rank_a.checked_sub(rank_b) else {
        return unsupported("a second input of more dimensions than the first");
    };
    let axis = cx.int("axis", last as i64)?;
    let place = if axis < 0 { axis + rank_a as i64 } else { axis };
    let Some(place) = usize::try_from(place).ok().filter(|place| *place <= last) else {
        return Err(cx.bad_attr("axis", &format!("is {axis}: wanted 0 to {last}")));
    };
    let trailing: Vec<i64> = ((place + rank_b) as i64..rank_a as i64).collect();
    Ok((a, if trailing.is_empty() { b } else { cx.unsqueeze(b, &trailing)? }))
}

/// An operator of two tensors of one type.
pub(crate) fn two(cx: &mut Cx<'_>, op: &str) -> Outs {
    let (a, b) = operands(cx)?;
    Ok(vec![cx.bin(op, a, b)?])
}

/// An operator of any number of tensors, from the left.
fn fold(cx: &mut Cx<'_>, op: &str) -> Result<TensorId, Refusal> {
    let inputs = cx.inputs()?;
    let mut result = cx.input(0)?;
    for next in inputs.into_iter().skip(1) {
        result = cx.bin(op, result, next)?;
    }
    Ok(result)
}

fn many(cx: &mut Cx<'_>, op: &str) -> Outs {
    let result = fold(cx, op)?;
    Ok(vec![if cx.input_count() == 1 { cx.identity(result)? } else { result }])
}

fn mean(cx: &mut Cx<'_>) -> Outs {
    let sum = fold(cx, "add")?;
    let count = cx.input_count() as f64;
    Ok(vec![cx.bin_num("div", sum, count)?])
}

/// `fmod` = 1 takes the sign of the dividend, else of the divisor.
fn modulo(cx: &mut Cx<'_>) -> Outs {
    let op = if cx.flag("fmod", false)? { "rem" } else { "mod" };
    two(cx, op)
}

/// The result has the type of the base; an integer base with a float exponent is raised in f32.
fn pow(cx: &mut Cx<'_>) -> Outs {
    let (base, exponent) = operands(cx)?;
    let (own, other) = (cx.dtype(base), cx.dtype(exponent));
    if own.is_float() || !other.is_float() {
        let exponent = cx.cast(exponent, own)?;
        return Ok(vec![cx.bin("pow", base, exponent)?]);
    }
    let (base, exponent) = (cx.cast(base, DType::F32)?, cx.cast(exponent, DType::F32)?);
    let power = cx.bin("pow", base, exponent)?;
    Ok(vec![cx.cast(power, own)?])
}

fn bit_shift(cx: &mut Cx<'_>) -> Outs {
    match cx.text("direction", "")? {
        "LEFT" => two(cx, "shl"),
        "RIGHT" => two(cx, "shr"),
        other => Err(cx.bad_attr("direction", &format!("is '{other}': wanted LEFT or RIGHT"))),
    }
}

/// Bounds are attributes before version 11, then inputs. Constant bounds of floats make one layer.
fn clip(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    if cx.version() < 11 {
        let (min, max) = (cx.float("min", f32::MIN)?, cx.float("max", f32::MAX)?);
        return Ok(vec![cx.layer("clip", Attrs::new().with("min", min).with("max", max), &[Some(x)])?]);
    }
    let (min, max) = (cx.opt(1), cx.opt(2));
    let known = |t: Option<TensorId>, absent: f64| match t {
        Some(t) => cx.value(t).and_then(kiln_ir::Tensor::scalar_f64),
        None => Some(absent),
    };
    let bounds = known(min, f64::NEG_INFINITY).zip(known(max, f64::INFINITY));
    if let Some((min, max)) = bounds.filter(|(min, max)| min <= max && cx.dtype(x).is_float()) {
        return Ok(vec![cx.layer("clip", Attrs::new().with("min", min).with("max", max), &[Some(x)])?]);
    }
    let mut y = x;
    for (op, bound) in [("max", min), ("min", max)] {
        if let Some(bound) = bound {
            y = cx.bin(op, y, bound)?;
        }
    }
    Ok(vec![if y == x { cx.identity(x)? } else { y }])
}
