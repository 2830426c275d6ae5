//! Steps at which a run waits for the host, or is expected to, and why.

use crate::field;
use minicbor::{Decode, Encode};

/// Reason why a run needs the host at a step, and advice on how to avoid it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Part of a sentence: "a carried value changes its size".
    pub why: &'static str,
    /// Change of the network, the inputs or the machine that avoids the wait.
    pub advice: &'static str,
}

/// A layer whose result size depends on data, within bounds. All is computed on the device, and the host
/// reads the size. Strict builds report it, but do not refuse it.
pub const SIZES: Reason = Reason {
    why: "how large its results are is found on the device",
    advice: "mask elements instead of picking them, if the size may stay as it is",
};

/// Sizes that nothing bounds, so that no memory can be planned.
pub const UNBOUNDED_SIZES: Reason = Reason {
    why: "how large its results are is found on the device, and nothing bounds it",
    advice: "give the network's inputs greatest sizes in the profile",
};

/// A layer that checks.
pub const CHECKS: Reason =
    Reason { why: "the host reads what it checks", advice: "leave the assertion out of the network" };

/// A layer whose kernel cannot be started before contents are known.
pub const CONTENTS: Reason = Reason {
    why: "it is told shapes, axes or sizes that are computed on the device",
    advice: "compute them from shapes, or give them as inputs of the network",
};

/// A plug-in layer without a kernel for the device.
pub const PLUGIN: Reason = Reason {
    why: "the plug-in has no kernel of this layer for the device, so that the host runs its reference form",
    advice: "ask the plug-in's author for an expression, or a kernel in the backend's language",
};

/// Weights that are not on the device all the time.
pub const WEIGHTS: Reason = Reason {
    why: "the host copies weights that it reads, as the budget for weights on the device does not hold all of them",
    advice: "raise the budget for weights",
};

/// Control flow whose decisions the host reads, as no kernel starts another one.
pub const DECISIONS: Reason = Reason {
    why: "the host reads numbers of iterations, conditions, or sizes that are computed inside",
    advice: "give numbers of iterations and conditions as constants or inputs of the network, or run on a backend that decides on the device (cuda)",
};

/// Control flow in a network that is not one piece of work of the device.
pub const BESIDE: Reason = Reason {
    why: "the same network or body has layers that give as much as they find, check, or draw random numbers",
    advice: "leave such layers out, give random numbers a seed, or build them as an engine of their own",
};

/// Control flow whose body needs the host.
pub const INSIDE: Reason = Reason {
    why: "a layer inside gives as much as it finds, checks, draws random numbers, or is told sizes that are computed there",
    advice: "move that layer out, give random numbers a seed, or compute sizes from shapes and inputs of the network",
};

/// Control flow whose body has a native form that graphs cannot record.
pub const CALLED: Reason = Reason {
    why: "a plug-in layer inside has a native form that no graph records, so that each run calls its library",
    advice: "ask the plug-in's author for a form with KILN_NATIVE_CAPTURABLE, or move the layer out",
};

/// Control flow with sizes that nothing bounds.
pub const UNBOUNDED: Reason = Reason {
    why: "a size of what it reads, carries or stacks is not known before the run, and nothing bounds it",
    advice: "bound the number of iterations by a constant or an input, and let carried tensors keep their sizes",
};

/// A layer that a backend of kernels has none for.
pub const BY_ORACLE: Reason = Reason {
    why: "it has no kernel here: its operator's reference implementation computes it, which is slow",
    advice: "use another operator or element type, or another backend",
};

/// The tactic that computes layers by the reference implementations of their operators.
pub const ORACLE: &str = "oracle";

/// The feature of a target whose backend takes [`ORACLE`] for layers without a kernel only. Builds report such layers, and strict
/// ones refuse them.
pub const ORACLE_IS_FALLBACK: &str = "oracle_is_fallback";

/// The feature of a target whose device is the host itself, so that nothing waits for it.
pub const HOST_IS_DEVICE: &str = "host_is_device";

/// The feature of a target that keeps control flow on the device wherever its sizes are bounded.
pub const DEVICE_FLOW: &str = "device_flow";

/// A step at which the last run waited for the host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct HostStep {
    /// Index of the step.
    #[n(0)]
    pub step: usize,
    /// Path of a step inside of it, as in `StepTime::inside`.
    #[cbor(n(2), with = "field::pairs", has_nil)]
    pub inside: Vec<(usize, usize)>,
    /// Reason, as part of a sentence.
    #[n(1)]
    pub why: String,
    /// Advice on how to avoid the wait; may be empty.
    #[cbor(n(3), skip_if = "String::is_empty")]
    pub advice: String,
}

impl HostStep {
    /// A step of the program.
    pub fn new(step: usize, reason: Reason) -> HostStep {
        HostStep { step, inside: Vec::new(), why: reason.why.to_owned(), advice: reason.advice.to_owned() }
    }

    /// Adds a step unless it is there for the same reason, as in another iteration.
    pub fn add(all: &mut Vec<HostStep>, step: usize, reason: Reason) {
        if !all.iter().any(|s| s.step == step && s.why == reason.why) {
            all.push(HostStep::new(step, reason));
        }
    }

    /// Whether the host only reads how much the device found, within bounds. Strict builds take such steps.
    pub fn reads_sizes(&self) -> bool {
        self.why == SIZES.why
    }

    /// A step of a body, as one inside of a step.
    pub fn within(self, step: usize, body: usize) -> HostStep {
        let inside = std::iter::once((body, self.step)).chain(self.inside).collect();
        HostStep { step, inside, ..self }
    }
}
