//! A run.

use super::consumed::{Consumed, LastRead};
use super::device::Loaded;
use super::extent::Open;
use super::flow::Bodies;
use super::memory::{Memory, Range};
use super::results::Pending;
use super::run::{Batch, Stamps};
use super::values::bytes;
use crate::driver::{Event, Graph, Pinned, Stream, Word};
use kiln_backend::stop::{Stop, StopFlag};
use kiln_backend::{BackendError, Context, Counters, HostStep, Shapes};
use kiln_ir::Tensor;
use std::sync::Arc;

/// Runs a program on a stream of its own.
pub struct CudaContext {
    pub(super) loaded: Arc<Loaded>,
    pub(super) memory: Memory,
    /// Runs whose launches are known, the latest last.
    pub(super) prepared: Vec<Prepared>,
    /// What a run with host stops has launched, kept until it is over.
    pub(super) parts: Vec<Batch>,
    /// The graph of a run that is not prepared any more.
    pub(super) spare: Option<Graph>,
    /// Is the latest prepared run the last one?
    pub(super) whole: bool,
    pub(super) outputs: Option<Pending>,
    /// Of the last run; with those that it left open once its outputs were taken.
    pub(super) shapes: Option<Arc<Shapes>>,
    /// Values whose sizes the last run leaves open, and whether a run may do so.
    pub(super) open: Open,
    pub(super) may_leave_open: bool,
    pub(super) stamps: Option<Stamps>,
    /// Where the last run whose steps were not timed waited for the host; of a body, since its step was begun.
    pub(super) assisted: Vec<HostStep>,
    pub(super) poison: bool,
    /// Behind the last run, if `marked`.
    pub(super) done: Event,
    pub(super) marked: bool,
    /// Graphs are recorded in it; nothing runs there.
    pub(super) recorder: Arc<Stream>,
    pub(super) counters: Counters,
    /// For each step that the host walks, contexts of its bodies.
    pub(super) bodies: Vec<Option<Bodies>>,
    /// Values that lie in the memory of inputs, of contexts of bodies: the value's number, and the address.
    pub(super) given: Vec<Option<(u64, u64)>>,
    pub(super) consumed: Consumed,
    /// Are results left on the device, as nobody asks for them?
    pub(super) timed_only: bool,
    /// What device loops read to know whether they are to stop; where there are any.
    pub(super) word: Option<Arc<Word>>,
    /// What sets it; of the outermost context.
    pub(super) flag: Option<Arc<StopFlag>>,
    pub(super) stream: Arc<Stream>,
}

/// The launches of a run that needs no host in between.
pub(super) struct Prepared {
    pub(super) key: Vec<Key>,
    pub(super) batch: Batch,
    pub(super) shapes: Arc<Shapes>,
    pub(super) open: Open,
}

/// How many prepared runs are kept.
pub(super) const KEPT: usize = 8;

/// What the launches of a run depend on: each input's shape, the contents of those that the host plans by, and addresses of
/// the caller's.
#[derive(PartialEq)]
pub(super) struct Key(pub Vec<usize>, pub Option<Tensor>, pub Option<u64>);

impl Key {
    /// Do only addresses differ?
    pub fn like(&self, other: &Key) -> bool {
        (&self.0, &self.1) == (&other.0, &other.1)
    }
}

impl CudaContext {
    pub fn new(loaded: Arc<Loaded>) -> Result<CudaContext, BackendError> {
        let stream = Stream::new(&loaded.gpu)?;
        let word = loaded.moves.is_some().then(|| Word::new(&loaded.gpu)).transpose()?;
        let mut context = CudaContext::on(loaded, stream, word.clone())?;
        context.flag = word.map(|w| StopFlag::with_listener(move |s| w.set(u32::from(s == Stop::Now))));
        Ok(context)
    }

    /// A context on a given stream, whose loops on the device stop by this word.
    pub fn on(
        loaded: Arc<Loaded>,
        stream: Arc<Stream>,
        word: Option<Arc<Word>>,
    ) -> Result<CudaContext, BackendError> {
        let mut memory = Memory::new(&stream, &loaded.program)?;
        if loaded.steps.iter().any(|s| !s.checks.is_empty()) {
            memory.make_records(loaded.steps.len())?;
        }
        let one =
            |b: &Option<Vec<Arc<Loaded>>>| b.as_ref().map(|b| Bodies::new(b, &stream, &word)).transpose();
        let bodies = loaded.bodies.iter().map(one);
        Ok(CudaContext {
            bodies: bodies.collect::<Result<_, _>>()?,
            given: vec![None; loaded.program.graph.inputs.len()],
            done: Event::new(&loaded.gpu, false)?,
            consumed: Consumed::default(),
            timed_only: false,
            marked: true,
            recorder: Stream::new(&loaded.gpu)?,
            spare: None,
            whole: false,
            poison: std::env::var_os("KILN_POISON").is_some_and(|v| v == "1"),
            memory,
            loaded,
            prepared: Vec::new(),
            parts: Vec::new(),
            outputs: None,
            shapes: None,
            open: Open::default(),
            may_leave_open: false,
            stamps: None,
            assisted: Vec::new(),
            counters: Counters::default(),
            word,
            flag: None,
            stream,
        })
    }

