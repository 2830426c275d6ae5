//! A convolution of a dequantized image by dequantized weights: the convolution of their codes, dequantized.
//!
//! Padding is 0, whose code is the zero point: where that is not 0, the codes are padded by it first. Then all windows are full, and
//! Σ(x−p)(w−q) = Σxw − q·Σx − p·Σ(w−q).

use super::super::view::{View, constant, input};
use super::super::{Rule, Writer};
use super::codes::{Codes, centred, is_all, one_element, real, sum, wide};
use crate::passes::precision::greatest_code;
use kiln_ir::{Attrs, DType, Elems, IrError, NodeId, Tensor, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::conv::CONV;
use kiln_ops::conv::window::{PAD_MODE, PADS};
use kiln_ops::layout::Layout;
use kiln_ops::pointwise::binary::{ADD, MUL, SUB};
use kiln_ops::slice::pad::PAD;

pub struct QuantizedConv {
    x: Codes,
    weights: Codes,
    bias: Option<ValueId>,
    attrs: Attrs,
    /// Padding of codes: before each spatial dimension, then behind each.
    pads: Vec<i64>,
    to: DType,
}

/// The zero point of unsigned weights that are symmetric about it; they are signed ones, moved.
const MIDDLE: i64 = 128;

impl Rule for QuantizedConv {
    const NAME: &'static str = "quantized-conv";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<QuantizedConv> {
        let g = view.g;
        let node = g
            .get(root)
            .filter(|n| n.op.is(CONV) && n.meta.precision.is_none_or(|t| greatest_code(t).is_some()))?;
        let inputs = [input(node, 0)?, input(node, 1)?];
        let (x, weights) = (Codes::of(view, inputs[0])?, Codes::of(view, inputs[1])?);
        let attrs = node.op.attrs().clone();
        let bare = inputs == [x.codes, weights.codes];
        let alike = x.go_with(&weights, g);
        let spatial = g.ty(x.codes).rank().checked_sub(2)?;
        let mut pads = attrs.ints(PADS.name).ok()?.to_vec();
        pads.resize(2 * spatial, 0);
        // A zero point of the image needs full windows.
        let known = x.zero.is_none() || attrs.str(PAD_MODE.name).ok()? == "explicit";
        let moved = weights.zero.is_some_and(|q| !symmetric(view, weights.codes, q));
        let plain = !moved || g.ty(weights.codes).static_dims().is_some();
        let fits = Layout::of(&attrs) == Layout::Linear
            && x.per_tensor(g)
            && [weights.scale, weights.zero]
                .into_iter()
                .flatten()
                .all(|v| per_channel(view, v, weights.codes));
        let to = g.ty(*node.outputs.first()?).dtype;
        let bias = input(node, 2);
        (!bare && alike && known && plain && fits).then_some(QuantizedConv {
            x,
            weights,
            bias,
            attrs,
            pads,
            to,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        w.forget_precision();
        let QuantizedConv { x, weights, bias, mut attrs, pads, to } = self;
        let rank = w.g.ty(x.codes).rank();
        let spatial: Vec<i64> = (2..rank as i64).collect();
        let mut image = x.codes;
        if let Some(p) = x.zero.filter(|_| pads.iter().any(|&n| n != 0)) {
            let (amounts, axes) = (w.ints(&pads)?, w.ints(&spatial)?);
            let value = w.in_type(p, w.g.ty(image).dtype)?;
            let value = w.reshape(value, &[])?;
            image = w.node(PAD, Attrs::new(), &[Some(image), Some(amounts), Some(value), Some(axes)])?;
            attrs.set(PADS.name, vec![0i64; pads.len()]);
        }
        let (kernel, q) = signed(&mut w, weights)?;
        let sums = w.op(CONV, attrs.clone(), &[image, kernel])?;
        let mut excess = Vec::new();
        if let Some(q) = q {
            let Some(mut dims) = w.g.ty(kernel).static_dims() else { return Ok(false) };
            // All channels of one group have the same windows.
            if attrs.int("groups").is_ok_and(|n| n == 1) {
                dims[0] = 1;
            }
            let ones = Elems::I(vec![1; dims.iter().product()]);
            let Some(ones) = Tensor::from_elems(DType::I8, &dims, &ones) else { return Ok(false) };
            let ones = w.constant(ones);
            let windows = w.op(CONV, attrs, &[image, ones])?;
            let q = wide(&mut w, q)?;
            let q = channels(&mut w, q, rank)?;
            excess.push(w.op(MUL, Attrs::new(), &[windows, q])?);
        }
        if let Some(p) = x.zero {
            let all = centred(&mut w, Codes { codes: kernel, zero: q, scale: None })?;
            let axes: Vec<i64> = (1..rank as i64).collect();
            let sums = sum(&mut w, all, &axes)?;
            let (sums, p) = (channels(&mut w, sums, rank)?, wide(&mut w, p)?);
            let p = w.reshape(p, &[])?;
            excess.push(w.op(MUL, Attrs::new(), &[sums, p])?);
        }
        let scales = match [x.scale, weights.scale] {
            [Some(a), Some(b)] => [Some(w.reshape(a, &[])?), Some(channels(&mut w, b, rank)?)],
            none => none,
        };
        let mut y = real(&mut w, sums, excess, scales, to)?;
        if let Some(bias) = bias {
            let column = w.column(bias, rank, 1)?;
            y = w.op(ADD, Attrs::new(), &[y, column])?;
        }
        Ok(w.replace(root, y))
    }
}

/// Whether these are unsigned constants whose zero point is in the middle.
fn symmetric(view: &View<'_>, codes: ValueId, zero: ValueId) -> bool {
    view.g.ty(codes).dtype == DType::U8 && constant(view.g, codes) && is_all(view.g, zero, MIDDLE)
}

/// The weights as factors with what is left of their zero point.
fn signed(w: &mut Writer<'_>, c: Codes) -> Result<(ValueId, Option<ValueId>), IrError> {
    let middle = c.zero.is_some_and(|q| is_all(w.g, q, MIDDLE)) && constant(w.g, c.codes);
    if !middle || w.g.ty(c.codes).dtype != DType::U8 {
        return Ok((c.factor(w)?, c.zero));
    }
    let (codes, by) = (wide(w, c.codes)?, w.integer(MIDDLE, DType::I32)?);
    let moved = w.op(SUB, Attrs::new(), &[codes, by])?;
    Ok((w.op(CAST, Attrs::new().with("to", DType::I8), &[moved])?, None))
}

/// Whether a value has one element, or one for each output channel of the weights.
fn per_channel(view: &View<'_>, v: ValueId, weights: ValueId) -> bool {
    let (dims, of) = (view.dims(v), view.dims(weights));
    one_element(view.g, v) || (dims.len() == of.len() && dims.iter().skip(1).all(|d| d.is(1)))
}

/// A value an output channel, as the dimension of channels of a result of this rank.
pub fn channels(w: &mut Writer<'_>, v: ValueId, rank: usize) -> Result<ValueId, IrError> {
    match one_element(w.g, v) {
        true => w.reshape(v, &[]),
        false => w.column(v, rank, 1),
    }
}
