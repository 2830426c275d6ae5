//! Regions at the largest shapes of a profile: what a backend refuses there is refused by the build, not by a run.

use crate::BuildError;
use crate::points::{Points, Span};
use crate::tuner::{Choice, Tuner, concretize};
use kiln_backend::{Region, flow, is_view_op};
use kiln_ir::{Fact, Graph, Node, TensorType, ValueId};

/// Values of more elements than this are asked about; no backend has a limit below it that depends on elements alone.
const LARGE: u64 = i32::MAX as u64;

/// The choice for a region, or another tactic where the backend does not offer it for tensors as large as the profile allows.
/// Where no bound of a size is known, what was chosen stays, and a run checks it.
pub fn checked(
    tuner: &Tuner<'_>,
    g: &Graph,
    layer: &str,
    region: &Region,
    points: &Points,
    choice: Choice,
) -> Result<Choice, BuildError> {
    let mut choice = choice;
    if choice.tactic.name == flow::INTERPRETED {
        return Ok(choice);
    }
    for span in &points.spans {
        let Some(graph) = largest(region, points, span) else { continue };
        if !graph.value_ids().any(|v| is_large(graph.ty(v))) {
            continue;
        }
        let at = Region { graph, ..region.clone() };
        let offered = tuner.backend.tactics(&at, tuner.target).map_err(|e| {
            let of = "at the largest shapes of the profile";
            tuner.refused(layer, &at, format!("{of}: {e}"))
        })?;
        if offered.iter().any(|t| t.id() == choice.tactic.id()) {
            continue;
        }
        let Some(first) = offered.into_iter().next() else { continue };
        choice = Choice { tactic: first, ns: None, key: None, candidates: choice.candidates };
    }
    check_bindings(tuner, g, layer, region, points)?;
    Ok(choice)
}

/// Refuses a tensor of varying size that becomes larger than what one kernel argument spans. Backends may split a tensor over
/// several arguments only where its size is known when the kernel is written.
fn check_bindings(
    tuner: &Tuner<'_>,
    g: &Graph,
    layer: &str,
    region: &Region,
    points: &Points,
) -> Result<(), BuildError> {
    let (inside, limit) = (&region.graph, tuner.target.memory.max_binding);
    if inside.nodes().all(|(_, n)| is_view_op(&n.op)) {
        return Ok(());
    }
    let read = |v: ValueId| {
        let by = |n: &Node| n.inputs.iter().enumerate().any(|(i, x)| *x == Some(v) && on_device(n, i));
        inside.nodes().any(|(_, n)| by(n))
    };
    let inputs = inside.inputs.iter().zip(&region.inputs).filter(|(v, _)| read(**v));
    for (&v, &outer) in inputs.chain(inside.outputs.iter().zip(&region.outputs)) {
        if inside.ty(v).static_dims().is_some() {
            continue;
        }
        let sizes = points.spans.iter().filter_map(|s| s.size(s.facts.get(outer.0 as usize)?));
        if let Some(bytes) = sizes.max().filter(|b| *b > limit) {
            let (name, ty, device) = (&g.value(outer).name, g.ty(outer), &tuner.target.device);
            return Err(tuner.refused(layer, region, format!(
                "at the largest shapes of the profile tensor \"{name}\" ({ty}) has {bytes} bytes, and one binding of {device} \
                 spans {limit} bytes; lower the greatest shapes, or give the tensor a fixed shape, so that it is split over \
                 several bindings"
            )));
        }
    }
    Ok(())
}

/// Whether a node reads the elements of this input on the device.
fn on_device(node: &Node, input: usize) -> bool {
    !(node.op.roles().host_known || node.op.port(input).is_some_and(|p| p.host))
}

/// The region with the largest inputs that a profile allows; `None` where that is not known, or all is static.
fn largest(region: &Region, points: &Points, span: &Span) -> Option<Graph> {
    let mut varies = false;
    let mut facts = Vec::with_capacity(region.inputs.len());
    for v in &region.inputs {
        let (fact, usual) = (span.facts.get(v.0 as usize)?, points.opt.get(v.0 as usize)?);
        if fact.ty.static_dims().is_some() {
            facts.push(usual.clone());
            continue;
        }
        varies = true;
        let dims = span.largest(fact)?;
        facts.push(Fact::of(TensorType::new(fact.ty.dtype, dims)));
    }
    // The results of sizes that host inputs hold are not known from these.
    varies.then(|| concretize(&region.graph, &facts).ok()).flatten()
}

fn is_large(ty: &TensorType) -> bool {
    let Some(dims) = ty.static_dims() else { return false };
    let elements = dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
    elements > LARGE
}
