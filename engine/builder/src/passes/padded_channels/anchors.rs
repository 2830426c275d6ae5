//! Layers as the padding of channels sees them: those with weights, which make new channels of old ones, and those that keep
//! channels apart.

use super::super::patterns::{constant, input};
use kiln_ir::{Graph, Node, Tensor, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::layout::Layout;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pool::POOL;
use kiln_ops::reduce::REDUCE;
use std::collections::BTreeMap;

/// Numbers that a layer's constants get in added channels, by input; none for inputs that stay as they are.
pub type Pads = BTreeMap<usize, Tensor>;

/// A convolution of one group or a product, with constant weights.
pub struct Anchor {
    /// The value that it reads.
    pub x: ValueId,
    /// Axis of x that weights sum over.
    pub x_axis: usize,
    /// The weights.
    pub weights: ValueId,
    /// Axis of the weights that goes with the channels of x.
    pub from: usize,
    /// Axis of the weights that goes with the channels of the result.
    pub to: usize,
    /// Axis of the result with the channels that it makes.
    pub y_axis: usize,
}

impl Anchor {
    /// The layer, if it is one.
    pub fn of(g: &Graph, node: &Node) -> Option<Anchor> {
        let &[y] = &node.outputs[..] else { return None };
        let (x, weights) = (input(node, 0)?, input(node, 1)?);
        let attrs = node.op.attrs();
        let constants = constant(g, weights) && input(node, 2).is_none_or(|b| constant(g, b));
        let (x_axis, from, to, y_axis) = match node.op.id() {
            _ if !constants => return None,
            CONV if attrs.int("groups").ok()? == 1 => {
                let (layout, rank) = (Layout::of(attrs), g.ty(x).rank());
                let axis = layout.channel_axis(rank);
                (axis, axis, 0, axis)
            }
            MATMUL if g.ty(weights).rank() == 2 && !attrs.bool("trans_a").ok()? => {
                let from = usize::from(attrs.bool("trans_b").ok()?);
                (g.ty(x).rank().checked_sub(1)?, from, 1 - from, g.ty(y).rank().checked_sub(1)?)
            }
            _ => return None,
        };
        (g.ty(x).rank() > 1).then_some(Anchor { x, x_axis, weights, from, to, y_axis })
    }
}

/// Whether it is a convolution of each channel by itself, with constant weights.
pub fn is_depthwise(g: &Graph, node: &Node) -> bool {
    let sizes = || {
        let (x, w) = (input(node, 0)?, input(node, 1)?);
        let groups = node.op.attrs().int("groups").ok()?;
        let axis = Layout::of(node.op.attrs()).channel_axis(g.ty(x).rank());
        let constants = constant(g, w) && input(node, 2).is_none_or(|b| constant(g, b));
        let each = |d: &kiln_ir::Dim| d.as_const() == Some(groups);
        Some(constants && groups > 1 && each(g.ty(x).dims.get(axis)?) && each(g.ty(w).dims.first()?))
    };
    node.op.is(CONV) && sizes().unwrap_or(false)
}

/// Inputs that have channels where the result has them, if they have any.
pub fn images(g: &Graph, node: &Node) -> Vec<ValueId> {
    let many = node.op.is_pointwise();
    let rank = node.outputs.first().map_or(0, |&v| g.ty(v).rank());
    let all = node.inputs.iter().take(if many { usize::MAX } else { 1 }).flatten();
    all.copied().filter(|&v| !many || g.ty(v).rank() == rank).collect()
}

/// Whether channels of the result along an axis come each of the same channel of the operands alone, which have as many; constants
/// may have one.
pub fn keeps_channels(g: &Graph, node: &Node, axis: usize, channels: usize) -> bool {
    let &[y] = &node.outputs[..] else { return false };
    let plain = node.regions.is_empty() && !node.op.def().traits.side_effect && !node.op.def().traits.random;
    let rank = g.ty(y).rank();
    let size = |v: ValueId| {
        let own = g.ty(v).rank();
        match (axis + own).checked_sub(rank) {
            Some(at) => g.ty(v).dims.get(at)?.as_const(),
            None => Some(1),
        }
    };
    if !plain || size(y) != Some(channels as i64) {
        return false;
    }
    if node.op.is_pointwise() {
        return node.inputs.iter().flatten().all(|&v| match constant(g, v) {
            true => size(v) == Some(channels as i64) || g.weight(v).is_some_and(|w| w.tensor.len() == 1),
            false => size(v) == Some(channels as i64) && g.ty(v).rank() == rank,
        });
    }
    let along = |v: ValueId| g.ty(v).rank() == rank && size(v) == Some(channels as i64);
    let image = input(node, 0).is_some_and(along);
    let layout = |node: &Node| Layout::of(node.op.attrs()).channel_axis(rank) == axis;
    match node.op.id() {
        POOL => image && layout(node),
        CONV => image && layout(node) && is_depthwise(g, node),
        REDUCE => image && reduces_others(g, node, axis),
        _ => false,
    }
}

/// Whether a reduction that yields 0 for zeros keeps this axis, and all others in their places.
fn reduces_others(g: &Graph, node: &Node, axis: usize) -> bool {
    let kept = || {
        let attrs = node.op.attrs();
        let zero = ["sum", "mean", "max", "min", "l1", "l2", "sum_square"].contains(&attrs.str("op").ok()?);
        let listed = match input(node, 1) {
            Some(v) => Some(g.value(v).fact.as_const()?.to_i64()),
            None => None,
        };
        let rank = g.ty(input(node, 0)?).rank();
        let mask = kiln_ops::reduce::mask(attrs, listed.as_deref(), rank).ok()?;
        Some(zero && attrs.bool("keep_dims").ok()? && mask.get(axis) == Some(&false))
    };
    kept().unwrap_or(false)
}
