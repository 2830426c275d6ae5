//! Layers of a region that compute nothing on the device: views of extras, and shapes that the host alone reads.

use kiln_ir::{Graph, Node, ValueId};
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::SQUEEZE;
use kiln_ops::shape::squeeze::UNSQUEEZE;
use kiln_ops::slice::SLICE;

/// Whether it only changes the indices of its input's elements, and pointwise operators of the region alone
/// read it. Elements of a view are stored as those of its input, from the first one on.
pub fn is_view(graph: &Graph, n: &Node) -> bool {
    let &[y] = &n.outputs[..] else { return false };
    let mut readers = graph.nodes().filter(|(_, r)| r.inputs.contains(&Some(y))).peekable();
    let inner = !graph.outputs.contains(&y) && readers.peek().is_some();
    let as_they_lie = match n.op.id() {
        RESHAPE | SQUEEZE | UNSQUEEZE => true,
        SLICE => is_prefix(graph, n),
        _ => false,
    };
    inner && as_they_lie && readers.all(|(_, r)| r.op.is_pointwise())
}

/// Whether it is a slice by constant bounds, forward and without gaps, of a value from outside that the region's pointwise operators
/// alone read: these can read its input in its place.
pub fn is_read_through(graph: &Graph, n: &Node) -> bool {
    let (&[y], true) = (&n.outputs[..], n.op.is(SLICE)) else { return false };
    let known = |i: usize| n.inputs.get(i).copied().flatten().map(|v| graph.value(v).fact.as_const());
    let bounds = (1..3).all(|i| known(i).flatten().is_some());
    let axes = known(3).is_none_or(|t| t.is_some());
    let steps = known(4).is_none_or(|t| t.is_some_and(|t| t.to_i64().iter().all(|&s| s == 1)));
    let outside = |v: ValueId| graph.inputs.contains(&v) && graph.ty(v).dtype.bits() >= 8;
    let mut readers = graph.nodes().filter(|(_, r)| r.inputs.contains(&Some(y))).peekable();
    let inner = !graph.outputs.contains(&y) && readers.peek().is_some();
    inner
        && bounds
        && axes
        && steps
        && n.inputs.first().copied().flatten().is_some_and(outside)
        && readers.all(|(_, r)| r.op.is_pointwise())
}

/// Elements of a slice's result that are neighbours in its input, if they are known: those from the last axis on that it cuts.
pub fn neighbours(graph: &Graph, n: &Node) -> Option<usize> {
    let (x, y) = (n.inputs.first().copied().flatten()?, *n.outputs.first()?);
    let (from, to) = (graph.ty(x).static_dims()?, graph.ty(y).static_dims()?);
    let cut = from.iter().zip(&to).rposition(|(a, b)| a != b).unwrap_or(0);
    Some(to.iter().skip(cut).product())
}

/// Whether the result of a slice is the first elements of its input.
fn is_prefix(graph: &Graph, n: &Node) -> bool {
    let ints = |i: usize| {
        let v = n.inputs.get(i).copied().flatten();
        v.map(|v| graph.value(v).fact.as_const().map(kiln_ir::Tensor::to_i64))
    };
    let all = |list: &Option<Option<Vec<i64>>>, x: i64| match list {
        None => x == 1,
        Some(known) => known.as_ref().is_some_and(|v| v.iter().all(|&a| a == x)),
    };
    // Along the first axis only.
    all(&ints(1), 0) && all(&ints(4), 1) && ints(3).flatten().is_some_and(|axes| axes == [0])
}

/// Whether it is a result that the host knows and alone reads.
pub fn is_on_host(graph: &Graph, n: &Node) -> bool {
    let &[y] = &n.outputs[..] else { return false };
    let reads = |r: &Node| {
        let at = |(i, v): (usize, &Option<ValueId>)| *v == Some(y) && !r.op.port(i).is_some_and(|p| p.host);
        r.inputs.iter().enumerate().any(at)
    };
    n.op.roles().host_known && !graph.outputs.contains(&y) && !graph.nodes().any(|(_, r)| reads(r))
}
