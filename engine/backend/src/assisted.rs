//! Steps at which a run waits for the host, and why.

/// Why a run needs the host at a step, and what may be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Part of a sentence: "a carried value changes its size".
    pub why: &'static str,
    /// What to change in the network, the inputs or the machine.
    pub advice: &'static str,
}

/// A layer that gives as much as it finds.
pub const SIZES: Reason = Reason {
    why: "how large its results are is found on the device",
    advice: "mask elements instead of picking them, if the size may stay as it is",
};

/// A layer that checks.
pub const CHECKS: Reason =
    Reason { why: "the host reads what it checks", advice: "leave the assertion out of the network" };

/// A layer whose kernel cannot be started before contents are known.
pub const CONTENTS: Reason = Reason {
    why: "it is told shapes, axes or sizes that are computed on the device",
    advice: "compute them from shapes, or give them as inputs of the network",
};

/// A step at which the last run waited for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// Index of the step.
    pub step: usize,
    /// Where a step inside of it lies, as in [`crate::StepTime::inside`].
    pub inside: Vec<(usize, usize)>,
    /// Why, as part of a sentence.
    pub why: String,
    /// What may be done about it; may be empty.
    pub advice: String,
}

impl HostStep {
    /// A step of the program.
    pub fn new(step: usize, reason: Reason) -> HostStep {
        HostStep { step, inside: Vec::new(), why: reason.why.to_owned(), advice: reason.advice.to_owned() }
    }

    /// Adds a step unless it is there for the same reason, as in another trip.
    pub fn add(all: &mut Vec<HostStep>, step: usize, reason: Reason) {
        if !all.iter().any(|s| s.step == step && s.why == reason.why) {
            all.push(HostStep::new(step, reason));
        }
    }

    /// A step of a body, as one inside of a step.
    pub fn within(self, step: usize, body: usize) -> HostStep {
        let inside = std::iter::once((body, self.step)).chain(self.inside).collect();
        HostStep { step, inside, ..self }
    }
}
