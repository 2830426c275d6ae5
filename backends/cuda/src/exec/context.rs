//! Contexts of the device, and what the host asks of them alone.

use super::batch::Recorded;
use super::kernel::CudaGpu;
use super::memory::Range;
use super::planning::CudaRun;
use super::queue::CudaQueue;
use crate::driver::{Event, Stream, Word};
use crate::nvtx;
use kiln_backend::stop::{Stop, StopFlag};
use kiln_backend::{
    BackendError, Bound, Context, Counters, HostStep, NativeContext, Shapes, StepTime, TemporaryAllocator,
};
use kiln_gpu::{GpuContext, Loaded, Queue as _};
use kiln_ir::{Tensor, ValueId};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::Hash;
use std::sync::Arc;

/// Kernels load 16 bytes at once: memory at other addresses is copied.
const BOUND_ALIGNMENT: u64 = 16;

/// Runs a program on a stream of its own or of the caller's.
pub struct CudaContext {
    inner: GpuContext<CudaGpu>,
    /// Sets the word that device loops read to know whether they are to stop; where there are any.
    flag: Option<Arc<StopFlag>>,
    /// Graphs that were instantiated before the stream was changed.
    graphs_before: u64,
    /// A stream of the caller's that recorded a graph when it was set.
    captured: Option<Arc<Stream>>,
    /// Objects that graphs of the caller's use.
    recorded: Vec<Recorded>,
    /// Contexts of before a change of the stream whose memory graphs of the caller's name.
    replaced: Vec<GpuContext<CudaGpu>>,
}

impl CudaContext {
    /// A context with an arena of its own, or one for which the caller sets memory.
    pub fn new(loaded: &Arc<Loaded<CudaGpu>>, own_arena: bool) -> Result<CudaContext, BackendError> {
        let gpu = &loaded.device.gpu;
        let loops = loaded.has_flow() && loaded.device.modules.loaded_moves().is_some();
        let word = loops.then(|| Word::new(gpu)).transpose()?;
        let queue = CudaQueue::new(&Stream::new(gpu)?, word.clone())?;
        let flag = word.map(|w| StopFlag::with_listener(move |s| w.set(u32::from(s == Stop::Now))));
        Ok(CudaContext {
            inner: GpuContext::with_arena(loaded, queue, own_arena)?,
            flag,
            graphs_before: 0,
            captured: None,
            recorded: Vec::new(),
            replaced: Vec::new(),
        })
    }

    fn run(&mut self) -> &mut CudaRun {
        &mut self.inner.run
    }

    /// The stream that records a graph of the caller's now, if the next run goes into one.
    fn recording(&mut self) -> Result<Option<Arc<Stream>>, BackendError> {
        if let Some(stream) = self.captured.clone() {
            if stream.is_captured()? {
                return Ok(Some(stream));
            }
            // The graph is recorded: further runs are in the same stream.
            self.captured = None;
            self.change_stream(stream)?;
        }
        let own = &self.inner.queue.stream;
        Ok(own.is_captured()?.then(|| own.clone()))
    }

    /// Puts further work into another stream.
    fn change_stream(&mut self, stream: Arc<Stream>) -> Result<(), BackendError> {
        let loaded = self.inner.loaded();
        // Not for the stream, which may be one of the caller's that is gone.
        self.inner.queue.wait()?;
        // Memory is given back in the order of its stream: all of it is made anew.
        let queue = CudaQueue::new(&stream, self.inner.queue.word.clone())?;
        let mut other = GpuContext::with_arena(&loaded, queue, self.inner.run.memory.owns_arena())?;
        other.run.memory.share_arena(&self.inner.run.memory);
        other.continue_from(&self.inner);
        other.queue.allocator.clone_from(&self.inner.queue.allocator);
        other.queue.allocations += self.inner.queue.allocations();
        other.run.memory.separate = self.inner.run.memory.separate;
        if self.inner.run.times.on {
            other.run.set_timing()?;
        }
        self.graphs_before += graphs_made(&self.inner.run);
        if !self.inner.run.memory.recorded {
            self.inner.run.memory.unbind_own();
        }
        other.run.memory.bound = std::mem::take(&mut self.inner.run.memory.bound);
        other.run.state.consumed = std::mem::take(&mut self.inner.run.state.consumed);
        other.run.state.staged = std::mem::take(&mut self.inner.run.state.staged);
        other.run.state.aux_streams = std::mem::take(&mut self.inner.run.state.aux_streams);
        let before = std::mem::replace(&mut self.inner, other);
        if before.run.memory.recorded {
            self.replaced.push(before);
        }
        Ok(())
    }

