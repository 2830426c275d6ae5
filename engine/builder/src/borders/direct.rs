//! Direct I/O: kernels of a program that only change the type or format of an input or output.

use crate::Reformat;
use kiln_backend::{Program, is_view_op};
use kiln_ir::format::REFORMAT;
use kiln_ir::{Graph, Node, NodeId, ValueId};
use kiln_plan::{IoMode, io_tensors};

/// Whether a layer only changes types and formats at the border.
pub fn is_border(node: &Node) -> bool {
    node.name.split(" + ").all(|name| name.starts_with(REFORMAT))
}

/// Whether these layers are kernels that only reformat.
pub fn is_reformat(g: &Graph, nodes: &[NodeId]) -> bool {
    let all = || nodes.iter().filter_map(|&n| g.get(n));
    all().all(is_border) && !all().all(|n| is_view_op(&n.op))
}

/// Number of regions that only reformat.
pub fn count(g: &Graph, regions: &[Vec<NodeId>]) -> usize {
    regions.iter().filter(|nodes| is_reformat(g, nodes)).count()
}

/// Kernels that only reformat, by input and output.
pub fn left(p: &Program) -> Vec<Reformat> {
    let g = &p.graph;
    let mut found: Vec<Reformat> = Vec::new();
    let io = io_tensors(p);
    for step in p.steps.iter().filter(|s| is_reformat(g, &s.nodes) && !p.is_view(s)) {
        let of = |name: &str| step.name.strip_prefix(REFORMAT).is_some_and(|rest| rest.starts_with(name));
        // The longest name is the one that it begins with as a whole.
        let Some(t) = io.iter().filter(|t| of(&t.name)).max_by_key(|t| t.name.len()) else { continue };
        let ops = step.nodes.iter().filter_map(|&n| Some(g.get(n)?.op.name()));
        let kernel = ops.collect::<Vec<_>>().join(" + ");
        match found.iter_mut().find(|r| r.tensor == t.name && r.mode == t.mode) {
            Some(r) => r.kernels.push(kernel),
            None => {
                let values = if t.mode == IoMode::Input { &g.inputs } else { &g.outputs };
                let v = values.iter().copied().find(|&v| g.value(v).name == t.name);
                let behind = v.map(|v| if t.mode == IoMode::Input { reader(g, v) } else { maker(g, v) });
                let (layer, inner) = behind.unwrap_or_default();
                let wanted = inner.map_or_else(String::new, |v| g.ty(v).to_string());
                let found_in = t.format_description();
                let (tensor, mode) = (t.name.clone(), t.mode);
                found.push(Reformat { tensor, mode, found: found_in, layer, wanted, kernels: vec![kernel] });
            }
        }
    }
    found
}

/// The first layer of the network behind an input, and what it reads.
fn reader(g: &Graph, mut v: ValueId) -> (String, Option<ValueId>) {
    loop {
        let mut readers = g.nodes().map(|(_, n)| n).filter(|n| n.inputs.contains(&Some(v))).peekable();
        let first = readers.peek().copied();
        match (readers.find(|n| !is_border(n)), first.and_then(|n| n.outputs.first())) {
            (Some(node), _) => return (node.name.clone(), Some(v)),
            (None, Some(&y)) => v = y,
            (None, None) => return (g.name.clone(), Some(v)),
        }
    }
}

/// The layer of the network that makes an output, and the value that it makes.
fn maker(g: &Graph, mut v: ValueId) -> (String, Option<ValueId>) {
    while let Some((_, node)) = g.producer(v) {
        match node.inputs.first().copied().flatten().filter(|_| is_border(node)) {
            Some(x) => v = x,
            None => return (node.name.clone(), Some(v)),
        }
    }
    (g.value(v).name.clone(), Some(v))
}
