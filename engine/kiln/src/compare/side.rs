//! One of the two sides of a comparison.

use crate::Engine;
use kiln_runtime::{ExecutionContext, Outputs};

/// An engine on a backend, after a run on the inputs that both sides get.
pub(super) struct Side {
    /// Name of the backend, for reports.
    pub(super) backend: String,
    /// The engine that was run.
    pub(super) engine: Engine,
    /// The context of the run, whose tensors between layers can still be looked at.
    pub(super) context: ExecutionContext,
    /// Results of the run.
    pub(super) outputs: Outputs,
}
