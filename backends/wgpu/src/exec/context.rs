//! Contexts of the device.

use super::queue::WgpuQueue;
use super::stamps::Stamps;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, Context, Counters, HostStep, Shapes, StepTime};
use kiln_gpu::{GpuContext, Loaded, Queue as _};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

/// Repetitions of a run in one submission at most, and the nanoseconds that those of one may take.
const AT_ONCE: usize = 64;
const TOGETHER: f64 = 2e7;

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

impl WgpuContext {
    /// Nanoseconds of so many repetitions of the last run: several in one submission, as the host takes long to learn of its end.
    pub(super) fn repeated(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        let loaded = self.inner.loaded();
        let stamps = Stamps::of_runs(&loaded.device, loaded.program.steps.len(), AT_ONCE)?;
        self.inner.run.set_timing()?;
        let own = self.inner.run.times.stamps.replace(stamps);
        let times = self.in_turns(runs as usize);
        self.inner.run.times.stamps = own;
        times
    }

    fn in_turns(&mut self, runs: usize) -> Result<Vec<f64>, BackendError> {
        let mut times: Vec<f64> = Vec::new();
        while times.len() < runs {
            let room = self.inner.run.times.stamps.as_ref().map_or(1, Stamps::runs);
            // One first, to know how many take long enough.
            let fits = times.first().map_or(1.0, |ns| (TOGETHER / ns.max(1.0)).max(1.0));
            let count = room.min(fits as usize).min(runs - times.len());
            for run in 0..count {
                if let Some(stamps) = &mut self.inner.run.times.stamps {
                    stamps.run = run;
                }
                if !self.inner.repeat()? {
                    let why = "timing runs that need the host, or have no step, without transfers";
                    return Err(BackendError::Unsupported(why.into()));
                }
            }
            let GpuContext { run, queue, .. } = &mut self.inner;
            queue.wait()?;
            let found = run.times.stamps.as_ref().map(|s| s.whole(queue, count)).transpose()?;
            match found.filter(|all| all.len() == count) {
                Some(all) => times.extend(all),
                None => return Err(BackendError::Unsupported("timing runs that leave no timestamps".into())),
            }
        }
        Ok(times)
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

    fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        let gpu = &self.inner.queue.gpu;
        if gpu.target.has("software") {
            return Err(BackendError::Unsupported(format!("timing runs on {}", gpu.target.device)));
        }
        // The read-back memory may still hold outputs of the run.
        self.inner.outputs()?;
        let timed = self.inner.run.times.on;
        let times = self.repeated(runs);
        self.inner.run.times.on = timed;
        times
    }

    fn counters(&self) -> Counters {
        let made = self.inner.queue.gpu.compilations() - self.pipelines;
        Counters { compilations: made, pipelines: made, ..self.inner.counters() }
    }
}
