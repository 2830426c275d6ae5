//! A transposed convolution of a dequantized image by dequantized weights: that of their codes, dequantized.
//!
//! Results at the border are sums of fewer products than others. With zero points p and q, Σ(x−p)(w−q) = Σxw − q·Σx − p·(Σw − q·Σ1),
//! where each sum is a transposed convolution, and those over constants are constants.

use super::super::view::{View, input};
use super::super::{Rule, Writer};
use super::codes::{Codes, one_element, real, wide};
use super::conv::channels;
use crate::passes::precision::greatest_code;
use kiln_ir::{Attrs, DType, Elems, IrError, NodeId, Tensor, ValueId};
use kiln_ops::conv::transposed::CONV_TRANSPOSE;
use kiln_ops::layout::Layout;
use kiln_ops::pointwise::binary::{ADD, MUL, SUB};
use kiln_ops::slice::concat::CONCAT;

pub struct QuantizedTransposed {
    x: Codes,
    weights: Codes,
    bias: Option<ValueId>,
    attrs: Attrs,
    /// Sizes of the image and of the weights; those of the image are known where it has a zero point.
    sizes: [Option<Vec<usize>>; 2],
    to: DType,
}

impl Rule for QuantizedTransposed {
    const NAME: &'static str = "quantized-conv-transpose";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<QuantizedTransposed> {
        let g = view.g;
        let codes = |t: DType| greatest_code(t).is_some();
        let node = g.get(root).filter(|n| n.op.is(CONV_TRANSPOSE) && n.meta.precision.is_none_or(codes))?;
        let inputs = [input(node, 0)?, input(node, 1)?];
        let (x, weights) = (Codes::of(view, inputs[0])?, Codes::of(view, inputs[1])?);
        let attrs = node.op.attrs().clone();
        let bare = inputs == [x.codes, weights.codes];
        let integers = [x.codes, weights.codes].iter().all(|&v| g.ty(v).dtype.is_int());
        let sizes = [x.codes, weights.codes].map(|v| g.ty(v).static_dims());
        let known = (x.zero.is_none() || sizes[0].is_some())
            && (weights.zero.is_none() || sizes[1].is_some())
            && (x.zero.is_none() || view.g.weight(weights.codes).is_some());
        attrs.int("groups").ok().filter(|&n| n > 0)?;
        // Channels of a group of the result are dimension 1 of the weights; groups have the same scales.
        let per_channel = |v: ValueId| {
            let (dims, of) = (view.dims(v), view.dims(weights.codes));
            let along = dims.len() == of.len() && (0..dims.len()).all(|i| i == 1 || dims[i].is(1));
            one_element(g, v) || along
        };
        let fits = Layout::of(&attrs) == Layout::Linear
            && x.per_tensor(g)
            && [weights.scale, weights.zero].into_iter().flatten().all(per_channel);
        let to = g.ty(*node.outputs.first()?).dtype;
        let bias = input(node, 2);
        (!bare && integers && x.go_with(&weights, g) && known && fits).then_some(QuantizedTransposed {
            x,
            weights,
            bias,
            attrs,
            sizes,
            to,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        w.forget_precision();
        let QuantizedTransposed { x, weights, bias, attrs, sizes, to } = self;
        let rank = w.g.ty(x.codes).rank();
        let groups = attrs.int("groups").map_or(1, |n| n.max(1) as usize);
        let [image_size, kernel_size] = sizes;
        let kernel = weights.factor(&mut w)?;
        let over = |w: &mut Writer<'_>, image: ValueId, kernel: ValueId| {
            w.op(CONV_TRANSPOSE, attrs.clone(), &[image, kernel])
        };
        let sums = over(&mut w, x.codes, kernel)?;
        let ones_w = match (weights.zero, kernel_size) {
            (Some(_), Some(size)) => Some(ones(&mut w, &size)?),
            _ => None,
        };
        let q = match weights.zero {
            Some(q) => {
                let q = wide(&mut w, q)?;
                Some(of_groups(&mut w, q, groups, rank)?)
            }
            None => None,
        };
        let mut excess = Vec::new();
        if let (Some(q), Some(ones_w)) = (q, ones_w) {
            let windows = over(&mut w, x.codes, ones_w)?;
            excess.push(w.op(MUL, Attrs::new(), &[windows, q])?);
        }
        if let (Some(p), Some(mut size)) = (x.zero, image_size) {
            size[0] = 1;
            let ones_x = ones(&mut w, &size)?;
            let mut all = over(&mut w, ones_x, kernel)?;
            if let (Some(q), Some(ones_w)) = (q, ones_w) {
                let count = over(&mut w, ones_x, ones_w)?;
                let less = w.op(MUL, Attrs::new(), &[count, q])?;
                all = w.op(SUB, Attrs::new(), &[all, less])?;
            }
            let p = wide(&mut w, p)?;
            let p = w.reshape(p, &[])?;
            excess.push(w.op(MUL, Attrs::new(), &[all, p])?);
        }
        let scales = match [x.scale, weights.scale] {
            [Some(a), Some(b)] => [Some(w.reshape(a, &[])?), Some(of_groups(&mut w, b, groups, rank)?)],
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

/// A number for each channel of a group, or one for all, as the result of all groups takes it.
fn of_groups(w: &mut Writer<'_>, v: ValueId, groups: usize, rank: usize) -> Result<ValueId, IrError> {
    if groups == 1 || one_element(w.g, v) {
        return channels(w, v, rank);
    }
    let own = w.column(v, rank, 1)?;
    w.op(CONCAT, Attrs::new().with("axis", 1), &vec![own; groups])
}

/// Codes that are 1.
fn ones(w: &mut Writer<'_>, size: &[usize]) -> Result<ValueId, IrError> {
    let all = Elems::I(vec![1; size.iter().product()]);
    let wrong = || IrError::Structure(format!("a tensor of size {size:?}"));
    Ok(w.constant(Tensor::from_elems(DType::I8, size, &all).ok_or_else(wrong)?))
}
