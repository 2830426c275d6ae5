//! The device object and loaded programs.

use super::context::WgpuContext;
use super::kernel::StepKernel;
use super::memory::Weights;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, Context, Device, Executable, Program, Step, TimeRequest, flow};
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

    fn load_program(&self, program: Arc<Program>) -> Result<Loaded, BackendError> {
        let steps = program.steps.iter().map(|s| StepKernel::load(&self.gpu, &program, s));
        let steps = steps.collect::<Result<_, _>>()?;
        let bodies = program.steps.iter().map(|s| self.load_bodies(&program, s));
        let bodies = bodies.collect::<Result<_, _>>()?;
        let weights = Weights::upload(&self.gpu, &program)?;
        let shape_inputs = program.shape_inputs();
        let deciding = flow::deciding_inputs(&program, flow::Decisions::All);
        Ok(Loaded { gpu: self.gpu.clone(), program, steps, bodies, weights, shape_inputs, deciding })
    }

    fn load_bodies(&self, program: &Program, step: &Step) -> Result<Vec<Arc<Loaded>>, BackendError> {
        let Some(node) = flow::checked(&program.graph, step)? else { return Ok(Vec::new()) };
        step.check_bodies(node)?;
        step.bodies.iter().map(|p| Ok(Arc::new(self.load_program(Arc::new(p.clone()))?))).collect()
    }
}

/// A loaded program.
pub struct Loaded {
    pub gpu: Arc<Gpu>,
    pub program: Arc<Program>,
    pub steps: Vec<StepKernel>,
    /// For each step that the host walks, its bodies; none for others.
    pub bodies: Vec<Vec<Arc<Loaded>>>,
    pub weights: Weights,
    pub shape_inputs: Vec<usize>,
    /// Positions of further inputs whose elements the host plans by where it knows them, by [`flow::deciding_inputs`].
    pub deciding: Vec<usize>,
}

impl Loaded {
    /// Whether launches may depend on the elements of this input.
    pub fn plans_by(&self, input: usize) -> bool {
        self.shape_inputs.contains(&input) || self.deciding.contains(&input)
    }
}

struct WgpuExecutable(Arc<Loaded>);

impl Executable for WgpuExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(WgpuContext::new(self.0.clone())?))
    }
}

impl Device for WgpuDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let program =
            Program::single_step(request.graph.clone(), request.tactic.clone(), request.blob.to_vec());
        let shapes = Arc::new(program.shapes(request.inputs)?);
        let mut cx = WgpuContext::new(Arc::new(self.load_program(Arc::new(program))?))?;
        // A software device's timestamps do not tell the time of one dispatch.
        let stamps = self.gpu.timestamps && !self.gpu.target.has("software");
        cx.set_timing(stamps);
        cx.enqueue(request.inputs, &shapes)?;
        cx.outputs()?;
        let mut samples = Vec::new();
        for _ in 0..request.samples {
            let start = Instant::now();
            cx.repeat()?;
            let wall = start.elapsed().as_secs_f64() * 1e9;
            samples.push(if stamps { cx.step_times()?.iter().map(|t| t.ns).sum() } else { wall });
        }
        Ok(samples)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(WgpuExecutable(Arc::new(self.load_program(program)?))))
    }
}
