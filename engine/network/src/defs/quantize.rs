//! Quantization: quantize, dequantize, dynamic quantize.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ops::pointwise::binary::{DIV, EQUAL, MUL};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::pointwise::unary::ABS;
use kiln_ops::quantize::QUANTIZE;
use kiln_ops::reduce::REDUCE;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};

impl Network {
    /// Computes clamp(round(x/scale)) in type `to` (i8, i4 or f8e4m3). The scale is a scalar or one number a channel (1-D,
    /// with an axis). For blocks along the last or second last dimension, it has the rank of x. A zero point is a
    /// constant of zeros, input 2.
    pub fn add_quantize(
        &mut self,
        input: TensorId,
        scale: TensorId,
        to: DType,
        axis: Option<i64>,
    ) -> Result<Layer<'_, Quantize>, NetworkError> {
        self.add_kind(Quantize { to, axis }, &[input, scale])
    }

    /// x·scale in type `to`, a float; the scale as for [`Network::add_quantize`].
    pub fn add_dequantize(
        &mut self,
        input: TensorId,
        scale: TensorId,
        to: DType,
        axis: Option<i64>,
    ) -> Result<Layer<'_, Dequantize>, NetworkError> {
        self.add_kind(Dequantize { to, axis }, &[input, scale])
    }

    /// Quantizes blocks along an axis (the last or second last) by scales computed from their greatest
    /// element. Returns the quantized tensor and the scales. A scale for the scales themselves is input 1, a
    /// scalar above 0.
    pub fn add_dynamic_quantize(
        &mut self,
        input: TensorId,
        axis: i64,
        block: i64,
        to: DType,
        scale_type: DType,
    ) -> Result<Layer<'_, DynamicQuantize>, NetworkError> {
        self.add_kind(DynamicQuantize { axis, block, to, scale_type }, &[input])
    }
}

/// See [`Network::add_quantize`].
#[derive(Clone, Debug)]
pub struct Quantize {
    pub to: DType,
    pub axis: Option<i64>,
}

/// See [`Network::add_dequantize`].
#[derive(Clone, Debug)]
pub struct Dequantize {
    pub to: DType,
    pub axis: Option<i64>,
}

macro_rules! scaled {
    ($t:ident, $kind:literal) => {
        setters! { $t {
            /// The axis of the channels, for a scale of one dimension.
            set_axis(axis: i64) => axis = Some(axis);
            /// The type of the output.
            set_to_type(to: DType) => to = to;
        }}
        layer_def!($t, $kind, 3, true);
    };
}
scaled!(Quantize, "quantize");
scaled!(Dequantize, "dequantize");

impl Quantize {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.floats(0)?;
        b.check_rank(0, |r| r > 0, "at least one dimension")?;
        if !matches!(self.to, DType::I8 | DType::I4 | DType::F8E4M3) {
            return Err(bad("to_type", self.to, "i8, i4 or f8e4m3"));
        }
        check_zero_point(b, self.to)?;
        scaled(b, "quantize", self.to, self.axis)
    }
}

impl Dequantize {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let own = |d| matches!(d, DType::I8 | DType::I4 | DType::F8E4M3);
        let from = b.check_dtype(0, own, "i8, i4 or f8e4m3")?;
        if !matches!(self.to, DType::F32 | DType::F16 | DType::BF16) {
            return Err(bad("to_type", self.to, "f32, f16 or bf16"));
        }
        check_zero_point(b, from)?;
        scaled(b, "dequantize", self.to, self.axis)
    }
}

/// Quantization is symmetric: a zero point is a constant of zeros.
fn check_zero_point(b: &Body<'_>, dtype: DType) -> Result<(), OpError> {
    let Some(v) = b.opt(2) else { return Ok(()) };
    b.check_dtype(2, |d| d == dtype, &format!("{dtype}, as the quantized tensor is"))?;
    match b.fact(v).as_const() {
        Some(t) if t.to_f64().iter().all(|&x| x == 0.0) => Ok(()),
        _ => Err(bad("zero point", "not known to be zero", "a constant of zeros")),
    }
}

fn scaled(b: &mut Body<'_>, op: &str, to: DType, axis: Option<i64>) -> Result<Vec<ValueId>, OpError> {
    let (x, scale) = (b.x(0)?, b.x(1)?);
    b.floats(1)?;
    let wrong = |t: &kiln_ir::Tensor| t.to_f64().iter().any(|&s| s.is_nan() || s <= 0.0);
    if b.fact(scale).as_const().is_some_and(wrong) {
        return Err(bad("scale", "not above 0", "positive numbers"));
    }
    let attrs = Attrs::new().with("to", to);
    let (own, dims, lead) = (b.dims(x), b.dims(scale), b.lead());
    // Blocks of each entry of an implicit batch may have scales of their own.
    let varies = dims.iter().take(lead).any(|d| !d.is(1));
    if varies && (axis.is_some() || dims.len() != own.len()) {
        return Err(b.bad_shape(1, "a scale that is the same for the whole batch, or scales of blocks"));
    }
    if dims.iter().all(|d| d.is(1)) {
        let scale = b.reshape(scale, &[])?;
        return Ok(vec![b.op(op, attrs, &[x, scale])?]);
    }
    if let (Some([channels]), Some(axis)) = (dims.get(lead..), axis) {
        let axis = b.axis("axis", axis, own.len())?;
        if differ(channels, &own[axis]) {
            return Err(b.bad_shape(1, &format!("[{}], one number a channel", own[axis])));
        }
        let mut shape = vec![1; own.len()];
        shape[axis] = -1;
        let scale = b.reshape(scale, &shape)?;
        return Ok(vec![b.op(op, attrs, &[x, scale])?]);
    }
    let (axis, block) = block(b, &own, &dims)?;
    let split = split(b, x, axis, block)?;
    let at = b.ints(&[axis as i64 + 1])?;
    let scale = b.plain(UNSQUEEZE, &[scale, at])?;
    let y = b.op(op, attrs, &[split, scale])?;
    let shape = b.shape(x)?;
    Ok(vec![b.op(RESHAPE, Attrs::new().with("allow_zero", true), &[y, shape])?])
}

