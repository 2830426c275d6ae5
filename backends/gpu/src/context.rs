//! A context: runs of a program, and what the host asks of them.

use crate::device::{Queue, Range};
use crate::extent::WORD;
use crate::launches::Key;
use crate::loaded::Loaded;
use crate::run::{Executor, Run};
use crate::value::{bytes_of, tensor};
use kiln_backend::{BackendError, Counters, Shapes, StepTime};
use kiln_ir::budget::{self, Exceeded};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

/// Runs a program.
pub struct GpuContext<D: Executor> {
    /// The queue for its work. Dropped first: it waits for the run in flight, which uses memory and code of the other fields.
    pub queue: D::Queue,
    /// The program and its memory.
    pub run: Run<D>,
    /// The shapes of the last run; those that it left open once its outputs were taken.
    pub shapes: Option<Arc<Shapes>>,
    outputs: Option<Outputs<D>>,
    /// Whether records may tell of a run whose outputs nobody asked for.
    records_set: bool,
    /// Whether results stay on the device, as nobody asks for them.
    pub timed_only: bool,
    runs: u64,
}

/// Outputs of the last run.
enum Outputs<D: Executor> {
    /// Being copied to the host.
    Copied(Copied<D>),
    /// On the host.
    Taken(Vec<Tensor>),
}

/// Copies under way, in this order.
struct Copied<D: Executor> {
    /// Records of the steps of these programs.
    programs: Vec<Arc<Loaded<D>>>,
    /// Outputs with so many bytes; none of those in memory that is bound to them.
    values: Vec<(ValueId, Option<usize>)>,
    /// Words at these addresses, which decide sizes.
    words: Vec<u64>,
}

impl<D: Executor> GpuContext<D> {
    /// A context that puts its work into this queue.
    pub fn new(loaded: &Arc<Loaded<D>>, queue: D::Queue) -> Result<GpuContext<D>, BackendError> {
        GpuContext::with_arena(loaded, queue, true)
    }

    /// A context with an arena of its own, or one for which the caller sets memory.
    pub fn with_arena(
        loaded: &Arc<Loaded<D>>,
        mut queue: D::Queue,
        own: bool,
    ) -> Result<GpuContext<D>, BackendError> {
        let run = Run::new(loaded, &mut queue, false, own)?;
        Ok(GpuContext {
            queue,
            run,
            shapes: None,
            outputs: None,
            records_set: false,
            timed_only: false,
            runs: 0,
        })
    }

    /// The program.
    pub fn loaded(&self) -> Arc<Loaded<D>> {
        self.run.loaded.clone()
    }

