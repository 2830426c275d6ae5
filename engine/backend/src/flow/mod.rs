//! Control flow on backends that cannot keep it on the device: the host decides, the device runs the bodies.
//!
//! A step whose node is a `loop` or an `if`, with the tactic [`INTERPRETED`], holds a program for each region
//! ([`crate::Step::bodies`]). [`walk`] goes through the node's iterations or picks its branch, and leaves to a [`Machine`]
//! how values are kept and bodies run. [`Bodies`] is the machine of backends whose values are on the host; `kiln-gpu` has the one
//! for values on a device.

mod bodies;
mod deciding;
mod pace;
mod slices;
mod walk;

pub use bodies::{Bodies, LoadedBodies};
pub use deciding::{Decisions, deciding_inputs};
pub use pace::Pace;
pub use slices::{SLICES, gives_slice, sliced, slices, takes_slice};
pub use walk::{Machine, stacks_nothing, walk};

use crate::{BackendError, Program, Region, Step, Tactic};
use kiln_ir::{Graph, Node, ValueId};
use kiln_ops::control::LOOP;

/// The tactic of control flow that the host walks.
pub const INTERPRETED: &str = "interpreted";

/// Parameter of [`INTERPRETED`], of backends that keep loops on the device: the most commands that a loop may come to when its
/// iterations are written out one behind the other; 0 keeps it a loop. Where it is absent the backend decides.
pub const UNROLLED: &str = "unrolled";

/// The tactic for a region that is one `loop` or `if`; none for other regions.
pub fn tactic(region: &Region) -> Option<Tactic> {
    let mut nodes = region.graph.nodes();
    let (_, first) = nodes.next()?;
    (nodes.next().is_none() && !first.regions.is_empty()).then(|| Tactic::plain(INTERPRETED))
}

/// Number of iterations of a region that is one loop without a condition, if that is known when it is built.
pub fn iterations(region: &Region) -> Option<i64> {
    let g = &region.graph;
    let (_, node) = g.nodes().next().filter(|_| tactic(region).is_some())?;
    node.op.is(LOOP).then_some(())?;
    node.loop_shape(node.inputs.len()).ok().filter(|s| s.count && !s.condition)?;
    let count = node.inputs.first().copied().flatten()?;
    g.value(count).fact.as_const()?.scalar_i64().map(|n| n.max(0))
}

/// The node that an interpreted step walks.
pub fn node<'a>(graph: &'a Graph, step: &Step) -> Option<&'a Node> {
    match step.nodes[..] {
        [only] if step.tactic.name == INTERPRETED => graph.get(only).filter(|n| !n.regions.is_empty()),
        _ => None,
    }
}

/// The node that the step of this number walks, and its inputs; [`checked`] made sure that there is one.
pub fn walked(program: &Program, step: usize) -> Result<(&Node, Vec<ValueId>), BackendError> {
    let node = program.steps.get(step).and_then(|s| node(&program.graph, s)).ok_or_else(|| lost(step))?;
    let inputs = node.inputs.iter().map(|v| v.ok_or_else(|| lost(step))).collect::<Result<_, _>>()?;
    Ok((node, inputs))
}

/// A step of control flow lacks what it was loaded with.
pub fn lost(step: usize) -> BackendError {
    BackendError::Internal(format!("step {step} of control flow lost its node, an input or its bodies"))
}

/// Like [`node`], but refuses a step that is to be walked, and has no loop or conditional.
pub fn checked<'a>(graph: &'a Graph, step: &Step) -> Result<Option<&'a Node>, BackendError> {
    let found = node(graph, step);
    if found.is_none() && step.tactic.name == INTERPRETED {
        return Err(BackendError::InvalidArgument(format!(
            "step \"{}\" is to be {INTERPRETED}, and is no single loop or conditional",
            step.name
        )));
    }
    Ok(found)
}