/// The axis along which a scale of the same rank has blocks, and how long they are.
fn block(b: &Body<'_>, own: &[kiln_ir::Dim], scale: &[kiln_ir::Dim]) -> Result<(usize, i64), OpError> {
    let wanted = "a scalar, one dimension with an axis, or the dimensions of input 0 with the last or the second last \
                  divided by the size of the blocks";
    let refuse = || b.bad_shape(1, wanted);
    if own.len() != scale.len() {
        return Err(refuse());
    }
    let mut found = None;
    let pairs = own.iter().zip(scale).enumerate().skip(b.lead());
    for (i, (d, s)) in pairs.filter(|(_, (d, s))| d != s) {
        let sizes = d.as_const().zip(s.as_const()).filter(|&(d, s)| s > 0 && d % s == 0);
        let (d, s) = sizes.ok_or_else(refuse)?;
        if found.is_some() || i + 2 < own.len() {
            return Err(refuse());
        }
        found = Some((i, d / s));
    }
    Ok(found.unwrap_or((own.len() - 1, 1)))
}

/// The tensor with a constant axis as blocks: [.., n/block, block, ..].
fn split(b: &mut Body<'_>, x: ValueId, axis: usize, block: i64) -> Result<ValueId, OpError> {
    let dims = b.dims(x);
    let n = dims[axis].as_const().filter(|n| block > 0 && n % block == 0);
    let n =
        n.ok_or_else(|| b.bad_shape(0, &format!("a constant multiple of {block} in dimension {axis}")))?;
    let mut shape = vec![0; axis];
    shape.extend([n / block, block]);
    let rest: Vec<i64> = dims[axis + 1..].iter().map(|d| d.as_const().unwrap_or(-1)).collect();
    shape.extend(rest);
    b.reshape(x, &shape)
}

/// See [`Network::add_dynamic_quantize`].
#[derive(Clone, Debug)]
pub struct DynamicQuantize {
    pub axis: i64,
    pub block: i64,
    pub to: DType,
    pub scale_type: DType,
}

setters! { DynamicQuantize {
    /// The axis of the blocks.
    set_axis(axis: i64) => axis = axis;
    /// The size of the blocks.
    set_block_size(block: i64) => block = block;
    /// The type of the output.
    set_to_type(to: DType) => to = to;
    /// The type of the scales.
    set_scale_type(scale_type: DType) => scale_type = scale_type;
}}
layer_def!(DynamicQuantize, "dynamic_quantize", 2, true);

impl DynamicQuantize {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.check_dtype(0, |d| matches!(d, DType::F32 | DType::F16 | DType::BF16), "f32, f16 or bf16")?;
        let rank = b.rank(x);
        let axis = b.axis("axis", self.axis, rank)?;
        if axis + 2 < rank {
            return Err(bad("axis", self.axis, "the last or the second last"));
        }
        let most = match self.to {
            DType::F8E4M3 => 448.0,
            DType::I8 => 127.0,
            other => return Err(bad("to_type", other, "f8e4m3 or i8")),
        };
        if !matches!(self.scale_type, DType::F32 | DType::F8E4M3) {
            return Err(bad("scale_type", self.scale_type, "f32 or f8e4m3"));
        }
        let wide = b.cast(x, DType::F32)?;
        let blocks = split(b, wide, axis, self.block)?;
        let (size, along) = (b.plain(ABS, &[blocks])?, b.ints(&[axis as i64 + 1])?);
        let top = b.op(REDUCE, Attrs::new().with("op", "max"), &[size, along])?;
        let most = b.number(DType::F32, most)?;
        let mut scale = b.plain(DIV, &[top, most])?;
        if b.has(1) {
            b.floats(1)?;
            b.check_rank(1, |r| r == 0, "no dimensions (a scalar)")?;
            let outer = b.x(1)?;
            let outer = b.cast(outer, DType::F32)?;
            scale = b.plain(DIV, &[scale, outer])?;
        }
        let stored = b.cast(scale, self.scale_type)?;
        let mut used = b.cast(stored, DType::F32)?;
        if b.has(1) {
            let outer = b.x(1)?;
            let outer = b.cast(outer, DType::F32)?;
            used = b.plain(MUL, &[used, outer])?;
        }
        // A block of zeros has the scale 0; dividing by 1 leaves the zeros.
        let (zero, one) = (b.number(DType::F32, 0.0)?, b.number(DType::F32, 1.0)?);
        let none = b.plain(EQUAL, &[used, zero])?;
        let used = b.plain(SELECT, &[none, one, used])?;
        let y = b.op(QUANTIZE, Attrs::new().with("to", self.to), &[blocks, used])?;
        let shape = b.shape(x)?;
        let y = b.op(RESHAPE, Attrs::new().with("allow_zero", true), &[y, shape])?;
        let at = b.ints(&[axis as i64 + 1])?;
        Ok(vec![y, b.plain(SQUEEZE, &[stored, at])?])
    }
}
