//! The budget of weights that leaves room for the activations of a context.

use kiln_backend::{Device, Program, StreamPlan, Target};

/// Limit of the bytes of weights that are on the device at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    /// The limit; `None` keeps all of them there.
    pub(crate) given: Option<u64>,
    /// Without a limit, take the one that leaves room for a context.
    pub(crate) automatic: bool,
}

impl Budget {
    /// The limit of a program that is not yet on the device.
    pub(crate) fn of(self, program: &Program, target: &Target, device: &dyn Device) -> Option<u64> {
        match self.given {
            None if self.automatic => automatic(program, target, device, 0),
            given => given,
        }
    }
}

/// Bytes of weights that leave room for the activations and the scratch memory of one context. The room is the memory that is free now, and
/// `held` bytes that the program's own weights take. Where the device does not report what is free, its memory in all counts. `None` where
/// all weights fit, or nothing is reported.
pub(crate) fn automatic(program: &Program, target: &Target, device: &dyn Device, held: u64) -> Option<u64> {
    let (total, alignment) = (target.memory.total, target.memory.alignment);
    let free = device.free_memory().ok().map(|free| free.saturating_add(held));
    let known = match (free, total) {
        (Some(free), 0) => free,
        (Some(free), total) => free.min(total),
        (None, 0) => return None,
        (None, total) => total,
    };
    let room = known.saturating_sub(program.memory.arena);
    let weights: u64 = program.weights().map(|(_, t)| t.shared_bytes().len() as u64).sum();
    (weights > room).then(|| room.max(StreamPlan::least(program, alignment)))
}

/// Bytes of a program's weights that are on the device under a limit.
pub(crate) fn resident(program: &Program, target: &Target, budget: Option<u64>) -> u64 {
    let all = || program.weights().map(|(_, t)| t.shared_bytes().len() as u64).sum();
    let plan =
        budget.and_then(|bytes| StreamPlan::new(program, target.memory.alignment, bytes).ok().flatten());
    plan.map_or_else(all, |p| p.resident)
}
