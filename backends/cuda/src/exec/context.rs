//! A run.

use super::consumed::{Consumed, LastRead};
use super::device::Loaded;
use super::extent::Open;
use super::flow::Bodies;
use super::memory::{Memory, Range};
use super::results::Pending;
use super::run::{Batch, Stamps};
use super::values::bytes;
use crate::driver::{Event, Graph, Pinned, Stream};
use crate::nvtx;
use kiln_backend::{BackendError, Bound, Context, Counters, HostStep, Shapes, StepTime};
use kiln_ir::{Tensor, ValueId};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::Hash;
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
    pub(super) stream: Arc<Stream>,
}

/// The launches of a run that needs no host in between.
pub(super) struct Prepared {
    pub(super) key: Vec<Key>,
    pub(super) batch: Batch,
    pub(super) shapes: Arc<Shapes>,
    pub(super) open: Open,
}

/// Kernels load 16 bytes at once.
const LENT_ALIGNMENT: u64 = 16;

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
        CudaContext::on(loaded, stream)
    }

    /// A context on a given stream.
    pub fn on(loaded: Arc<Loaded>, stream: Arc<Stream>) -> Result<CudaContext, BackendError> {
        let memory = Memory::new(&stream, &loaded.program)?;
        let bodies = loaded.bodies.iter().map(|b| b.as_ref().map(|b| Bodies::new(b, &stream)).transpose());
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

    fn upload(&mut self, inputs: &[Tensor], shapes: &Shapes) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        if inputs.len() != graph.inputs.len() {
            return Err(BackendError::InvalidArgument(format!(
                "the program has {} inputs, {} were given",
                graph.inputs.len(),
                inputs.len()
            )));
        }
        let padded = |t: &Tensor| t.bytes().len().next_multiple_of(256);
        let own = inputs.iter().enumerate().filter(|(i, _)| !self.memory.bound.inputs.contains_key(i));
        let total = own.map(|(_, t)| padded(t)).sum();
        let mut at = 0;
        for (i, (&v, t)) in graph.inputs.iter().zip(inputs).enumerate() {
            let wanted = &shapes.fact(v).ty;
            if t.dtype() != wanted.dtype || wanted.static_dims().as_deref() != Some(t.shape()) {
                return Err(BackendError::InvalidArgument(format!(
                    "input \"{}\" is {}, the shapes were made for {wanted}",
                    graph.value(v).name,
                    t.ty()
                )));
            }
            let to = self.memory.input(i, t.bytes().len() as u64)?;
            if !self.memory.bound.inputs.contains_key(&i) {
                self.memory.staging(total)?.send(at, t.bytes(), to.address)?;
                at += padded(t);
            }
        }
        Ok(())
    }

    fn key(&self, inputs: &[Tensor]) -> Vec<Key> {
        let read = |i: usize| self.loaded.shape_inputs.contains(&i) || self.counts(i);
        let content = |i: usize, t: &Tensor| read(i).then(|| t.clone());
        let lent = &self.memory.bound;
        let address = |i: usize| lent.inputs.get(&i).map(|r| r.address);
        let of_inputs = inputs.iter().enumerate();
        let of_inputs = of_inputs.map(|(i, t)| Key(t.shape().to_vec(), content(i, t), address(i)));
        let outputs = &self.loaded.program.graph.outputs;
        let of_outputs =
            outputs.iter().map(|v| Key(Vec::new(), None, lent.outputs.get(v).map(|r| r.address)));
        of_inputs.chain(of_outputs).collect()
    }

    /// Does the host plan by the elements of this input, beside those of shape inputs? Not where it lies in memory of the
    /// caller's.
    fn counts(&self, input: usize) -> bool {
        self.loaded.counts.contains(&input) && !self.memory.bound.inputs.contains_key(&input)
    }

    /// The shapes with what else the elements of inputs tell.
    fn with_counts(&self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Arc<Shapes> {
        let graph = &self.loaded.program.graph;
        let all = graph.inputs.iter().zip(inputs).enumerate();
        let mut told = all.filter(|(i, _)| self.counts(*i)).map(|(_, pair)| pair).peekable();
        if told.peek().is_none() {
            return shapes.clone();
        }
        let mut known = (**shapes).clone();
        told.for_each(|(&v, t)| known.set_content(v, t.clone()));
        Arc::new(known)
    }

    fn start(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.loaded.gpu.bind()?;
        // Staging and read-back memory belong to the last run until it is done.
        self.await_run()?;
        self.marked = false;
        self.parts.clear();
        self.settle();
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

/// Remembers a range, or forgets it.
fn put<K: Eq + Hash>(all: &mut HashMap<K, Range>, key: K, range: Option<Range>) {
    match range {
        Some(r) => all.insert(key, r),
        None => all.remove(&key),
    };
}

pub(super) fn tensor(ty: &kiln_ir::TensorType, bytes: Vec<u8>) -> Result<Tensor, BackendError> {
    let shape = ty.static_dims().unwrap_or_default();
    Tensor::from_bytes(ty.dtype, &shape, bytes)
        .ok_or_else(|| BackendError::Internal(format!("too few bytes for {ty} came back")))
}

impl Context for CudaContext {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        let _run = nvtx::Range::of(&self.loaded.program.graph.name);
        self.start(inputs, shapes).inspect_err(|e| self.forget(e))
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        self.results()
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        let none = || BackendError::InvalidArgument("no run to observe; enqueue first".into());
        self.shapes.as_ref().ok_or_else(none)?;
        let loaded = self.loaded.clone();
        loaded.program.observable(value, loaded.steps.iter().any(|s| s.writes(value)))?;
        // The read-back memory may still hold outputs of the run, and what tells sizes.
        self.outputs()?;
        loaded.gpu.bind()?;
        let shapes = self.shapes.clone().ok_or_else(none)?;
        self.fetch(&shapes, value)
    }

    fn set_observable(&mut self, on: bool) {
        if self.memory.separate != on {
            self.memory.separate = on;
            self.prepared.clear();
        }
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        if matches!(self.outputs, Some(Pending::Copied(..))) {
            self.outputs()?;
        }
        self.loaded.gpu.bind()?;
        self.set_timing();
        self.times()
    }

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        Ok(self.all_host_steps())
    }

    fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        // The read-back memory may still hold outputs of the run.
        self.outputs()?;
        self.loaded.gpu.bind()?;
        let stops = || {
            BackendError::Unsupported("a run needs the host in between; its kernels alone are no run".into())
        };
        let last = if self.whole { self.prepared.pop() } else { None };
        let mut p = last.ok_or_else(stops)?;
        let timed = self.time_batch(&mut p.batch, runs);
        self.prepared.push(p);
        timed
    }

    unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), BackendError> {
        self.loaded.gpu.bind()?;
        self.stream.synchronize()?;
        let gpu = &self.loaded.gpu;
        let stream = match stream.is_null() {
            true => Stream::new(gpu)?,
            // SAFETY: the caller vouches for the handle.
            false => unsafe { Stream::foreign(gpu, stream) },
        };
        // Memory is given back in the order of its stream: all of it is made anew.
        let mut other = CudaContext::on(self.loaded.clone(), stream)?;
        let counters = self.counters();
        other.counters = Counters { allocations: 0, ..counters };
        other.memory.allocations += counters.allocations;
        other.memory.separate = self.memory.separate;
        if self.stamps.is_some() {
            other.set_timing();
        }
        self.memory.unbind_own();
        other.memory.bound = std::mem::take(&mut self.memory.bound);
        other.consumed = std::mem::take(&mut self.consumed);
        *self = other;
        Ok(())
    }

    unsafe fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        let at = address as u64;
        if !at.is_multiple_of(LENT_ALIGNMENT) {
            return Err(BackendError::InvalidArgument(format!(
                "the address {at:#x} is no multiple of {LENT_ALIGNMENT} bytes; bind one that is, or copy"
            )));
        }
        let range = (at != 0).then_some(Range { address: at, size: bytes });
        let graph = &self.loaded.program.graph;
        let lost = |what: &str, i: usize| BackendError::InvalidArgument(format!("there is no {what} {i}"));
        let lent = &mut self.memory.bound;
        match port {
            Bound::Input(i) if i >= graph.inputs.len() => return Err(lost("input", i)),
            Bound::Input(i) => put(&mut lent.inputs, i, range),
            Bound::Output(i) => {
                let v = *graph.outputs.get(i).ok_or_else(|| lost("output", i))?;
                put(&mut lent.outputs, v, range);
            }
        }
        Ok(())
    }

    unsafe fn set_consumed_event(&mut self, event: *mut c_void) -> Result<(), BackendError> {
        if self.consumed.given.as_ref().is_some_and(|e| e.is(event)) {
            return Ok(());
        }
        // Recorded launches mark the event that was given before.
        self.prepared.clear();
        // SAFETY: the caller vouches for the handle.
        let of = |event| unsafe { Event::foreign(&self.loaded.gpu, event) };
        self.consumed.given = (!event.is_null()).then(|| Arc::new(of(event)));
        Ok(())
    }

    fn wait_consumed(&mut self) -> Result<(), BackendError> {
        self.await_consumed()
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.loaded.gpu.bind()?;
        self.await_run()
    }

    fn address(&mut self, port: Bound) -> Result<(*mut c_void, u64), BackendError> {
        let range = match port {
            Bound::Input(i) => self.memory.given_input(i),
            Bound::Output(i) => {
                let v = self.loaded.program.graph.outputs.get(i).copied();
                let known = self.shapes.clone().zip(v);
                known.map(|(shapes, v)| self.capacity(&shapes, v)).transpose()?
            }
        };
        let range = range.ok_or_else(|| {
            BackendError::InvalidArgument(format!("{port:?} lies nowhere: there was no run, or it has none"))
        })?;
        Ok((range.address as usize as *mut c_void, range.size))
    }

    fn counters(&self) -> Counters {
        let own = Counters { allocations: self.memory.allocations, ..self.counters };
        self.bodies.iter().flatten().map(Bodies::counters).fold(own, |a, c| Counters {
            runs: a.runs,
            allocations: a.allocations + c.allocations,
            compilations: a.compilations + c.compilations,
            pipelines: a.pipelines + c.pipelines,
            host_syncs: a.host_syncs + c.host_syncs,
        })
    }
}
