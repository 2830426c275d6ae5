//! Plug-in layers that the host runs by their reference form, between kernels of a device.

use crate::{Region, Step, Tactic};
use kiln_ir::{Graph, Node, NodeId};
use kiln_ops::plugin::PLUGIN;

/// The tactic of a plug-in layer that the host runs.
pub const ON_HOST: &str = "on_host";

/// The tactic for a region that is one plug-in layer; none for other regions.
pub fn tactic(region: &Region) -> Option<Tactic> {
    let note = "the layer has no kernel for this backend: each run copies its inputs to the host and waits";
    layer(&region.graph).map(|_| Tactic { note: note.into(), ..Tactic::plain(ON_HOST) })
}

/// The only node of a region's graph, if it is a plug-in layer.
pub fn layer(graph: &Graph) -> Option<&Node> {
    let mut nodes = graph.nodes();
    let (_, first) = nodes.next()?;
    (nodes.next().is_none() && first.op.is(PLUGIN)).then_some(first)
}

/// The node that the host runs in a step.
pub fn node<'a>(graph: &'a Graph, step: &Step) -> Option<(NodeId, &'a Node)> {
    match step.nodes[..] {
        [only] if step.tactic.name == ON_HOST => Some((only, graph.get(only).filter(|n| n.op.is(PLUGIN))?)),
        _ => None,
    }
}
