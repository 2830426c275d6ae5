//! Channels last: islands of layers that can have it, with transposes at their borders.
//!
//! Islands are found and rewritten one by one by the search, which keeps those that are faster; the pass rewrites all.

mod rewrite;
mod roles;
mod trim;

pub use rewrite::apply;

use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::{Attrs, Fact, Graph, NodeId, Op, Tensor};
use kiln_ops::layout::to_last;
use kiln_ops::transpose::TRANSPOSE;
use roles::{image_inputs, role};
use std::collections::{BTreeMap, HashMap};

/// End of the names of values with channels last, behind the name in the linear layout.
pub const SUFFIX: &str = ".channels_last";

/// The pass; not among those of every build.
pub const PASS: Pass = Pass { name: "channels-last", run };

/// A tensor in the form with channels last; `None` where it has no channels.
pub fn channels_last(t: &Tensor) -> Option<Tensor> {
    if t.shape().len() < 2 {
        return None;
    }
    let perm: Vec<i64> = to_last(t.shape().len()).into_iter().map(|p| p as i64).collect();
    let mut g = Graph::new("channels last");
    let x = g.add_input("x", Fact::of(t.ty()));
    let op = Op::new(TRANSPOSE, Attrs::new().with("perm", perm)).ok()?;
    g.outputs = vec![g.add("y", op, &[x]).ok()?];
    g.eval(std::slice::from_ref(t)).ok()?.pop()
}

fn run(g: &mut Graph, _: &PassCx<'_>) -> Result<usize, BuildError> {
    let islands = islands(g);
    for island in &islands {
        apply(g, island)?;
    }
    Ok(islands.len())
}

/// Maximal connected sets of layers that can have channels last, each with a layer that may gain by it. Layers at their borders that make
/// transposes larger are left out. Sets are in the order of their first layers, layers in execution order.
pub fn islands(g: &Graph) -> Vec<Vec<NodeId>> {
    let members: Vec<NodeId> = g.nodes().filter(|(_, n)| role(g, n).is_some()).map(|(id, _)| id).collect();
    let position: HashMap<NodeId, usize> = members.iter().enumerate().map(|(i, &n)| (n, i)).collect();
    let mut sets = Sets((0..members.len()).collect());
    for (i, id) in members.iter().enumerate() {
        let Some(node) = g.get(*id) else { continue };
        let rank = node.outputs.first().map_or(0, |&v| g.ty(v).rank());
        for v in image_inputs(g, node).into_iter().filter_map(|k| node.inputs[k]) {
            let before = g.producer(v).and_then(|(p, _)| position.get(&p));
            if let Some(&p) = before.filter(|_| g.ty(v).rank() == rank) {
                sets.join(i, p);
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for (i, &id) in members.iter().enumerate() {
        found.entry(sets.of(i)).or_default().push(id);
    }
    let gain = |n: &NodeId| g.get(*n).is_some_and(roles::gains);
    let uses = g.uses();
    found
        .into_values()
        .filter(|nodes| nodes.iter().any(gain))
        .map(|nodes| trim::trim(g, &uses, nodes))
        .collect()
}

/// Disjoint sets of numbers, each named by its least.
struct Sets(Vec<usize>);

impl Sets {
    fn of(&self, mut i: usize) -> usize {
        while self.0[i] != i {
            i = self.0[i];
        }
        i
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}
