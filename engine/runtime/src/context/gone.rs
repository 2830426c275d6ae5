//! The context of a process that was forked.

use kiln_backend::{BackendError, Context, Counters, Shapes, StepTime};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

/// Stands where a context was that cannot be used or destroyed here.
pub(super) struct Gone;

fn gone<T>() -> Result<T, BackendError> {
    Err(BackendError::DeviceLost("this process was forked".into()))
}

impl Context for Gone {
    fn enqueue(&mut self, _: &[Tensor], _: &Arc<Shapes>) -> Result<(), BackendError> {
        gone()
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        gone()
    }

    fn observe(&mut self, _: ValueId) -> Result<Tensor, BackendError> {
        gone()
    }

    fn set_observable(&mut self, _: bool) {}

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        gone()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
