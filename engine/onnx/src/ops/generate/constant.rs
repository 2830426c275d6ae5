//! Constants, and tensors made from a shape.

use kiln_ir::{Attrs, DType, Elems, Tensor};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, dtype_of_number, unsupported};
use crate::model::Attribute;
use crate::ops::Operator;
use crate::tensor::TensorData;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Constant", &[1, 9, 11, 12, 13, 19, 21, 23, 24, 25], constant),
    Operator::new("ConstantOfShape", &[9, 20, 21, 23, 24, 25], constant_of_shape),
    Operator::new("EyeLike", &[9, 22], eye_like),
    Operator::new("Shape", &[1, 13, 15, 19, 21, 23, 24, 25], shape),
    Operator::new("Size", &[1, 13, 19, 21, 23, 24, 25], |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("size", x)?])
    }),
];

/// A weight named by the node's output; one element is a number of the model's text, which several nodes share.
fn constant(cx: &mut Cx<'_>) -> Outs {
    let node = cx.node();
    let name = node.require_output(0, "output")?;
    let mut values = node.attributes.iter();
    let (Some((attribute, value)), None) = (values.next(), values.next()) else {
        return Err(cx.bad_attr("value", "must be the only attribute, in any of its forms"));
    };
    cx.skip(attribute);
    let tensor = match value {
        Attribute::Tensor(data) => Some(cx.tensor(data)?),
        Attribute::Float(x) => Tensor::f32(&[], &[*x]),
        Attribute::Floats(x) => Tensor::f32(&[x.len()], x),
        Attribute::Int(x) => Tensor::i64(&[], &[*x]),
        Attribute::Ints(x) => Tensor::i64(&[x.len()], x),
        other => return unsupported(format!("attribute '{attribute}', which is {}", other.kind())),
    };
    match tensor {
        Some(tensor) if tensor.len() == 1 => Ok(vec![cx.constant(tensor)?]),
        Some(tensor) => Ok(vec![cx.named_weight(name, tensor)?]),
        None => unsupported(format!("attribute '{attribute}' of this size")),
    }
}

/// The element that `value` holds, as a scalar.
fn fill_value(cx: &mut Cx<'_>) -> Result<TensorId, Refusal> {
    let Some(data) = cx.attr::<&TensorData>("value")? else {
        return cx.num(DType::F32, 0.0);
    };
    let tensor = cx.tensor(data)?;
    match tensor.reshaped(&[]) {
        Some(scalar) => cx.constant(scalar),
        None => Err(cx.bad_attr("value", &format!("has shape {:?}: wanted one element", tensor.shape()))),
    }
}

fn constant_of_shape(cx: &mut Cx<'_>) -> Outs {
    let shape = cx.input(0)?;
    let value = fill_value(cx)?;
    Ok(vec![cx.bin("expand", value, shape)?])
}

fn eye_like(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let to = cx.dtype_attr("dtype")?.unwrap_or(cx.dtype(x));
    let attrs = Attrs::new().with("k", cx.int("k", 0)?).with("to", to);
    Ok(vec![cx.layer("eye_like", attrs, &[Some(x)])?])
}

fn shape(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("start", cx.int("start", 0)?).with("end", cx.int("end", i64::MAX)?);
    Ok(vec![cx.layer("shape", attrs, &[cx.opt(0)])?])
}

/// The element type that an attribute names by number, or f32.
pub(crate) fn output_datatype(cx: &Cx<'_>) -> Result<DType, Refusal> {
    dtype_of_number(cx.int("output_datatype", 1)?)
}

/// A tensor of one truth value in the shape of another.
pub(crate) fn all_true(cx: &mut Cx<'_>, like: TensorId) -> Result<TensorId, Refusal> {
    let yes = cx.elems(DType::Bool, &[], Elems::I(vec![1]))?;
    let shape = cx.shape(like)?;
    cx.bin("expand", yes, shape)
}
