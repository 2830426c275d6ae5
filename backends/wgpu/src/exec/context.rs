//! Contexts of the device.

use super::queue::WgpuQueue;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, Context, Counters, HostStep, Shapes, StepTime};
use kiln_gpu::{GpuContext, Loaded};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

/// Runs a program on the queue of its device.
pub struct WgpuContext {
    pub inner: GpuContext<Gpu>,
    /// Pipelines of the device when the context was made.
    pipelines: u64,
}

impl WgpuContext {
    pub fn new(loaded: &Arc<Loaded<Gpu>>) -> Result<WgpuContext, BackendError> {
        let inner = GpuContext::new(loaded, WgpuQueue::new(&loaded.device))?;
        Ok(WgpuContext { inner, pipelines: loaded.device.compilations() })
    }
}

impl Context for WgpuContext {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.inner.enqueue(inputs, shapes)
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        self.inner.outputs()
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.inner.wait()
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        self.inner.observe(value)
    }

    fn set_observable(&mut self, on: bool) {
        self.inner.set_observable(on);
    }

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        Ok(self.inner.run.all_host_steps())
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.inner.step_times()
    }

    fn counters(&self) -> Counters {
        let made = self.inner.queue.gpu.compilations() - self.pipelines;
        Counters { compilations: made, pipelines: made, ..self.inner.counters() }
    }
}
