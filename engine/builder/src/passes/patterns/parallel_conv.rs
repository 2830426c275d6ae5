//! Convolutions of one input that differ in their weights alone (branches, heads of a detector): one convolution with all output
//! channels, and a slice for each. Equal pointwise layers behind each of them become one, too.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Graph, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::conv::{CONV, GROUPS};
use kiln_ops::layout::Layout;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;

/// Pointwise layers that are looked for behind a convolution.
const MOST_BEHIND: usize = 4;

pub struct ParallelConv {
    x: ValueId,
    op: Op,
    /// The convolutions in the order of the graph.
    parts: Vec<Part>,
    /// Pointwise layers behind each.
    behind: Vec<Op>,
}

struct Part {
    weights: ValueId,
    bias: Option<ValueId>,
    channels: i64,
    /// The convolution, and the layers behind it.
    nodes: Vec<NodeId>,
    /// Result of the last of them.
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
        let mut parts: Vec<Part> = ids
            .iter()
            .filter_map(|&id| Some((id, view.g.get(id)?)))
            .filter(|(_, n)| n.op == first.op && n.meta.precision == first.meta.precision)
            .filter_map(|(id, n)| part(view.g, id, n))
            .filter(|p| alike(view.g, p, &own))
            .collect();
        let fits = parts.len() > 1 && parts.first()?.nodes == [root];
        let op = first.op.clone();
        fits.then(|| {
            let behind = behind(view, &mut parts);
            ParallelConv { x, op, parts, behind }
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
        for op in &self.behind {
            y = w.op(op.id(), op.attrs().clone(), &[y])?;
        }
        let mut at = 0;
        for p in &self.parts {
            let bounds = [w.ints(&[at])?, w.ints(&[at + p.channels])?, w.ints(&[1])?];
            let slice = w.op(SLICE, Attrs::new(), &[y, bounds[0], bounds[1], bounds[2]])?;
            at += p.channels;
            w.stand_in(p.y, slice);
        }
        let old = self.parts.iter().flat_map(|p| p.nodes.iter().rev()).copied();
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
    (fits && constant).then_some(Part { weights, bias, channels, nodes: vec![id], y: *n.outputs.first()? })
}

/// Whether two differ in their output channels alone.
fn alike(g: &Graph, a: &Part, b: &Part) -> bool {
    let (one, other) = (g.ty(a.weights), g.ty(b.weights));
    a.bias.is_some() == b.bias.is_some()
        && one.dtype == other.dtype
        && one.dims.get(1..) == other.dims.get(1..)
}

/// Moves the ends of the parts behind pointwise layers of one input that are equal for all; those layers.
fn behind(view: &View<'_>, parts: &mut [Part]) -> Vec<Op> {
    let mut all = Vec::new();
    while all.len() < MOST_BEHIND {
        let next: Option<Vec<(NodeId, &Node)>> = parts.iter().map(|p| next(view, p)).collect();
        let Some(next) = next else { break };
        let Some(op) = next.first().map(|(_, n)| n.op.clone()) else { break };
        if next.iter().any(|(_, n)| n.op != op) {
            break;
        }
        for (p, (id, n)) in parts.iter_mut().zip(next) {
            p.nodes.push(id);
            p.y = n.outputs.first().copied().unwrap_or(p.y);
        }
        all.push(op);
    }
    all
}

/// The pointwise layer of one input that alone reads the end of a part.
fn next<'g>(view: &View<'g>, p: &Part) -> Option<(NodeId, &'g Node)> {
    let &[(id, 0)] = view.readers(p.y) else { return None };
    let n = view.g.get(id).filter(|n| n.op.is_pointwise() && n.inputs.len() == 1 && n.outputs.len() == 1)?;
    let precision = view.g.get(*p.nodes.first()?)?.meta.precision;
    let plain = n.meta.precision == precision && n.meta.output_types.iter().all(Option::is_none);
    (plain && view.read_once(p.y)).then_some((id, n))
}
