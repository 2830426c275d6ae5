//! The layer at fault inside of a kernel that runs several: found by builds in which the kernel is cut at one of its tensors.

use kiln_backend::{Program, Step};
use kiln_ir::{Graph, NodeId, Tensor, ValueId};
use kiln_runtime::ExecutionContext;
use std::collections::BTreeSet;
use std::fmt;

/// Layers at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The kernel that differs as it ships.
    pub kernel: String,
    /// Layers of the kernel of which one at least is at fault: those between tensors that agree and the one that differs.
    pub layers: Vec<String>,
    /// The first tensor that differs.
    pub tensor: String,
    /// Number of builds.
    pub builds: usize,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Culprit { kernel, layers, tensor, builds } = self;
        let named = layers.iter().map(|l| format!("\"{l}\"")).collect::<Vec<_>>().join(", ");
        let which = if layers.len() == 1 { "the layer at fault is" } else { "the fault is in the layers" };
        write!(f, "{which} {named} of the kernel \"{kernel}\": tensor \"{tensor}\" differs ({builds} builds)")
    }
}

/// Finds the layers at fault in a kernel of `program` of which a result is wrong. `wanted` has run the network right, and `rebuild` builds
/// and runs it as `program` was built, with one more debug tensor: the kernel ends there. It returns `None` for a tensor that the network
/// does not have. `agree` compares a tensor that was found with the right one. `None` where no kernel has the name.
///
/// # Errors
/// Errors of `rebuild`.
pub fn culprit<E>(
    kernel: &str,
    program: &Program,
    wanted: &mut ExecutionContext,
    rebuild: &mut dyn FnMut(&str) -> Result<Option<ExecutionContext>, E>,
    agree: &dyn Fn(&Tensor, &Tensor) -> bool,
) -> Result<Option<Culprit>, E> {
    let Some(step) = program.steps.iter().find(|s| s.name == kernel) else { return Ok(None) };
    let g = &program.graph;
    let Some(mut last) = step.nodes.last().copied() else { return Ok(None) };
    // Layers that the fault may be in, in execution order: those with right results go.
    let mut suspects: Vec<NodeId> = step.nodes.clone();
    let mut builds = 0;
    let mut tried = BTreeSet::new();
    loop {
        let before = ancestors(g, step, last);
        suspects.retain(|n| *n == last || before.contains(n));
        let open: Vec<NodeId> =
            suspects.iter().copied().filter(|n| *n != last && !tried.contains(n)).collect();
        let Some(&middle) = open.get(open.len() / 2) else { break };
        tried.insert(middle);
        let Some(name) = result(g, middle).map(|v| &g.value(v).name) else { continue };
        let Ok(right) = wanted.observe(name) else { continue };
        builds += 1;
        let Some(mut cut) = rebuild(name)? else { continue };
        // Another type is another tensor, as where a cast was moved.
        let Some(found) = cut.observe(name).ok().filter(|t| t.ty() == right.ty()) else { continue };
        if agree(&found, &right) {
            let good = ancestors(g, step, middle);
            suspects.retain(|n| *n != middle && !good.contains(n));
        } else {
            last = middle;
        }
    }
    let name = |n: &NodeId| g.get(*n).map(|n| n.name.clone());
    let layers = suspects.iter().filter_map(name).collect();
    let tensor = result(g, last).map(|v| g.value(v).name.clone()).unwrap_or_default();
    Ok(Some(Culprit { kernel: kernel.to_owned(), layers, tensor, builds }))
}

fn result(g: &Graph, node: NodeId) -> Option<ValueId> {
    g.get(node)?.outputs.first().copied()
}

/// Layers of a step that a layer of it depends on.
fn ancestors(g: &Graph, step: &Step, of: NodeId) -> BTreeSet<NodeId> {
    let own: BTreeSet<NodeId> = step.nodes.iter().copied().collect();
    let (mut found, mut next) = (BTreeSet::new(), vec![of]);
    while let Some(n) = next.pop() {
        let inputs = g.get(n).into_iter().flat_map(|n| n.inputs.iter().flatten());
        for producer in inputs.filter_map(|&v| g.producer(v)).map(|(p, _)| p).filter(|p| own.contains(p)) {
            if found.insert(producer) {
                next.push(producer);
            }
        }
    }
    found
}
