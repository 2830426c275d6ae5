//! Moves of leading dimensions before and after layers that work on the last one (a product with a constant matrix, its
//! bias, a slice): where they undo each other, both go.

use super::moves::{Moved, Part, is_move, shape_text};
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Dim, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::slice::SLICE;
use kiln_ops::transpose::TRANSPOSE;

pub struct Around {
    x: ValueId,
    /// The layers between, in the order in which they run.
    core: Vec<Layer>,
    /// The shape of the result, if the layers give another.
    shape: Option<Vec<i64>>,
}

/// A layer that reads `before`, then one value of the chain, then `after`.
struct Layer {
    op: Op,
    before: Option<ValueId>,
    after: Vec<Option<ValueId>>,
    /// Whether it is a slice, whose axis is a constant of its own.
    slice: bool,
}

/// The key of the last dimension behind the layers.
const LAST: usize = usize::MAX;

impl Rule for Around {
    const NAME: &'static str = "moves-around";
    const WEIGHTS: bool = false;

    fn find(view: &View<'_>, root: NodeId) -> Option<Around> {
        let last = view.g.get(root).filter(|n| is_move(n))?;
        let y = *last.outputs.first()?;
        let (below, z) = up(view, y, is_move);
        let (layers, top) = up(view, z, |n| layer(view, n).is_some());
        let (above, x) = up(view, top, is_move);
        if layers.is_empty() || !undone(view, [&above, &below], [x, top, z]) || view.g.ty(x).rank() < 2 {
            return None;
        }
        if !layers.iter().all(|n| alone(view, n, last)) || !below.iter().skip(1).all(|n| read_once(view, n)) {
            return None;
        }
        let core: Vec<Layer> = layers.iter().rev().map(|n| layer(view, n)).collect::<Option<_>>()?;
        let mut own: Vec<Dim> = view.dims(x).to_vec();
        *own.last_mut()? = view.dims(z).last()?.clone();
        let shape = if own == view.dims(y) { None } else { Some(shape_text(view.dims(y))?) };
        Some(Around { x, core, shape })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut y = self.x;
        for l in self.core {
            let mut inputs: Vec<Option<ValueId>> = l.before.map(Some).into_iter().collect();
            inputs.push(Some(y));
            inputs.extend(l.after);
            if l.slice {
                let axis = w.g.ty(y).rank() as i64 - 1;
                inputs[3] = Some(w.ints(&[axis])?);
            }
            y = w.node(l.op.id(), l.op.attrs().clone(), &inputs)?;
        }
        if let Some(shape) = &self.shape {
            y = w.reshape(y, shape)?;
        }
        Ok(w.replace(root, y))
    }
}

/// The nodes above a value that are of a kind, the lowest first, and what the highest reads.
fn up<'g>(view: &View<'g>, v: ValueId, kind: impl Fn(&Node) -> bool) -> (Vec<&'g Node>, ValueId) {
    let (mut nodes, mut at) = (Vec::new(), v);
    while let Some((_, n)) = view.g.producer(at).filter(|(_, n)| kind(n)) {
        let Some(x) = carried(view, n) else { break };
        nodes.push(n);
        at = x;
    }
    (nodes, at)
}

/// The input that a move or layer works on.
fn carried(view: &View<'_>, n: &Node) -> Option<ValueId> {
    let first = input(n, 0)?;
    if n.op.is(ADD) && view.g.weight(first).is_some() { input(n, 1) } else { Some(first) }
}

/// A layer that works on the last dimension alone, whatever the others are.
fn layer(view: &View<'_>, n: &Node) -> Option<Layer> {
    let (x, y) = (carried(view, n)?, *n.outputs.first()?);
    let rank = view.g.ty(x).rank();
    let constant = |v: ValueId| view.g.weight(v).is_some();
    let of = |before, after, slice| Some(Layer { op: n.op.clone(), before, after, slice });
    match n.op.id() {
        MATMUL => {
            let w = input(n, 1).filter(|&w| constant(w) && view.g.ty(w).rank() == 2)?;
            (rank >= 2 && !n.op.attrs().bool("trans_a").ok()?).then_some(())?;
            of(None, vec![Some(w)], false)
        }
        ADD => {
            let first = input(n, 0)? != x;
            let bias = input(n, usize::from(!first)).filter(|&b| constant(b) && view.g.ty(b).rank() <= 1)?;
            (view.dims(y) == view.dims(x)).then_some(())?;
            if first { of(Some(bias), Vec::new(), false) } else { of(None, vec![Some(bias)], false) }
        }
        SLICE => {
            let axes = view.ints(input(n, 3)?)?;
            let at_last = axes[..] == [rank as i64 - 1] || axes[..] == [-1];
            let known = at_last && rank >= 2 && n.inputs[1..].iter().flatten().all(|&v| constant(v));
            known.then_some(())?;
            of(None, n.inputs[1..].to_vec(), true)
        }
        _ => None,
    }
}

fn read_once(view: &View<'_>, n: &Node) -> bool {
    n.outputs.iter().all(|&v| view.read_once(v))
}

/// Whether a layer's result is read by one alone, or by slices whose only readers all move as `last` does. These then become
/// equal layers, which are merged.
fn alone(view: &View<'_>, n: &Node, last: &Node) -> bool {
    let Some(&y) = n.outputs.first() else { return false };
    let alike = |id: NodeId| {
        let slice = view.g.get(id).filter(|n| n.op.is(SLICE));
        let read =
            slice.and_then(|n| n.outputs.first()).filter(|&&v| view.read_once(v)).map(|&v| view.readers(v));
        let next = read.and_then(|r| view.g.get(r.first()?.0));
        next.is_some_and(|n| n.op == last.op && last.op.is(TRANSPOSE))
    };
    view.read_once(y) || (!view.g.outputs.contains(&y) && view.readers(y).iter().all(|&(id, _)| alike(id)))
}

/// Whether the moves above and below keep the order of all dimensions together, with at least one transpose
/// among them. The last dimension, which the layers work on, stays alone.
fn undone(view: &View<'_>, [above, below]: [&[&Node]; 2], [x, top, z]: [ValueId; 3]) -> bool {
    let all = || {
        if !above.iter().chain(below).any(|n| n.op.is(TRANSPOSE)) {
            return None;
        }
        let mut moved = Moved::of(view.dims(x))?;
        let own = moved.dims.last()?.clone();
        above.iter().rev().try_for_each(|n| moved.through(view, n))?;
        (moved.dims.last()? == &own && view.dims(top).last() == view.dims(x).last()).then_some(())?;
        let width = view.dims(z).last()?;
        let part = Part { dim: width.clone(), key: vec![LAST] };
        *moved.dims.last_mut()? = if width.is(1) { Vec::new() } else { vec![part] };
        below.iter().rev().try_for_each(|n| moved.through(view, n))?;
        Some(moved.in_order())
    };
    all() == Some(true)
}
