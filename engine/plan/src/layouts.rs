//! Order of dimensions of a program's values: those that the search stored with their channels last.

use kiln_ir::op::LayoutRule;
use kiln_ir::{Graph, Node, ValueId};
use kiln_ops::layout::{Layout, moved_inputs};
use std::collections::HashSet;

/// Images of a graph whose channels are their last dimension: operands and results of layers that say so, and of layers that
/// work on these without reordering them.
pub fn channels_last(g: &Graph) -> HashSet<ValueId> {
    let mut found = HashSet::new();
    for (_, n) in g.nodes().filter(|(_, n)| Layout::of(n.op.attrs()) == Layout::ChannelsLast) {
        let images = n.inputs.iter().take(moved_inputs(n.op.def())).flatten();
        found.extend(images.chain(&n.outputs).copied().filter(|&v| g.ty(v).rank() >= 3));
    }
    if found.is_empty() {
        return found;
    }
    // Forwards and backwards until nothing changes; each round ends, as sets only grow.
    loop {
        let before = found.len();
        g.nodes().for_each(|(_, n)| spread(g, n, &mut found));
        g.nodes().rev().for_each(|(_, n)| spread(g, n, &mut found));
        if found.len() == before {
            return found;
        }
    }
}

/// One layer that keeps the order: what it reads and makes has the same.
fn spread(g: &Graph, n: &Node, found: &mut HashSet<ValueId>) {
    let keeps = n.op.is_pointwise() || matches!(n.op.roles().layout, LayoutRule::Axes(_));
    let Some(rank) = n.outputs.first().map(|&v| g.ty(v).rank()).filter(|_| keeps) else { return };
    let images = || n.inputs.iter().flatten().chain(&n.outputs).copied().filter(|&v| g.ty(v).rank() == rank);
    if images().any(|v| found.contains(&v)) {
        found.extend(images().filter(|&v| g.weight(v).is_none()));
    }
}
