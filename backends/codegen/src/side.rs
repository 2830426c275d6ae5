//! Side results: a reduction of the rows of a region's result, stored as a second output.

use kiln_ir::{Graph, Node};
use kiln_ops::reduce::{REDUCE, mask};

crate::params! {
    /// Rows of a result, in words behind those of the kernel.
    pub struct SideParams {
        /// Elements of a row.
        count: u32,
        /// Number of rows.
        row_count: u32,
        /// Threads of a row, a power of two.
        width: u32,
    }
}

/// The position of a reduction over the last axis of the region's first output whose result is the second one; `None` where the
/// region has other outputs.
pub fn find(g: &Graph, nodes: &[&Node]) -> Option<usize> {
    let &[result, reduced] = &g.outputs[..] else { return None };
    let at = nodes.iter().position(|n| n.outputs == [reduced])?;
    let node = nodes[at];
    let reads = node.op.is(REDUCE) && node.inputs.first() == Some(&Some(result));
    (reads && along_rows(g, node)).then_some(at)
}

/// Whether the axes of a reduction are known, and are the last one alone.
fn along_rows(g: &Graph, node: &Node) -> bool {
    let input = |i: usize| node.inputs.get(i).copied().flatten();
    let axes = match input(1).map(|v| g.value(v).fact.as_const()) {
        Some(None) => return false,
        Some(Some(axes)) => Some(axes.to_i64()),
        None => None,
    };
    let rank = input(0).map_or(0, |v| g.ty(v).rank());
    let reduced = mask(node.op.attrs(), axes.as_deref(), rank).unwrap_or_default();
    rank > 0 && reduced.len() == rank && reduced.iter().enumerate().all(|(i, &r)| r == (i + 1 == rank))
}
