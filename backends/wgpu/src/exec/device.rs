//! The device object.

use super::context::WgpuContext;
use super::queue::WgpuQueue;
use crate::gpu::Gpu;
use kiln_backend::launch::NATIVE_TACTICS;
use kiln_backend::{BackendError, Context, Device, Executable, Program, TimeRequest};
use kiln_gpu::{Loaded, Queue as _, Residency};
use std::sync::Arc;
use std::time::Instant;

/// An open device.
pub struct WgpuDevice {
    gpu: Arc<Gpu>,
}

impl WgpuDevice {
    pub fn new(gpu: Arc<Gpu>) -> WgpuDevice {
        WgpuDevice { gpu }
    }

    fn load_program(
        &self,
        program: Arc<Program>,
        residency: Residency,
    ) -> Result<Arc<Loaded<Gpu>>, BackendError> {
        Ok(Arc::new(Loaded::new(&self.gpu, &mut WgpuQueue::new(&self.gpu), program, residency)?))
    }
}

struct WgpuExecutable(Arc<Loaded<Gpu>>);

impl Executable for WgpuExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(WgpuContext::new(&self.0)?))
    }
}

impl Device for WgpuDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let program =
            Program::single_step(request.graph.clone(), request.tactic.clone(), request.blob.to_vec());
        let shapes = Arc::new(program.shapes(request.inputs)?);
        let mut cx = WgpuContext::new(&self.load_program(Arc::new(program), Residency::Own)?)?.inner;
        // A software device's timestamps do not tell the time of one dispatch, and a plug-in's library may put no dispatch into a step.
        let native = request.tactic.name.starts_with(NATIVE_TACTICS);
        let stamps = self.gpu.timestamps && !self.gpu.target.has("software") && !native;
        if stamps {
            cx.run.set_timing()?;
        }
        cx.enqueue(request.inputs, &shapes)?;
        cx.outputs()?;
        let mut samples = Vec::new();
        for _ in 0..request.samples {
            let start = Instant::now();
            if !cx.repeat()? {
                // A run that needs the host in between cannot be repeated: it is timed with its transfers.
                cx.enqueue(request.inputs, &shapes)?;
            }
            cx.queue.wait()?;
            let wall = start.elapsed().as_secs_f64() * 1e9;
            samples.push(if stamps { cx.step_times()?.iter().map(|t| t.ns).sum() } else { wall });
        }
        Ok(samples)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(WgpuExecutable(self.load_program(program, Residency::Shared)?)))
    }

    fn load_within(&self, program: Arc<Program>, budget: u64) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(WgpuExecutable(self.load_program(program, Residency::Within(budget))?)))
    }
}
