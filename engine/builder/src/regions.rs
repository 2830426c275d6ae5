//! Cuts a graph into regions: pointwise chains, and one anchor with the pointwise layers that follow it.
//!
//! The backend is asked whether it runs a grown region as one kernel; what it refuses stays apart. Nothing here is
//! needed for correctness: a region of one node always exists.

use kiln_backend::{Backend, Region, Target};
use kiln_ir::{Graph, Node, NodeId, ValueId};
use std::collections::{HashMap, HashSet};

/// Nodes of one region grow no further than this.
const MAX_NODES: usize = 24;

/// Operators that take pointwise layers behind them into their kernel, if the backend agrees.
const ANCHORS: &[&str] = &[
    "matmul",
    "conv",
    "conv_transpose",
    "pool",
    "reduce",
    "softmax",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "batch_norm",
    "gather",
    "transpose",
    "concat",
    "resize",
];

/// Regions in execution order; together they cover every node once.
pub fn form(g: &Graph, backend: &dyn Backend, target: &Target, fuse: bool) -> Vec<Vec<NodeId>> {
    let mut former = Former { g, backend, target, uses: g.uses(), of: HashMap::new(), regions: Vec::new() };
    for (id, node) in g.nodes() {
        let home = if fuse && node.op.is_pointwise() { former.join(id, node) } else { None };
        match home {
            Some(r) => former.regions[r].push(id),
            None => former.regions.push(vec![id]),
        }
        let r = home.unwrap_or(former.regions.len() - 1);
        former.of.insert(id, r);
    }
    schedule(g, former.regions, &former.of)
}

struct Former<'a> {
    g: &'a Graph,
    backend: &'a dyn Backend,
    target: &'a Target,
    uses: HashMap<ValueId, Vec<(NodeId, usize)>>,
    of: HashMap<NodeId, usize>,
    regions: Vec<Vec<NodeId>>,
}

impl Former<'_> {
    /// The region that a pointwise node may be appended to.
    fn join(&self, id: NodeId, node: &Node) -> Option<usize> {
        let mut candidates: Vec<usize> = node
            .inputs
            .iter()
            .flatten()
            .filter(|v| self.only_read_here(**v, id))
            .filter_map(|v| self.of.get(&self.g.producer(*v)?.0).copied())
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        // The latest region first: an anchor just before is the best home.
        candidates.into_iter().rev().find(|&r| self.may_join(r, id, node))
    }

    /// Is this node the only reader, so that the value need not be stored?
    fn only_read_here(&self, v: ValueId, id: NodeId) -> bool {
        !self.g.outputs.contains(&v) && self.uses.get(&v).is_some_and(|u| u.iter().all(|(n, _)| *n == id))
    }

    fn may_join(&self, r: usize, id: NodeId, node: &Node) -> bool {
        let members = &self.regions[r];
        let Some(head) = members.first().and_then(|&n| self.g.get(n)) else { return false };
        if members.len() >= MAX_NODES || !(head.op.is_pointwise() || ANCHORS.contains(&head.op.name())) {
            return false;
        }
        let last_shape =
            members.last().and_then(|&n| Some(self.g.ty(*self.g.get(n)?.outputs.first()?).dims.clone()));
        let same_shape = last_shape.as_ref() == node.outputs.first().map(|&v| &self.g.ty(v).dims);
        if !same_shape || self.would_cycle(r, node) {
            return false;
        }
        let grown: Vec<NodeId> = members.iter().copied().chain([id]).collect();
        Region::extract(self.g, &grown).is_ok_and(|region| {
            region.outputs.len() == 1
                && self.backend.tactics(&region, self.target).is_ok_and(|t| !t.is_empty())
        })
    }

    /// Does an input of the node come from outside the region and yet depend on it?
    fn would_cycle(&self, r: usize, node: &Node) -> bool {
        let outside = |v: &ValueId| self.g.producer(*v).filter(|(p, _)| self.of.get(p) != Some(&r));
        let mut stack: Vec<&Node> =
            node.inputs.iter().flatten().filter_map(outside).map(|(_, n)| n).collect();
        let mut seen = HashSet::new();
        while let Some(n) = stack.pop() {
            for (p, above) in n.inputs.iter().flatten().filter_map(|v| self.g.producer(*v)) {
                if self.of.get(&p) == Some(&r) {
                    return true;
                }
                if seen.insert(p) {
                    stack.push(above);
                }
            }
        }
        false
    }
}

/// Orders regions so that each comes after those it reads, keeping the order of their first nodes where possible.
fn schedule(g: &Graph, regions: Vec<Vec<NodeId>>, of: &HashMap<NodeId, usize>) -> Vec<Vec<NodeId>> {
    let mut waits: Vec<HashSet<usize>> = Vec::with_capacity(regions.len());
    for (r, nodes) in regions.iter().enumerate() {
        let reads = nodes.iter().filter_map(|&n| g.get(n)).flat_map(|n| n.inputs.iter().flatten());
        waits.push(reads.filter_map(|v| of.get(&g.producer(*v)?.0).copied()).filter(|&p| p != r).collect());
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); regions.len()];
    waits.iter().enumerate().for_each(|(r, w)| w.iter().for_each(|&p| readers[p].push(r)));
    let mut left: Vec<usize> = waits.iter().map(HashSet::len).collect();
    let mut ready: std::collections::BTreeSet<usize> = (0..regions.len()).filter(|&r| left[r] == 0).collect();
    let mut order = Vec::with_capacity(regions.len());
    while let Some(r) = ready.pop_first() {
        order.push(r);
        for &reader in &readers[r] {
            left[reader] -= 1;
            if left[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    order.into_iter().map(|r| regions[r].clone()).collect()
}
