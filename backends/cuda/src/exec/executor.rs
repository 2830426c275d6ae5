//! Runs of the shared executor on this device.

use super::batch::Batch;
use super::branches::on_device;
use super::consumed::{Consumed, LastRead};
use super::flow_memory::FlowMemory;
use super::kernel::CudaGpu;
use super::launch::Planned;
use super::memory::Range;
use super::places::Moved;
use super::planning::{CudaRun, Planning};
use super::queue::CudaQueue;
use super::reasons;
use super::staged::Staged;
use super::stamps::Stamps;
use crate::driver::{Command, Recorder, Stream};
use kiln_backend::assisted::Reason;
use kiln_backend::{BackendError, Program, Shapes, StepTime, stop};
use kiln_gpu::{Executor, Key, Loaded, PREPARED_BODIES, WORD};
use std::sync::Arc;

/// Number of prepared runs of a context that have a graph of their own; further ones take over another's.
/// Every prepared run of a body has a graph.
const GRAPHS: usize = 4;

/// State of the device for a run.
pub struct RunState {
    /// Graphs are recorded in it; nothing runs there.
    recorder: Recorder,
    /// Graphs that were instantiated.
    pub graphs_made: u64,
    pub consumed: Consumed,
    pub staged: Staged,
    /// Streams of the caller's for steps in auxiliary streams.
    pub aux_streams: Vec<Arc<Stream>>,
}

impl Executor for CudaGpu {
    type Batch = Batch;
    type Stamps = Stamps;
    type State = RunState;
    type FlowState = FlowMemory;

    const PREPARED: usize = 8;
    const WALKS: Option<Reason> = None;
    // Each of these has a graph of its own.
    const REBINDS: usize = GRAPHS;

    fn state(queue: &mut CudaQueue) -> Result<RunState, BackendError> {
        let recorder = Recorder::new(Stream::new(&queue.stream.gpu)?);
        let (consumed, staged) = (Consumed::default(), Staged::default());
        Ok(RunState { recorder, graphs_made: 0, consumed, staged, aux_streams: Vec::new() })
    }

    fn batch(
        loaded: &Arc<Loaded<CudaGpu>>,
        queue: &mut CudaQueue,
        launches: Vec<Planned>,
        old: Option<Batch>,
    ) -> Result<Batch, BackendError> {
        Batch::new(queue, launches, old)?.of(&loaded.program)
    }

    fn rebind(
        run: &CudaRun,
        batch: &mut Batch,
        from: &[Key<Range>],
        to: &[Key<Range>],
    ) -> Result<bool, BackendError> {
        // Control flow has addresses in places of its own.
        if run.loaded.has_flow() {
            return Ok(false);
        }
        match Moved::of(from, to, |r| run.memory.is_own(r)) {
            Some(moved) => batch.rebind(&run.loaded.device.gpu, &moved),
            None => Ok(false),
        }
    }

    fn has_run(batch: &mut Batch) {
        batch.prove();
    }

    /// Runs launches that are kept as a graph from their second run on.
    fn put(
        run: &mut CudaRun,
        queue: &mut CudaQueue,
        batch: &mut Batch,
        kept: bool,
    ) -> Result<(), BackendError> {
        if kept && !run.times.on && !run.nested && !run.state.aux_streams.is_empty() {
            batch.arrange(&run.loaded);
            if batch.run_beside(&queue.stream, &run.state.aux_streams)? {
                return Ok(());
            }
        }
        if kept && !run.times.on && batch.wants_graph() {
            let graphs = run.launches.batches().filter(|b| b.has_graph()).count();
            let most = if run.nested { PREPARED_BODIES } else { GRAPHS };
            let others = &mut run.launches;
            let other = || others.batches().filter(|_| graphs >= most).find_map(Batch::take_graph);
            batch.arrange(&run.loaded);
            run.state.graphs_made += batch.make_graph(&mut run.state.recorder, other)?;
        }
        batch.run(&queue.stream, run.times.stamps.as_mut().filter(|_| run.times.on))
    }

    fn stamps(_device: &CudaGpu, program: &Arc<Program>) -> Result<Stamps, BackendError> {
        Ok(Stamps::new(program))
    }

    fn reset(stamps: &mut Stamps) {
        stamps.reset();
    }

    fn step_times(queue: &mut CudaQueue, stamps: &mut Stamps) -> Result<Vec<StepTime>, BackendError> {
        queue.stream.gpu.bind()?;
        stamps.read()
    }

    fn control_flow(
        run: &mut CudaRun,
        queue: &mut CudaQueue,
        shapes: &Shapes,
        step: usize,
        stopped: bool,
    ) -> Result<Option<Vec<Planned>>, BackendError> {
        // Steps inside are timed where the host walks.
        if stopped || run.times.on || stops(&run.loaded, shapes) {
            run.note_host(step, if stopped { reasons::BEHIND } else { reasons::BESIDE });
            return Ok(None);
        }
        on_device(Planning { run, queue }, shapes, step)
    }

    fn word(address: u64) -> Option<Range> {
        Some(Range { address, size: WORD as u64 })
    }

    fn ended(_queue: &CudaQueue) -> Result<(), BackendError> {
        // Loops on the device may have ended early.
        stop::check("")
    }

    fn settle(state: &mut FlowMemory) {
        state.settle();
    }

    fn begin(run: &mut CudaRun, queue: &mut CudaQueue) -> Result<(), BackendError> {
        run.state.staged.copy_inputs(queue)?;
        let bound = &run.memory.bound.inputs;
        run.state.consumed.begin(&run.loaded.program, |i| bound.contains_key(&i));
        run.state.consumed.mark(LastRead::Nothing, &queue.stream)
    }

    fn after_step(run: &CudaRun, step: usize) -> Vec<Planned> {
        let planned = |e| Planned::new(step, Command::Mark(e));
        run.state.consumed.after(step).map(planned).collect()
    }

    fn end(run: &mut CudaRun, queue: &mut CudaQueue) -> Result<(), BackendError> {
        run.state.staged.copy_outputs(queue)?;
        run.state.consumed.mark(LastRead::Outputs, &queue.stream)
    }
}

/// Whether there is a step at which a run of these shapes stops for the host, or whose launches differ from run to run.
fn stops(loaded: &Loaded<CudaGpu>, shapes: &Shapes) -> bool {
    let kernel = |i: usize| loaded.steps.get(loaded.kernel(i, shapes.case()));
    let mut steps = loaded.program.steps.iter().enumerate().filter_map(|(i, s)| Some((kernel(i)?, s)));
    steps.any(|(k, s)| k.random || k.on_host.is_some() || shapes.counted(&loaded.program, s).is_some())
}
