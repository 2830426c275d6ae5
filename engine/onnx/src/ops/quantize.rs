//! Quantization and its inverse, per tensor, per axis and in blocks.

use kiln_ir::{Attrs, DType, Elems};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, grids, named_type, range, unsupported};
use crate::ops::Operator;
use crate::ops::reduce::over;
use crate::tensor::DataType;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("DequantizeLinear", &[10, 13, 19, 21, 23, 24, 25, 28], dequantize),
    Operator::new("DynamicQuantizeLinear", &[11], dynamic_quantize),
    Operator::new("QuantizeLinear", &[10, 13, 19, 21, 23, 24, 25, 28], quantize),
    Operator::new("com.microsoft.DequantizeLinear", &[1], dequantize),
    Operator::new("com.microsoft.QuantizeLinear", &[1], quantize),
];

/// A tensor with its scale and zero point in shapes that broadcast.
struct Scaled {
    x: TensorId,
    scale: TensorId,
    zero: Option<TensorId>,
    /// The shape to return to, if blocks split an axis.
    whole: Option<TensorId>,
}

fn scaled(cx: &mut Cx<'_>) -> Result<Scaled, Refusal> {
    let (x, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let block = cx.int("block_size", 0)?;
    // Without meaning for one scale.
    cx.skip("axis");
    let rank = cx.rank(x);
    if block != 0 {
        return blocked(cx, (x, scale, zero), block);
    }
    if cx.rank(scale) == 0 || rank == 0 {
        return Ok(Scaled { x, scale, zero, whole: None });
    }
    let axis = cx.int("axis", 1)?;
    // A scale for the whole tensor may be [1], and then the axis means nothing.
    let axis = if cx.ty(scale).volume().is(1) { 0 } else { cx.axis(axis, rank)? };
    let scale = cx.along(scale, axis, rank)?;
    let zero = zero.map(|zero| cx.along(zero, axis, rank)).transpose()?;
    Ok(Scaled { x, scale, zero, whole: None })
}

/// Splits the axis into blocks by one more dimension.
fn blocked(
    cx: &mut Cx<'_>,
    (x, scale, zero): (TensorId, TensorId, Option<TensorId>),
    block: i64,
) -> Result<Scaled, Refusal> {
    let rank = cx.rank(x);
    let axis = cx.int("axis", 1)?;
    let axis = cx.axis(axis, rank)?;
    let size = cx.dim(x, axis).and_then(|d| d.as_const());
    if block < 1 || size.is_some_and(|size| size % block != 0) {
        return unsupported(format!("blocks of {block} along an axis that they do not divide"));
    }
    if cx.rank(scale) != rank {
        return Err(
            cx.bad_attr("block_size", &format!("is {block}: wanted 0 unless scales have {rank} dimensions"))
        );
    }
    let whole = cx.shape(x)?;
    let (outer, blocks) = (cx.dims(x, 0..axis)?, cx.dims(scale, axis..axis + 1)?);
    let (size, inner) = (cx.i64s(&[block])?, cx.dims(x, axis + 1..rank)?);
    let parts = [outer, blocks, size, inner];
    let split = cx.join(&parts)?;
    let x = cx.reshape_to(x, split)?;
    let place = [axis as i64 + 1];
    let scale = cx.unsqueeze(scale, &place)?;
    let zero = zero.map(|zero| cx.unsqueeze(zero, &place)).transpose()?;
    Ok(Scaled { x, scale, zero, whole: Some(whole) })
}

fn whole(cx: &mut Cx<'_>, y: TensorId, whole: Option<TensorId>) -> Outs {
    Ok(vec![match whole {
        Some(shape) => cx.reshape_to(y, shape)?,
        None => y,
    }])
}

/// The type is that of the zero point, else the attribute's, else u8.
fn quantize(cx: &mut Cx<'_>) -> Outs {
    let scale_of = cx.input(1)?;
    // The attribute's number 0 stands for no type.
    let typed = |name| Ok::<_, Refusal>(if cx.int(name, 0)? == 0 { None } else { cx.dtype_attr(name)? });
    let given = typed("output_dtype")?;
    let precision = typed("precision")?;
    if precision.is_some_and(|p| p != DType::F32 && p != cx.dtype(scale_of)) {
        return unsupported(format!("quantization in {} (precision)", precision.unwrap_or(DType::F32)));
    }
    let held = cx.held_type(2).or(named_type(cx.node(), "output_dtype").filter(|_| cx.opt(2).is_none()));
    let to = cx.opt(2).map(|zero| cx.dtype(zero)).or(given).unwrap_or(DType::U8);
    if to != DType::F8E4M3 {
        cx.skip("saturate");
    } else if !cx.flag("saturate", true)? {
        return unsupported("quantization to FLOAT8E4M3FN without saturation");
    }
    let Scaled { mut x, scale, zero, whole: shape } = scaled(cx)?;
    if let Some(of) = held.filter(|of| grids::held(*of).is_some()) {
        let (x, scale) = (cx.cast(x, DType::F32)?, cx.cast(scale, DType::F32)?);
        let mut exact = cx.bin("div", x, scale)?;
        if let Some(zero) = zero {
            let zero = cx.cast(zero, DType::F32)?;
            exact = cx.bin("add", exact, zero)?;
        }
        let y = cx.on_grid(exact, of)?;
        return whole(cx, y, shape);
    }
    if !cx.dtype(x).is_float() {
        x = cx.cast(x, DType::F32)?;
    }
    let y = match held.and_then(range) {
        Some(range) => to_range(cx, (x, scale, zero), range, to)?,
        None => cx.layer("quantize", Attrs::new().with("to", to), &[Some(x), Some(scale), zero])?,
    };
    whole(cx, y, shape)
}

/// saturate(round(x/scale) + zero) for a type of at most 16 bits that is held in a wider one.
fn to_range(
    cx: &mut Cx<'_>,
    (x, scale, zero): (TensorId, TensorId, Option<TensorId>),
    (low, high): (i64, i64),
    to: DType,
) -> Result<TensorId, Refusal> {
    let (x, scale) = (cx.cast(x, DType::F32)?, cx.cast(scale, DType::F32)?);
    let exact = cx.bin("div", x, scale)?;
    let mut y = cx.un("round", exact)?;
    if let Some(zero) = zero {
        let zero = cx.cast(zero, DType::F32)?;
        y = cx.bin("add", y, zero)?;
    }
    let bounds = Attrs::new().with("min", low as f64).with("max", high as f64);
    let clipped = cx.layer("clip", bounds, &[Some(y)])?;
    cx.cast(clipped, to)
}

/// The type is the attribute's, else that of the scale.
fn dequantize(cx: &mut Cx<'_>) -> Outs {
    let Scaled { mut x, scale, mut zero, whole: shape } = scaled(cx)?;
    let weights = cx.input(0)?;
    if cx.held_type(0) == Some(DataType::Uint4) && cx.value(weights).is_some() {
        // Codes of weights stay packed: as i4, less 8, from which a zero point is as far as before.
        let given = match zero {
            Some(zero) => zero,
            None => cx.elems(DType::U8, &[], Elems::I(vec![0]))?,
        };
        (x, zero) = (signed(cx, x)?, Some(signed(cx, given)?));
    }
    let given = if cx.int("output_dtype", 0)? == 0 { None } else { cx.dtype_attr("output_dtype")? };
    let to = given.unwrap_or(cx.dtype(scale));
    if cx.held_type(0).is_some_and(|of| grids::held(of).is_some()) {
        let (mut x, scale) = (cx.cast(x, DType::F32)?, cx.cast(scale, DType::F32)?);
        if let Some(zero) = zero {
            let zero = cx.cast(zero, DType::F32)?;
            x = cx.bin("sub", x, zero)?;
        }
        let y = cx.bin("mul", x, scale)?;
        let y = cx.cast(y, to)?;
        return whole(cx, y, shape);
    }
    let y = cx.layer("dequantize", Attrs::new().with("to", to), &[Some(x), Some(scale), zero])?;
    whole(cx, y, shape)
}

/// Codes of 0 to 15 as i4, less 8. Greater ones, which a refit could bring, become 15.
fn signed(cx: &mut Cx<'_>, codes: TensorId) -> Result<TensorId, Refusal> {
    let codes = cx.bin_num("min", codes, 15.0)?;
    let less = cx.bin_num("sub", codes, 8.0)?;
    cx.cast(less, DType::I4)
}

fn dynamic_quantize(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    Ok(dynamic(cx, x)?.to_vec())
}

/// The range of the tensor, widened to hold 0, on 0..255: codes, scale and zero point.
pub(crate) fn dynamic(cx: &mut Cx<'_>, x: TensorId) -> Result<[TensorId; 3], Refusal> {
    let all: Vec<i64> = (0..cx.rank(x) as i64).collect();
    let (low, high) = (over(cx, "min", x, &all)?, over(cx, "max", x, &all)?);
    let (low, high) = (cx.as_scalar(low)?, cx.as_scalar(high)?);
    let (low, high) = (cx.bin_num("min", low, 0.0)?, cx.bin_num("max", high, 0.0)?);
    let width = cx.bin("sub", high, low)?;
    let scale = cx.bin_num("div", width, 255.0)?;
    let below = cx.un("neg", low)?;
    let exact = cx.bin("div", below, scale)?;
    let clipped = cx.layer("clip", Attrs::new().with("min", 0.0).with("max", 255.0), &[Some(exact)])?;
    let rounded = cx.un("round", clipped)?;
    let zero = cx.cast(rounded, DType::U8)?;
    let y = cx.layer("quantize", Attrs::new().with("to", DType::U8), &[Some(x), Some(scale), Some(zero)])?;
    Ok([y, scale, zero])
}
