//! Group normalization out of instance normalization between reshapes, with the scale and bias of channels behind it: the form in
//! which exporters write it.

use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, DType, Graph, IrError, Node, NodeId, ValueId};
use kiln_ops::layout::Layout;
use kiln_ops::norm::batch_norm::GROUP_NORM;
use kiln_ops::pointwise::binary::{ADD, MUL};
use kiln_ops::shape::RESHAPE;

pub struct GroupNorm {
    x: ValueId,
    groups: i64,
    channels: i64,
    epsilon: f64,
    scale: ValueId,
    bias: ValueId,
    inside: Vec<NodeId>,
}

impl Rule for GroupNorm {
    const NAME: &'static str = "group-norm";

    fn find(view: &View<'_>, root: NodeId) -> Option<GroupNorm> {
        let g = view.g;
        let add = g.get(root).filter(|n| n.op.is(ADD))?;
        either(add).into_iter().find_map(|(product, bias)| {
            let (mul, node) = view.made_by(product, MUL)?;
            either(node).into_iter().find_map(|(normal, scale)| {
                let (reshape, node) = view.made_by(normal, RESHAPE)?;
                let (norm, node) = view.made_by(input(node, 0)?, GROUP_NORM)?;
                let inside = vec![norm, reshape, mul, root];
                read(view, node, normal, [scale, bias], inside)
            })
        })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let scale = w.reshape(self.scale, &[self.channels])?;
        let bias = w.reshape(self.bias, &[self.channels])?;
        let attrs = Attrs::new().with("groups", self.groups).with("epsilon", self.epsilon);
        let y = w.op(GROUP_NORM, attrs, &[self.x, scale, bias])?;
        Ok(w.replace(root, y))
    }
}

/// Both inputs of a layer, in both orders.
fn either(node: &Node) -> Vec<(ValueId, ValueId)> {
    match (input(node, 0), input(node, 1)) {
        (Some(a), Some(b)) => vec![(a, b), (b, a)],
        _ => Vec::new(),
    }
}

/// The normalization of what `norm` normalizes in groups as its channels, where `normal` is the result in the shape of channels.
fn read(
    view: &View<'_>,
    norm: &Node,
    normal: ValueId,
    [scale, bias]: [ValueId; 2],
    inside: Vec<NodeId>,
) -> Option<GroupNorm> {
    let (g, attrs) = (view.g, norm.op.attrs());
    let (rows, reshape) = (input(norm, 0)?, view.made_by(input(norm, 0)?, RESHAPE)?.1);
    let x = input(reshape, 0)?;
    let (own, grouped) = (g.ty(x), g.ty(rows));
    let dim = |t: &kiln_ir::TensorType, i: usize| t.dims.get(i)?.as_const().filter(|n| *n > 0);
    let (groups, channels) = (dim(grouped, 1)?, dim(own, 1)?);
    let plain = attrs.int("groups").ok()? == 0 && Layout::of(attrs) == Layout::Linear;
    let same = own.dims == g.ty(normal).dims && own.dims.first() == grouped.dims.first();
    let fits = plain
        && same
        && channels % groups == 0
        && all(g, input(norm, 1)?, 1.0)
        && all(g, input(norm, 2)?, 0.0)
        && [scale, bias].iter().all(|&v| per_channel(g, v, own.rank(), channels, own.dtype));
    let epsilon = attrs.float("epsilon").ok()?;
    fits.then_some(GroupNorm { x, groups, channels, epsilon, scale, bias, inside })
}

/// Whether all elements of a constant are this number.
fn all(g: &Graph, v: ValueId, number: f64) -> bool {
    let content = g.weight(v).map(|w| w.tensor.to_f64());
    let content = content.or_else(|| g.value(v).fact.as_const().map(|t| t.to_f64()));
    constant(g, v) && content.is_some_and(|c| c.iter().all(|&x| x == number))
}

/// Whether a value has one element for each channel of a tensor of this rank, whose second dimension they are.
fn per_channel(g: &Graph, v: ValueId, rank: usize, channels: i64, dtype: DType) -> bool {
    let t = g.ty(v);
    let place = |i: usize| i + rank - t.rank();
    t.dtype == dtype
        && t.rank() <= rank
        && t.static_volume() == usize::try_from(channels).ok()
        && t.dims.iter().enumerate().all(|(i, d)| d.is(if place(i) == 1 { channels } else { 1 }))
}
