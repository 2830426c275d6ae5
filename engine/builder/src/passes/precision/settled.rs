//! Layers that stay in f32 by rule, and may yet be narrowed where that costs no accuracy.
//!
//! Operators that overflow or lose too much in narrow types ([`kiln_ir::op::Roles::keeps_f32`]) are not narrowed by choice. Where
//! their operands are widened from a narrow type, and their result fits that type, both forms have the same accuracy.

use super::{Types, host, takes};
use kiln_ir::graph::Uses;
use kiln_ir::{DType, Graph, Node, NodeId, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::cast::bitcast::BITCAST;
use kiln_ops::reduce::REDUCE;
use kiln_ops::sample::resize::RESIZE;

/// The narrower type of a layer that stays in f32 otherwise, where that costs no accuracy. Its operands are widened from that type,
/// and its sums are of f32 in both forms. Its result is as large as its elements, or all readers round it to that type.
pub(super) fn settled(
    g: &Graph,
    id: NodeId,
    node: &Node,
    permitted: &[DType],
    types: &Types,
    uses: &Uses,
) -> Option<DType> {
    let plain = node.op.is_pointwise() || node.op.is(CAST) || node.op.is(BITCAST);
    if node.meta.precision.is_some() || plain || types.contains_key(&id) {
        return None;
    }
    let wide =
        |(i, v): (usize, &Option<ValueId>)| v.filter(|&v| g.ty(v).dtype == DType::F32 && !host(node, i));
    let mut sources = node.inputs.iter().enumerate().filter_map(wide).map(|v| {
        let (_, cast) = g.producer(v).filter(|(_, n)| n.op.is(CAST))?;
        Some(g.ty(cast.inputs.first().copied().flatten()?).dtype)
    });
    let from = sources.next()??;
    let same = sources.all(|t| t == Some(from));
    let fits = || bounded(node) || node.outputs.iter().all(|&y| rounded(g, y, from, types, uses));
    (node.op.roles().keeps_f32 && same && permitted.contains(&from) && fits()).then_some(from)
}

/// Whether no result of the layer is larger than the greatest element that it reads.
pub fn bounded(node: &Node) -> bool {
    let attr = |name| node.op.attrs().str(name);
    match node.op.id() {
        REDUCE => matches!(attr("op"), Ok("mean" | "max" | "min")),
        RESIZE => matches!(attr("mode"), Ok("nearest" | "linear")),
        _ => false,
    }
}

/// Whether all who read a value of f32 take it as this type.
fn rounded(g: &Graph, y: ValueId, to: DType, types: &Types, uses: &Uses) -> bool {
    let as_narrow = |&(id, i): &(NodeId, usize)| {
        g.get(id).is_some_and(|n| match n.op.is(CAST) {
            true => n.op.attrs().dtype("to").is_ok_and(|t| t == to),
            false => !host(n, i) && types.get(&id) == Some(&to) && takes(g, n, to),
        })
    };
    let readers = uses.of_value(y);
    g.ty(y).dtype != DType::F32
        || (!uses.is_output(y) && !readers.is_empty() && readers.iter().all(as_narrow))
}