    /// Leaves results on the device, and sends inputs through this memory of a context of the same stream before it.
    pub(super) fn for_timing(&mut self, staging: Option<Pinned>) {
        self.timed_only = true;
        self.memory.give_staging(staging);
    }

    /// Puts the launches of the last run into the stream again, without transfers; false if it stopped for the host.
    pub fn repeat(&mut self) -> Result<bool, BackendError> {
        match self.prepared.last_mut().filter(|_| self.whole) {
            Some(p) => p.batch.run(&self.stream, None).map(|()| true),
            None => Ok(false),
        }
    }

    pub(super) fn start(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.loaded.gpu.bind()?;
        // Staging and read-back memory belong to the last run until it is done.
        self.await_run()?;
        self.marked = false;
        self.parts.clear();
        self.settle();
        if matches!(self.outputs, Some(Pending::Copied(..))) {
            // Nobody asked for the results of the last run: its records are no fault of this one.
            self.clear_records()?;
        }
        self.outputs = None;
        let allocations = self.memory.allocations;
        self.upload(inputs, shapes)?;
        if self.memory.allocations != allocations {
            // Prepared launches may name the buffers that went.
            self.prepared.clear();
        }
        if self.poison {
            self.memory.poison()?;
        }
        if let Some(s) = &mut self.stamps {
            s.reset();
        }
        self.forget_inner_times();
        self.forget_host();
        self.mark(LastRead::Nothing)?;
        let key = self.key(inputs);
        self.may_leave_open = true;
        let known = self.launch(key, &self.with_counts(inputs, shapes))?;
        self.shapes = Some(known.clone());
        self.take_outputs(&known)?;
        self.counters.runs += 1;
        Ok(())
    }

    /// After a failure: launches and inputs may name memory that went. Where memory was short, what can be had again is given
    /// back.
    pub(super) fn forget(&mut self, why: &BackendError) {
        self.prepared.clear();
        self.given.fill(None);
        self.whole = false;
        self.marked = false;
        if matches!(why, BackendError::OutOfMemory { .. }) {
            self.memory.release();
            let freed = self.stream.synchronize().and_then(|()| self.loaded.gpu.trim());
            freed.unwrap_or_else(|e| tracing::warn!("memory could not be given back: {e}"));
        }
    }

    /// Are memories bound to outputs as large as these launches take them for?
    fn holds(&self, p: &Prepared) -> bool {
        let needs = |v| match p.open.get(v) {
            Some(open) => open.bytes(),
            None => bytes(&p.shapes.fact(v).ty),
        };
        self.memory.bound.outputs.iter().all(|(&v, r)| needs(v).is_ok_and(|n| n <= r.size))
    }

    /// Launches all steps; gives the shapes with what became known.
    pub(super) fn launch(
        &mut self,
        key: Vec<Key>,
        shapes: &Arc<Shapes>,
    ) -> Result<Arc<Shapes>, BackendError> {
        let timed = self.stamps.is_some() && self.bodies.iter().any(Option::is_some);
        if let Some(at) = self.prepared.iter().position(|p| p.key == key && !timed && self.holds(p)) {
            return self.replay(at);
        }
        let mut known = (**shapes).clone();
        self.run_steps(&mut known, key)?;
        Ok(Arc::new(known))
    }

    /// Gives back what the last run alone could name; it is done.
    pub(super) fn settle(&mut self) {
        self.memory.settle();
        self.bodies.iter_mut().flatten().for_each(Bodies::settle);
    }

    /// Lets an input of a body lie where a value around it does, or again in memory of its own.
    pub(super) fn lend(&mut self, input: usize, at: Option<Range>) {
        self.memory.lend(input, at);
        if let Some(last) = self.given.get_mut(input) {
            *last = None;
        }
    }

    /// How many buffers were allocated, those of bodies too.
    pub(super) fn allocated(&self) -> u64 {
        Context::counters(self).allocations
    }

    /// Waits until the last run's memory of the host is free again; work of others in the stream may go on.
    pub(super) fn await_run(&self) -> Result<(), BackendError> {
        match self.marked {
            true => self.done.wait()?,
            false => self.stream.synchronize()?,
        }
        Ok(())
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // The run in flight reads weights and code, which may go with this context and not in the order of its stream, and the
        // word, which may be in use in a stream of the caller's.
        let waited = self.loaded.gpu.bind().map_err(BackendError::from).and_then(|()| self.await_run());
        if let Err(e) = waited.or_else(|_| self.stream.synchronize()) {
            tracing::debug!("the last run of a context ended with an error that nobody asked for: {e}");
        }
    }
}

pub(super) fn tensor(ty: &kiln_ir::TensorType, bytes: Vec<u8>) -> Result<Tensor, BackendError> {
    let shape = ty.static_dims().unwrap_or_default();
    Tensor::from_bytes(ty.dtype, &shape, bytes)
        .ok_or_else(|| BackendError::Internal(format!("too few bytes for {ty} came back")))
}