    /// Runs the launches of the last run so often, steps not timed: an event in front of each run and one behind it.
    fn mark_runs(&mut self, runs: u32) -> Result<Vec<(Event, Event)>, BackendError> {
        let stream = self.inner.queue.stream.clone();
        let mut marks = Vec::with_capacity(runs.min(1 << 16) as usize);
        for _ in 0..runs {
            let (from, to) = (Event::new(&stream.gpu, true)?, Event::new(&stream.gpu, true)?);
            from.record(&stream)?;
            if !self.inner.repeat()? {
                return Err(BackendError::Unsupported(
                    "a run needs the host in between; its kernels alone are no run".into(),
                ));
            }
            to.record(&stream)?;
            marks.push((from, to));
        }
        stream.synchronize()?;
        Ok(marks)
    }
}

/// Graphs that a run and the bodies in it have instantiated.
fn graphs_made(run: &CudaRun) -> u64 {
    let bodies = run.bodies.iter().flatten().flat_map(|b| &b.list);
    run.state.graphs_made + bodies.map(|b| graphs_made(&b.run)).sum::<u64>()
}

impl Context for CudaContext {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        let _run = nvtx::Range::of(&self.inner.run.loaded.program.graph.name);
        if let Some(stream) = self.recording()? {
            let recorded = &mut self.recorded;
            // Copies at other addresses are parts of the graph, too: the queue's stream records it.
            let own = Arc::ptr_eq(&stream, &self.inner.queue.stream);
            if !own && !self.inner.run.state.staged.is_empty() {
                return Err(BackendError::InvalidArgument(format!(
                    "the stream recorded a graph when it was set, and memory is bound at an address that is not a multiple of \
                     {BOUND_ALIGNMENT} bytes: set the stream before the capture"
                )));
            }
            self.inner.run.state.staged.copy_inputs(&self.inner.queue)?;
            self.inner.record(inputs, shapes, |batch| {
                recorded.push(batch.record(&stream)?);
                Ok(())
            })?;
            return self.inner.run.state.staged.copy_outputs(&self.inner.queue);
        }
        self.inner.enqueue(inputs, shapes)
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        self.inner.outputs()
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        self.inner.observe(value)
    }

    fn set_observable(&mut self, on: bool) {
        self.inner.set_observable(on);
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.inner.step_times()
    }

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        Ok(self.inner.run.all_host_steps())
    }

    fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        // The read-back memory may still hold outputs of the run.
        self.inner.outputs()?;
        let timed = std::mem::take(&mut self.run().times.on);
        let marks = self.mark_runs(runs);
        self.run().times.on = timed;
        marks?.iter().map(|(from, to)| Ok(from.until(to)?)).collect()
    }

    fn native(&mut self) -> Option<&mut dyn NativeContext> {
        Some(self)
    }

    fn wait_consumed(&mut self) -> Result<(), BackendError> {
        let loaded = self.inner.loaded();
        loaded.device.gpu.bind()?;
        if !self.run().state.consumed.wait()? {
            // The first call waits for the whole run; launches of further ones mark an event.
            self.inner.queue.wait()?;
            self.run().state.consumed.mark_further(&loaded.device.gpu)?;
            self.run().launches.clear();
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.inner.wait()
    }

    fn stop_flag(&self) -> Option<Arc<StopFlag>> {
        self.flag.clone()
    }

    fn counters(&self) -> Counters {
        Counters { pipelines: self.graphs_before + graphs_made(&self.inner.run), ..self.inner.counters() }
    }
}

