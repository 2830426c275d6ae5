//! The device object and loaded programs.

use super::context::CudaContext;
use super::kernel::{Modules, StepKernel};
use super::memory::{Weights, naming};
use crate::driver::{Buffer, Event, Gpu, Module, Pinned, Stream};
use kiln_backend::{
    BackendError, Context, Device, Executable, Program, Shapes, Step, Target, TimeRequest, flow,
};
use std::sync::{Arc, Mutex, PoisonError};

/// An open device.
pub struct CudaDevice {
    gpu: Arc<Gpu>,
    target: Target,
    stream: Arc<Stream>,
    modules: Modules,
    /// What timings share: one is done at a time.
    bench: Mutex<Bench>,
}

/// Memory and a stream that timings use again.
struct Bench {
    stream: Arc<Stream>,
    staging: Option<Pinned>,
    /// Twice the L2: written before each run, so that none finds its inputs there.
    flush: Option<Buffer>,
}

/// A cache larger than this is taken for a mistake.
const MAX_FLUSH: u64 = 1 << 30;

impl CudaDevice {
    pub fn new(gpu: Arc<Gpu>, target: Target) -> Result<CudaDevice, BackendError> {
        let stream = Stream::new(&gpu)?;
        let bench = Mutex::new(Bench { stream: Stream::new(&gpu)?, staging: None, flush: None });
        Ok(CudaDevice { gpu, target, stream, modules: Modules::default(), bench })
    }

    fn load_program(&self, program: Arc<Program>) -> Result<Loaded, BackendError> {
        self.gpu.bind()?;
        let load = |s| StepKernel::load(&self.gpu, &self.modules, &self.target, &program, s);
        let steps = program.steps.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let bodies = program.steps.iter().map(|s| self.load_bodies(&program, s));
        let bodies = bodies.collect::<Result<Vec<Option<Vec<_>>>, BackendError>>()?;
        let weights = Weights::upload(&self.stream, &program, self.target.memory.alignment)?;
        let shape_inputs = program.shape_inputs();
        let counts = flow::deciding_inputs(&program, flow::Decisions::Sizes);
        let nested = bodies.iter().any(Option::is_some);
        let moves = if nested { self.modules.moves(&self.gpu)? } else { None };
        Ok(Loaded { gpu: self.gpu.clone(), program, steps, bodies, weights, shape_inputs, counts, moves })
    }

    /// The memory that clears the L2.
    fn flush<'b>(&self, bench: &'b mut Bench) -> Result<&'b Buffer, BackendError> {
        if bench.flush.is_none() {
            let bytes = 2 * self.target.numbers.get("l2_bytes").copied().unwrap_or(0).min(MAX_FLUSH);
            let buffer = naming("memory that clears the L2", bytes, Buffer::new(&bench.stream, bytes))?;
            bench.flush = Some(buffer);
        }
        bench.flush.as_ref().ok_or_else(|| BackendError::Internal("no memory that clears the L2".into()))
    }

    /// The bodies of a step that the host walks.
    fn load_bodies(&self, program: &Program, step: &Step) -> Result<Option<Vec<Arc<Loaded>>>, BackendError> {
        let Some(node) = flow::checked(&program.graph, step)? else { return Ok(None) };
        step.check_bodies(node)?;
        let load = |p: &Program| Ok(Arc::new(self.load_program(Arc::new(p.clone()))?));
        step.bodies.iter().map(load).collect::<Result<_, _>>().map(Some)
    }
}

/// A loaded program.
pub struct Loaded {
    pub gpu: Arc<Gpu>,
    pub program: Arc<Program>,
    pub steps: Vec<StepKernel>,
    /// For each step that the host walks, its bodies.
    pub bodies: Vec<Option<Vec<Arc<Loaded>>>>,
    pub weights: Weights,
    pub shape_inputs: Vec<usize>,
    /// Positions of further inputs whose elements the host reads where they are given to it, by
    /// [`flow::deciding_inputs`].
    pub counts: Vec<usize>,
    /// Copies and decides between bodies; where the driver has conditional nodes.
    pub moves: Option<Arc<Module>>,
}

impl Loaded {
    /// Is there a step at which a run of these shapes stops for the host, or whose launches differ from run to run?
    pub fn stops(&self, shapes: &Shapes) -> bool {
        let mut steps = self.steps.iter().zip(&self.program.steps);
        steps.any(|(k, s)| k.random || shapes.counted(&self.program, s).is_some())
    }
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
        let loaded = Arc::new(self.load_program(Arc::new(program))?);
        let mut bench = self.bench.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = bench.stream.clone();
        let mut cx = CudaContext::on(loaded, stream.clone(), None)?;
        cx.for_timing(bench.staging.take());
        cx.enqueue(request.inputs, &shapes)?;
        cx.await_run()?;
        let flush = self.flush(&mut bench)?;
        let mut marks = Vec::new();
        for _ in 0..request.samples {
            let (from, to) = (Event::new(&self.gpu, true)?, Event::new(&self.gpu, true)?);
            flush.fill(0, &stream)?;
            from.record(&stream)?;
            if !cx.repeat()? {
                // What stops for the host is timed with its transfers.
                cx.enqueue(request.inputs, &shapes)?;
            }
            to.record(&stream)?;
            marks.push((from, to));
        }
        stream.synchronize()?;
        bench.staging = cx.memory.take_staging();
        marks.iter().map(|(from, to)| Ok(from.until(to)?)).collect()
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(CudaExecutable(Arc::new(self.load_program(program)?))))
    }
}
