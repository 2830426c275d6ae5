//! Convolutions of one input that differ in their weights alone (branches, heads of a detector): one convolution with all output
//! channels, and a slice for each. Equal pointwise layers behind each of them become one, too.

use super::tail::Tail;
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Graph, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::conv::{CONV, GROUPS};
use kiln_ops::layout::Layout;
use kiln_ops::slice::concat::CONCAT;

pub struct ParallelConv {
    x: ValueId,
    op: Op,
    /// The convolutions in the order of the graph.
    parts: Vec<Part>,
    /// Equal layers behind all of them, and what the last ones return.
    tail: Tail,
    ends: Vec<ValueId>,
}

struct Part {
    weights: ValueId,
    bias: Option<ValueId>,
    channels: i64,
    id: NodeId,
    y: ValueId,
}

impl Rule for ParallelConv {
    const NAME: &'static str = "parallel-conv";
    const WEIGHTS: bool = true;
    // The slices cost more than the convolution saves where nobody reads them in place.
    const ALWAYS: bool = false;

    /// The root is the first of the convolutions.
    fn find(view: &View<'_>, root: NodeId) -> Option<ParallelConv> {
        let first = view.g.get(root).filter(|n| n.op.is(CONV))?;
        let x = input(first, 0)?;
        let own = part(view.g, root, first)?;
        let mut ids: Vec<NodeId> = view.readers(x).iter().filter(|(_, i)| *i == 0).map(|(n, _)| *n).collect();
        ids.sort_by_key(|id| view.g.order().iter().position(|n| n == id));
        ids.dedup();
        let parts: Vec<Part> = ids
            .iter()
            .filter_map(|&id| Some((id, view.g.get(id)?)))
            .filter(|(_, n)| n.op == first.op && n.meta.precision == first.meta.precision)
            .filter_map(|(id, n)| part(view.g, id, n))
            .filter(|p| alike(view.g, p, &own))
            .collect();
        let fits = parts.len() > 1 && parts.first()?.id == root;
        let op = first.op.clone();
        fits.then(|| {
            let mut ends: Vec<ValueId> = parts.iter().map(|p| p.y).collect();
            let tail = Tail::behind(view, &mut ends);
            ParallelConv { x, op, parts, tail, ends }
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let along = Attrs::new().with("axis", 0i64);
        let weights: Vec<ValueId> = self.parts.iter().map(|p| p.weights).collect();
        let biases: Vec<ValueId> = self.parts.iter().filter_map(|p| p.bias).collect();
        let mut inputs = vec![self.x, w.op(CONCAT, along.clone(), &weights)?];
        if !biases.is_empty() {
            inputs.push(w.op(CONCAT, along, &biases)?);
        }
        let mut y = w.op(self.op.id(), self.op.attrs().clone(), &inputs)?;
        y = self.tail.write(&mut w, y, &[])?;
        let mut at = 0;
        for (p, &end) in self.parts.iter().zip(&self.ends) {
            let slice = w.slice(y, 1, at, at + p.channels)?;
            at += p.channels;
            w.stand_in(end, slice);
        }
        let old = self.tail.nodes.iter().copied().chain(self.parts.iter().map(|p| p.id));
        old.for_each(|id| w.g.remove_node(id));
        Ok(w.g.get(root).is_none())
    }
}

/// A convolution of all channels with constant weights, in the order of axes that networks have.
fn part(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
    let attrs = n.op.attrs();
    let weights = input(n, 1).filter(|&v| g.weight(v).is_some() && g.ty(v).dtype.is_float())?;
    let bias = input(n, 2);
    let channels = g.ty(weights).static_dims()?.first().copied()? as i64;
    let plain = n.meta.output_types.iter().all(Option::is_none) && Layout::of(attrs) == Layout::Linear;
    let fits = plain && channels > 0 && attrs.int(GROUPS.name).ok()? == 1;
    let constant = bias.is_none_or(|v| g.weight(v).is_some());
    (fits && constant).then_some(Part { weights, bias, channels, id, y: *n.outputs.first()? })
}

/// Whether two differ in their output channels alone.
fn alike(g: &Graph, a: &Part, b: &Part) -> bool {
    let (one, other) = (g.ty(a.weights), g.ty(b.weights));
    a.bias.is_some() == b.bias.is_some()
        && one.dtype == other.dtype
        && one.dims.get(1..) == other.dims.get(1..)
}
