//! The device object and loaded programs.

use super::context::CudaContext;
use super::kernel::{Modules, StepKernel};
use super::memory::Weights;
use crate::driver::{Event, Gpu, Stream};
use kiln_backend::{BackendError, Context, Device, Executable, Program, Target, TimeRequest};
use std::sync::Arc;

/// An open device.
pub struct CudaDevice {
    gpu: Arc<Gpu>,
    target: Target,
    stream: Arc<Stream>,
    modules: Modules,
}

/// Contexts that one timing rotates through, at most.
const MAX_COPIES: u64 = 16;

impl CudaDevice {
    pub fn new(gpu: Arc<Gpu>, target: Target) -> Result<CudaDevice, BackendError> {
        let stream = Stream::new(&gpu)?;
        Ok(CudaDevice { gpu, target, stream, modules: Modules::default() })
    }

    fn load_program(&self, program: Arc<Program>) -> Result<Loaded, BackendError> {
        self.gpu.bind()?;
        let load = |s| StepKernel::load(&self.gpu, &self.modules, &self.target, &program, s);
        let steps = program.steps.iter().map(load).collect::<Result<_, _>>()?;
        let weights = Weights::upload(&self.stream, &program, self.target.memory.alignment)?;
        let shape_inputs = program.shape_inputs();
        Ok(Loaded { gpu: self.gpu.clone(), program, steps, weights, shape_inputs })
    }

    /// How many copies of a region's tensors don't fit the L2 together, so that no run finds its inputs there.
    fn copies(&self, bytes: u64) -> u64 {
        let l2 = self.target.numbers.get("l2_bytes").copied().unwrap_or(0);
        (2 * l2).div_ceil(bytes.max(1)).clamp(1, MAX_COPIES)
    }
}

/// A loaded program.
pub struct Loaded {
    pub gpu: Arc<Gpu>,
    pub program: Arc<Program>,
    pub steps: Vec<StepKernel>,
    pub weights: Weights,
    pub shape_inputs: Vec<usize>,
}

struct CudaExecutable(Arc<Loaded>);

impl Executable for CudaExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(CudaContext::new(self.0.clone())?))
    }
}

impl Device for CudaDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let program =
            Program::single_step(request.graph.clone(), request.tactic.clone(), request.blob.to_vec());
        let shapes = Arc::new(program.shapes(request.inputs)?);
        let inputs: u64 = request.inputs.iter().map(|t| t.bytes().len() as u64).sum();
        let copies = self.copies(inputs + program.memory.arena);
        let loaded = Arc::new(self.load_program(Arc::new(program))?);
        let stream = Stream::new(&self.gpu)?;
        let mut contexts = Vec::new();
        for _ in 0..copies {
            let mut cx = CudaContext::on(loaded.clone(), stream.clone())?;
            cx.enqueue(request.inputs, &shapes)?;
            cx.outputs()?;
            contexts.push(cx);
        }
        let mut marks = Vec::new();
        let n = contexts.len();
        for k in 0..request.samples as usize {
            let (from, to) = (Event::new(&self.gpu, true)?, Event::new(&self.gpu, true)?);
            let Some(cx) = contexts.get_mut(k % n) else { continue };
            from.record(&stream)?;
            if !cx.repeat()? {
                // What stops for the host is timed with its transfers.
                cx.enqueue(request.inputs, &shapes)?;
            }
            to.record(&stream)?;
            marks.push((from, to));
        }
        stream.synchronize()?;
        marks.iter().map(|(from, to)| Ok(from.until(to)?)).collect()
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(CudaExecutable(Arc::new(self.load_program(program)?))))
    }
}
