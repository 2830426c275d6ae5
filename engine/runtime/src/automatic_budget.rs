//! The budget of weights that leaves room for the activations of a context.

use kiln_backend::{Program, StreamPlan, Target};

/// Bytes of weights that leave room for the activations and the scratch memory of one context. The device's memory in all counts.
/// `None` where all weights fit, or the device does not report its memory.
pub(crate) fn automatic(program: &Program, target: &Target) -> Option<u64> {
    let (total, alignment) = (target.memory.total, target.memory.alignment);
    let room = total.saturating_sub(program.memory.arena);
    let weights: u64 = program.weights().map(|(_, t)| t.bytes().len() as u64).sum();
    let fits = total == 0 || weights <= room;
    (!fits).then(|| room.max(StreamPlan::least(program, alignment)))
}