impl NativeContext for CudaContext {
    unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), BackendError> {
        let loaded = self.inner.loaded();
        let gpu = &loaded.device.gpu;
        gpu.bind()?;
        self.captured = None;
        let stream = match stream.is_null() {
            true => Stream::new(gpu)?,
            // SAFETY: the caller vouches for the handle.
            false => unsafe { Stream::foreign(gpu, stream) },
        };
        if stream.is_captured()? {
            // Its graph takes launches in the memory of the stream of before.
            self.captured = Some(stream);
            return Ok(());
        }
        self.change_stream(stream)
    }

    unsafe fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        let at = address as u64;
        let loaded = self.inner.loaded();
        let graph = &loaded.program.graph;
        let lost = |what: &str, i: usize| BackendError::InvalidArgument(format!("there is no {what} {i}"));
        match port {
            Bound::Input(i) if i >= graph.inputs.len() => return Err(lost("input", i)),
            Bound::Output(i) if i >= graph.outputs.len() => return Err(lost("output", i)),
            _ => {}
        }
        let mut range = (at != 0).then_some(Range { address: at, size: bytes });
        match range.filter(|r| !r.address.is_multiple_of(BOUND_ALIGNMENT)) {
            Some(theirs) => {
                loaded.device.gpu.bind()?;
                let GpuContext { run, queue, .. } = &mut self.inner;
                range = Some(run.state.staged.add(queue, port, theirs)?);
            }
            None => drop(self.inner.run.state.staged.remove(port)),
        }
        let bound = &mut self.run().memory.bound;
        match port {
            Bound::Input(i) => put(&mut bound.inputs, i, range),
            Bound::Output(i) => {
                let v = *graph.outputs.get(i).ok_or_else(|| lost("output", i))?;
                put(&mut bound.outputs, v, range);
            }
        }
        Ok(())
    }

    unsafe fn set_memory(&mut self, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        let at = address as u64;
        let loaded = self.inner.loaded();
        let alignment = loaded.device.target.memory.alignment.max(1);
        if !at.is_multiple_of(alignment) {
            return Err(BackendError::InvalidArgument(format!(
                "the address {at:#x} of the context's memory is not a multiple of {alignment} bytes"
            )));
        }
        let range = (at != 0).then_some(Range { address: at, size: bytes });
        // The run in flight uses the memory of before.
        loaded.device.gpu.bind()?;
        self.inner.queue.stream.synchronize()?;
        let run = self.run();
        run.memory.set_arena(range)?;
        run.launches.clear();
        Ok(())
    }

    unsafe fn set_allocator(
        &mut self,
        allocator: Option<Arc<dyn TemporaryAllocator>>,
    ) -> Result<(), BackendError> {
        self.inner.queue.allocator = allocator;
        Ok(())
    }

    unsafe fn set_aux_streams(&mut self, streams: &[*mut c_void]) -> Result<(), BackendError> {
        let loaded = self.inner.loaded();
        loaded.device.gpu.bind()?;
        // A run in flight may be in the streams of before: it ends in the main one, in which the next one begins.
        // SAFETY: the caller vouches for the handles.
        let theirs = |&s: &*mut c_void| unsafe { Stream::foreign(&loaded.device.gpu, s) };
        let run = self.run();
        // Further streams are not used.
        let used = loaded.program.streams.iter().max().map_or(0, |&s| s as usize);
        run.state.aux_streams = streams.iter().take(used).map(theirs).collect();
        run.launches.clear();
        Ok(())
    }

    unsafe fn set_consumed_event(&mut self, event: *mut c_void) -> Result<(), BackendError> {
        let loaded = self.inner.loaded();
        let run = self.run();
        if run.state.consumed.given.as_ref().is_some_and(|e| e.is(event)) {
            return Ok(());
        }
        // Recorded launches mark the event that was given before.
        run.launches.clear();
        // SAFETY: the caller vouches for the handle.
        let of = |event| unsafe { Event::foreign(&loaded.device.gpu, event) };
        run.state.consumed.given = (!event.is_null()).then(|| Arc::new(of(event)));
        Ok(())
    }

    fn address(&mut self, port: Bound) -> Result<(*mut c_void, u64), BackendError> {
        let GpuContext { run, queue, shapes, .. } = &mut self.inner;
        if let Some(theirs) = run.state.staged.theirs(port) {
            return Ok((theirs.address as usize as *mut c_void, theirs.size));
        }
        let range = match port {
            Bound::Input(i) => run.memory.given_input(i),
            Bound::Output(i) => {
                let v = run.loaded.program.graph.outputs.get(i).copied();
                let known = shapes.clone().zip(v);
                known.map(|(shapes, v)| run.capacity(queue, &shapes, v)).transpose()?
            }
        };
        let range = range.ok_or_else(|| {
            BackendError::InvalidArgument(format!("{port:?} has no memory: there was no run, or it has none"))
        })?;
        Ok((range.address as usize as *mut c_void, range.size))
    }
}

/// Remembers a range, or forgets it.
fn put<K: Eq + Hash>(all: &mut HashMap<K, Range>, key: K, range: Option<Range>) {
    match range {
        Some(r) => all.insert(key, r),
        None => all.remove(&key),
    };
}
