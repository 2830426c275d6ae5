//! The layer at fault inside of a kernel that runs several: found by builds in which the kernel is cut at one of its tensors.

use kiln_backend::Program;
use kiln_builder::passes::layout::SUFFIX;
use kiln_ir::{Graph, NodeId, Tensor, ValueId};
use kiln_runtime::ExecutionContext;
use std::collections::BTreeSet;
use std::fmt;

/// Layers at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Culprit {
    /// The first kernel of which a result differs.
    pub kernel: String,
    /// Kernels in front of it that may be at fault, as their results cannot be compared.
    pub in_front: Vec<String>,
    /// Layers of these kernels of which one at least is at fault: those between tensors that agree and the one that differs.
    pub layers: Vec<String>,
    /// The first tensor that differs.
    pub tensor: String,
    /// Number of builds.
    pub builds: usize,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Culprit { kernel, in_front, layers, tensor, builds } = self;
        let list = |all: &[String]| all.iter().map(|l| format!("\"{l}\"")).collect::<Vec<_>>().join(", ");
        let which = if layers.len() == 1 { "the layer at fault is" } else { "the fault is in the layers" };
        write!(f, "{which} {} of the kernel \"{kernel}\"", list(layers))?;
        if !in_front.is_empty() {
            write!(f, ", or of {} in front of it, whose results cannot be compared", list(in_front))?;
        }
        write!(f, ": tensor \"{tensor}\" differs")?;
        match builds {
            0 => Ok(()),
            1 => f.write_str(" (1 build)"),
            n => write!(f, " ({n} builds)"),
        }
    }
}

/// Finds the layers at fault where a tensor between kernels of `program` is wrong. The fault is behind the tensors that agree by their
/// names. `wanted` has run the network right, and `rebuild` builds and runs it as `program` was built, with one more debug tensor: the
/// kernel ends there. It returns `None` for a tensor that the network does not have. `agree` compares a tensor that was found with the
/// right one. `None` where no kernel computes the tensor.
///
/// # Errors
/// Errors of `rebuild`.
pub fn culprit<E>(
    tensor: &str,
    program: &Program,
    agreed: &BTreeSet<String>,
    wanted: &mut ExecutionContext,
    rebuild: &mut dyn FnMut(&str) -> Result<Option<ExecutionContext>, E>,
    agree: &dyn Fn(&Tensor, &Tensor) -> bool,
) -> Result<Option<Culprit>, E> {
    let g = &program.graph;
    let Some(mut last) = g.find(tensor).and_then(|v| g.producer(v)).map(|(n, _)| n) else { return Ok(None) };
    let kernel_of = |n: NodeId| program.steps.iter().find(|s| s.nodes.contains(&n)).map(|s| s.name.clone());
    let Some(kernel) = kernel_of(last) else { return Ok(None) };
    // Layers that the fault may be in, in execution order: those with right results go.
    let first = ancestors(g, last, agreed);
    let mut suspects: Vec<NodeId> =
        g.order().iter().copied().filter(|n| *n == last || first.contains(n)).collect();
    let mut builds = 0;
    let mut tried = BTreeSet::new();
    loop {
        let before = ancestors(g, last, agreed);
        suspects.retain(|n| *n == last || before.contains(n));
        let open: Vec<NodeId> =
            suspects.iter().copied().filter(|n| *n != last && !tried.contains(n)).collect();
        let Some(&middle) = open.get(open.len() / 2) else { break };
        tried.insert(middle);
        let Some((name, _)) = result(g, middle).map(|v| own_name(&g.value(v).name)) else { continue };
        let Ok(right) = wanted.observe(name) else { continue };
        builds += 1;
        let Some(mut cut) = rebuild(name)? else { continue };
        // Another type is another tensor, as where a cast was moved.
        let Some(found) = cut.observe(name).ok().filter(|t| t.ty() == right.ty()) else { continue };
        if agree(&found, &right) {
            let good = ancestors(g, middle, agreed);
            suspects.retain(|n| *n != middle && !good.contains(n));
        } else {
            last = middle;
        }
    }
    let name = |n: &NodeId| g.get(*n).map(|n| n.name.clone());
    let layers = suspects.iter().filter_map(name).collect();
    let mut in_front: Vec<String> = suspects.iter().filter_map(|n| kernel_of(*n)).collect();
    in_front.dedup();
    in_front.retain(|k| *k != kernel);
    let tensor = result(g, last).map(|v| own_name(&g.value(v).name).0.to_owned()).unwrap_or_default();
    Ok(Some(Culprit { kernel, in_front, layers, tensor, builds }))
}

/// The name that a tensor of an optimized network has in the network, and whether it has channels last there.
pub(crate) fn own_name(name: &str) -> (&str, bool) {
    name.strip_suffix(SUFFIX).map_or((name, false), |own| (own, true))
}

fn result(g: &Graph, node: NodeId) -> Option<ValueId> {
    g.get(node)?.outputs.first().copied()
}

/// Layers that a layer depends on, up to tensors that agree.
fn ancestors(g: &Graph, of: NodeId, agreed: &BTreeSet<String>) -> BTreeSet<NodeId> {
    let (mut found, mut next) = (BTreeSet::new(), vec![of]);
    while let Some(n) = next.pop() {
        let inputs = g.get(n).into_iter().flat_map(|n| n.inputs.iter().flatten());
        let open = inputs.filter(|v| !agreed.contains(&g.value(**v).name));
        for producer in open.filter_map(|&v| g.producer(v)).map(|(p, _)| p) {
            if found.insert(producer) {
                next.push(producer);
            }
        }
    }
    found
}