    /// Starts a run.
    pub fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.start(inputs, shapes).inspect_err(|e| self.forget(e))
    }

    fn start(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.queue.begin()?;
        self.run.begin();
        if std::mem::replace(&mut self.records_set, true) {
            // Nobody asked for the results of the last run, or it failed: its records are no fault of this one.
            self.run.clear_records(&mut self.queue)?;
        }
        self.outputs = None;
        let made = self.run.memory.input_buffers;
        self.upload(inputs, shapes)?;
        if self.run.memory.input_buffers != made {
            // Prepared launches may name the buffers that went.
            self.run.launches.clear();
        }
        self.run.poison(&mut self.queue)?;
        self.run.forget_inner_times();
        self.run.forget_host_steps();
        D::begin(&mut self.run, &mut self.queue)?;
        self.run.may_leave_open = true;
        let (key, shapes) = (self.key(inputs, shapes), self.with_decisions(inputs, shapes));
        let known = self.run.launch(&mut self.queue, key, &shapes)?;
        self.shapes = Some(known.clone());
        if !self.timed_only {
            self.take_outputs(&known)?;
            D::end(&mut self.run, &mut self.queue)?;
        }
        self.queue.end()?;
        self.runs += 1;
        Ok(())
    }

    /// Hands the launches of a run to `record`, for a graph of the caller's. All inputs and outputs are in bound memory. Outputs of such
    /// runs, and faults that their kernels record, cannot be asked for.
    pub fn record(
        &mut self,
        inputs: &[Tensor],
        shapes: &Arc<Shapes>,
        record: impl FnOnce(&mut D::Batch) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded();
        let graph = &loaded.program.graph;
        shapes.check_inputs(graph, inputs)?;
        let bound = &self.run.memory.bound;
        let unbound = |v: &ValueId| {
            BackendError::InvalidArgument(format!(
                "the stream records a graph, and \"{}\" is not in memory that is bound to it: bind all inputs and outputs",
                graph.value(*v).name
            ))
        };
        let mut all = graph.inputs.iter().enumerate();
        if let Some((_, v)) = all.find(|(i, _)| !bound.inputs.contains_key(i)) {
            return Err(unbound(v));
        }
        if let Some(v) = graph.outputs.iter().find(|v| !bound.outputs.contains_key(v)) {
            return Err(unbound(v));
        }
        let copied = |v: &&ValueId| graph.inputs.contains(v) || graph.weight(**v).is_some();
        if let Some(v) = graph.outputs.iter().find(copied) {
            return Err(BackendError::Unsupported(format!(
                "the stream records a graph, and output \"{}\" is an input or a weight, which runs copy behind their kernels: leave it \
                 out of the network's outputs",
                graph.value(*v).name
            )));
        }
        let key = self.key(inputs, shapes);
        (self.outputs, self.records_set) = (None, true);
        self.shapes = Some(self.run.record(&mut self.queue, key, record)?);
        Ok(())
    }

    /// After a failure: what was planned may name memory that went.
    fn forget(&mut self, why: &BackendError) {
        self.run.forget(why);
        if matches!(why, BackendError::OutOfMemory { .. }) {
            // An error here is the next run's to report.
            drop(self.queue.wait().and_then(|()| self.queue.trim()));
        }
    }

    /// Copies inputs to the device, those left out that are bound to memory there.
    fn upload(&mut self, inputs: &[Tensor], shapes: &Shapes) -> Result<(), BackendError> {
        shapes.check_inputs(&self.run.loaded.program.graph, inputs)?;
        let mut parts = Vec::with_capacity(inputs.len());
        for (i, t) in inputs.iter().enumerate() {
            let to = self.run.memory.input(&mut self.queue, i, t.bytes().len() as u64)?;
            if !self.run.memory.bound.inputs.contains_key(&i) {
                parts.push((to, t.bytes()));
            }
        }
        self.queue.upload(&parts)
    }

    fn key(&self, inputs: &[Tensor], shapes: &Shapes) -> Vec<Key<D::Range>> {
        let loaded = &self.run.loaded;
        let read = |i: usize| loaded.shape_inputs.contains(&i) || self.decides(i);
        let bound = &self.run.memory.bound;
        let of_inputs = inputs
            .iter()
            .enumerate()
            .map(|(i, t)| Key(t.shape().to_vec(), read(i).then(|| t.clone()), bound.inputs.get(&i).cloned()));
        let outputs = &loaded.program.graph.outputs;
        let of_outputs = outputs.iter().map(|v| Key(Vec::new(), None, bound.outputs.get(v).cloned()));
        let cases = (!loaded.program.cases.is_empty()).then(|| Key(vec![shapes.case() as usize], None, None));
        of_inputs.chain(of_outputs).chain(cases).collect()
    }

    /// Whether the host plans by the elements of this input, and it is not a shape input. False where it is
    /// in the caller's memory.
    fn decides(&self, input: usize) -> bool {
        self.run.loaded.deciding.contains(&input) && !self.run.memory.bound.inputs.contains_key(&input)
    }

    /// The shapes with what follows from the elements of such inputs.
    fn with_decisions(&self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Arc<Shapes> {
        if !(0..inputs.len()).any(|i| self.decides(i)) {
            return shapes.clone();
        }
        let mut known = (**shapes).clone();
        known.set_inputs(&self.run.loaded.program.graph, inputs, |i| self.decides(i));
        Arc::new(known)
    }

    /// Starts copying the outputs.
    fn take_outputs(&mut self, shapes: &Shapes) -> Result<(), BackendError> {
        let loaded = self.loaded();
        let (programs, mut from): (Vec<_>, Vec<_>) = self.run.records().into_iter().unzip();
        let mut values = Vec::new();
        for &v in &loaded.program.graph.outputs {
            let (at, n) = self.run.place(&mut self.queue, shapes, v)?;
            if self.deliver(v, &at, n)? {
                values.push((v, None));
            } else {
                from.push((at, n));
                values.push((v, Some(n)));
            }
        }
        check_copies(values.iter().filter_map(|(_, n)| *n).map(|n| n as u64).sum())?;
        let words = self.run.open.words();
        for &word in &words {
            let at = D::word(word).ok_or_else(|| BackendError::Internal("a word on no device".into()))?;
            from.push((at, WORD));
        }
        self.queue.start_reading(&from)?;
        self.outputs = Some(Outputs::Copied(Copied { programs, values, words }));
        Ok(())
    }

    /// Whether an output is in memory that is bound to it; one that no step writes, an input or a weight, is copied there.
    fn deliver(&mut self, v: ValueId, from: &D::Range, bytes: usize) -> Result<bool, BackendError> {
        let Some(to) = self.run.memory.bound.outputs.get(&v) else { return Ok(false) };
        if to.bytes() < bytes as u64 {
            return Err(BackendError::InvalidArgument(format!(
                "output \"{}\" has {bytes} bytes, the memory bound to it {}; bind more",
                self.run.loaded.program.graph.value(v).name,
                to.bytes()
            )));
        }
        self.queue.copy(from, to, bytes as u64)?;
        Ok(true)
    }

    /// Waits for the run and returns its outputs; all shapes are known from then on.
    pub fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        let nothing = || BackendError::InvalidArgument("no run to take outputs of; enqueue first".into());
        let shapes = self.shapes.clone().ok_or_else(nothing)?;
        let out = match self.outputs.take().ok_or_else(nothing)? {
            Outputs::Taken(t) => t,
            Outputs::Copied(copied) => {
                let out = self.collect(copied, shapes)?;
                self.run.check_guards(&mut self.queue)?;
                out
            }
        };
        self.outputs = Some(Outputs::Taken(out.clone()));
        Ok(out)
    }

    fn collect(&mut self, copied: Copied<D>, shapes: Arc<Shapes>) -> Result<Vec<Tensor>, BackendError> {
        let Copied { programs, values, words } = copied;
        let records = programs.iter().map(|p| p.record_bytes());
        let read = values.iter().filter_map(|(_, n)| *n).chain(words.iter().map(|_| WORD));
        let mut read = self.queue.finish_reading(&records.chain(read).collect::<Vec<_>>())?;
        let records: Vec<Vec<u8>> = read.drain(..programs.len()).collect();
        self.check(&programs, &records)?;
        D::ended(&self.queue)?;
        let found = read.split_off(read.len().saturating_sub(words.len()));
        let shapes = self.settled(shapes, &words, &found)?;
        let mut read = read.into_iter();
        let mut out = Vec::with_capacity(values.len());
        for (v, copied) in values {
            out.push(match copied.and_then(|_| read.next()) {
                Some(mut all) => {
                    let ty = &shapes.fact(v).ty;
                    all.truncate(bytes_of(ty)? as usize);
                    tensor(ty, all)?
                }
                None => self.run.fetch(&mut self.queue, &shapes, v)?,
            });
        }
        Ok(out)
    }

    /// The error that a step recorded, if there is one.
    fn check(&mut self, programs: &[Arc<Loaded<D>>], records: &[Vec<u8>]) -> Result<(), BackendError> {
        let found = programs.iter().zip(records).try_for_each(|(p, r)| p.check_records(r));
        self.records_set = found.is_err();
        found
    }

    /// Waits for the run: the error that its steps recorded, if there is one. Its outputs can still be asked for.
    pub fn wait(&mut self) -> Result<(), BackendError> {
        let Some(Outputs::Copied(copied)) = &self.outputs else { return self.queue.wait() };
        let programs = copied.programs.clone();
        let lengths: Vec<usize> = programs.iter().map(|p| p.record_bytes()).collect();
        let records = self.queue.finish_reading(&lengths)?;
        self.check(&programs, &records).inspect_err(|_| self.outputs = None)
    }

    /// The shapes of the run with those that it left open.
    fn settled(
        &mut self,
        shapes: Arc<Shapes>,
        words: &[u64],
        found: &[Vec<u8>],
    ) -> Result<Arc<Shapes>, BackendError> {
        if self.run.open.is_empty() {
            return Ok(shapes);
        }
        let number = |b: &Vec<u8>| b.first_chunk::<WORD>().map(|b| i64::from_le_bytes(*b));
        let words: Vec<_> = words.iter().zip(found).filter_map(|(&at, b)| Some((at, number(b)?))).collect();
        let mut known = (*shapes).clone();
        self.run.open.settle(&words, &mut known)?;
        let known = Arc::new(known);
        self.shapes = Some(known.clone());
        Ok(known)
    }

    /// A value of the last run.
    pub fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        let none = || BackendError::InvalidArgument("no run to observe; enqueue first".into());
        self.shapes.as_ref().ok_or_else(none)?;
        let loaded = self.loaded();
        loaded.program.observable(value, loaded.steps.iter().any(|s| s.writes(value)))?;
        // The read-back memory may still hold outputs of the run, and what decides sizes.
        self.outputs()?;
        let shapes = self.shapes.clone().ok_or_else(none)?;
        self.run.fetch(&mut self.queue, &shapes, value)
    }

    /// Keeps all values that steps store, from the next run on.
    pub fn set_observable(&mut self, on: bool) {
        if self.run.memory.separate != on {
            self.run.memory.separate = on;
            self.run.launches.clear();
        }
    }

    /// Times of the last run's steps; times further runs.
    pub fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        if matches!(self.outputs, Some(Outputs::Copied(..))) {
            self.outputs()?;
        }
        self.run.set_timing()?;
        let own = self.run.own_times(&mut self.queue)?;
        Ok(self.run.with_inner(own))
    }

    /// Puts the launches of the last run into the queue again, without transfers; false if it stopped for the host.
    pub fn repeat(&mut self) -> Result<bool, BackendError> {
        let Some(mut p) = self.run.launches.take_last() else { return Ok(false) };
        let ran = D::put(&mut self.run, &mut self.queue, &mut p.batch, true);
        self.run.launches.keep(p);
        ran.map(|()| true)
    }

    /// Counts of runs, allocations and waits; the device counts kernels.
    pub fn counters(&self) -> Counters {
        Counters {
            runs: self.runs,
            allocations: self.queue.allocations(),
            host_syncs: self.run.all_host_syncs(),
            ..Counters::default()
        }
    }

    /// Counts the runs of a context that this one replaces.
    pub fn continue_from(&mut self, other: &GpuContext<D>) {
        self.runs = other.runs;
        self.run.host_syncs = other.run.all_host_syncs();
    }
}

/// Refuses outputs that the host cannot hold: their copies take so many bytes of its memory limit.
fn check_copies(bytes: u64) -> Result<(), BackendError> {
    budget::reserve(bytes).map(drop).map_err(|Exceeded { limit, .. }| {
        let what = format!(
            "copying the outputs to the host, with a memory limit of {limit} bytes (--memory-limit),"
        );
        BackendError::OutOfMemory { what, bytes }
    })
}
