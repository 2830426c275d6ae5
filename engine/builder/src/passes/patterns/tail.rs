//! Equal pointwise layers behind several values, which can be one layer once the values are one.

use super::view::View;
use kiln_ir::{Node, NodeId, Op, ValueId};

/// Layers that are looked for behind each value.
const MOST: usize = 4;

/// The layers behind the values.
#[derive(Default)]
pub struct Tail {
    /// Their operators, in order.
    pub ops: Vec<Op>,
    /// Their nodes, the last first.
    pub nodes: Vec<NodeId>,
}

/// Moves values behind pointwise layers of one input that are equal for all, and that alone read them.
pub fn behind(view: &View<'_>, ends: &mut [ValueId]) -> Tail {
    let mut tail = Tail::default();
    while tail.ops.len() < MOST {
        let next: Option<Vec<(NodeId, &Node)>> = ends.iter().map(|&v| next(view, v)).collect();
        let Some(next) = next else { break };
        let Some(op) = next.first().map(|(_, n)| n.op.clone()) else { break };
        if next.iter().any(|(_, n)| n.op != op) {
            break;
        }
        for (end, (id, n)) in ends.iter_mut().zip(next) {
            tail.nodes.insert(0, id);
            *end = n.outputs.first().copied().unwrap_or(*end);
        }
        tail.ops.push(op);
    }
    tail
}

/// The pointwise layer of one input that alone reads a value, in the precision of the layer that made it.
fn next<'g>(view: &View<'g>, v: ValueId) -> Option<(NodeId, &'g Node)> {
    let &[(id, 0)] = view.readers(v) else { return None };
    let n = view.g.get(id).filter(|n| n.op.is_pointwise() && n.inputs.len() == 1 && n.outputs.len() == 1)?;
    let (_, maker) = view.g.producer(v)?;
    let plain = n.meta.precision == maker.meta.precision && n.meta.output_types.iter().all(Option::is_none);
    (plain && view.read_once(v)).then_some((id, n))
}
