//! What the host asks of a context.

use super::context::CudaContext;
use super::flow::Bodies;
use super::memory::Range;
use super::results::Pending;
use crate::driver::{Event, Stream};
use crate::nvtx;
use kiln_backend::stop::StopFlag;
use kiln_backend::{BackendError, Bound, Context, Counters, HostStep, Shapes, StepTime};
use kiln_ir::{Tensor, ValueId};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::Hash;
use std::sync::Arc;

/// Kernels load 16 bytes at once.
const LENT_ALIGNMENT: u64 = 16;

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
        let mut other = CudaContext::on(self.loaded.clone(), stream, self.word.clone())?;
        other.flag = self.flag.take();
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
        self.finish()
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

    fn stop_flag(&self) -> Option<Arc<StopFlag>> {
        self.flag.clone()
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

/// Remembers a range, or forgets it.
fn put<K: Eq + Hash>(all: &mut HashMap<K, Range>, key: K, range: Option<Range>) {
    match range {
        Some(r) => all.insert(key, r),
        None => all.remove(&key),
    };
}
