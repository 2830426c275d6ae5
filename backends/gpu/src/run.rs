//! The steps of a run: planned, launched, and stopped where the host has to know something from the device.

use crate::device::{Device, Queue};
use crate::extent::{Extent, Open};
use crate::launches::{Key, Launches as Kept, Prepared};
use crate::loaded::Loaded;
use crate::memory::{Memory, SIZES_BYTES};
use crate::plan::{Launches, Planner};
use crate::value::{Pool, Value, tensor};
use kiln_backend::assisted::{self, Reason};
use kiln_backend::{BackendError, HostStep, Program, Shapes, StepTime, flow, stop};
use kiln_ir::{Tensor, TensorType, ValueId};
use std::sync::Arc;

/// Number of prepared runs of a body that are kept. A loop needs one for its first iteration and two for the
/// others, and twice as many for each loop around it.
pub const PREPARED_BODIES: usize = 16;

/// A device that runs launches.
pub trait Executor: Launches {
    /// Launches that are ready to run.
    type Batch: Send;
    /// Marks around the steps of a run.
    type Stamps: Send;
    /// State of the device for a run.
    type State: Send;
    /// State of the device for a step of control flow.
    type FlowState: Send + Default;

    /// Number of prepared runs of a context that are kept.
    const PREPARED: usize;
    /// Reason why the host walks control flow, where the device never does; noted if the host waited for it.
    const WALKS: Option<Reason>;

    /// The state of the device for a run.
    fn state(queue: &mut Self::Queue) -> Result<Self::State, BackendError>;

    /// Makes launches ready, in the memory of old ones where that is large enough.
    fn batch(
        loaded: &Arc<Loaded<Self>>,
        queue: &mut Self::Queue,
        launches: Vec<Self::Launch>,
        old: Option<Self::Batch>,
    ) -> Result<Self::Batch, BackendError>;

    /// Puts a batch into the queue. `kept` ones are the launches of a whole run, and may run again.
    fn put(
        run: &mut Run<Self>,
        queue: &mut Self::Queue,
        batch: &mut Self::Batch,
        kept: bool,
    ) -> Result<(), BackendError>;

    /// Number of prepared runs of equal shapes in different memory from which on a further one takes over the oldest.
    const REBINDS: usize = usize::MAX;

    /// Puts the launches of a prepared run into other bound memory, from that of one key to that of another, which are of equal shapes.
    /// False, and nothing changed, where they have to be planned anew.
    fn rebind(
        _run: &Run<Self>,
        _batch: &mut Self::Batch,
        _from: &[Key<Self::Range>],
        _to: &[Key<Self::Range>],
    ) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Notes that a batch's kernels have run before, in other memory.
    fn has_run(_batch: &mut Self::Batch) {}

    /// Marks for the steps of a program; refused where the device cannot time them.
    fn stamps(device: &Self, program: &Arc<Program>) -> Result<Self::Stamps, BackendError>;

    /// Forgets the marks of the last run.
    fn reset(stamps: &mut Self::Stamps);

    /// The times of the last run, which is done.
    fn step_times(queue: &mut Self::Queue, stamps: &mut Self::Stamps) -> Result<Vec<StepTime>, BackendError>;

    /// The launches of a step of control flow, if the device needs no host in it; else notes why. `stopped`: the run has waited
    /// for the host before.
    fn control_flow(
        _run: &mut Run<Self>,
        _queue: &mut Self::Queue,
        _shapes: &Shapes,
        _step: usize,
        _stopped: bool,
    ) -> Result<Option<Vec<Self::Launch>>, BackendError> {
        Ok(None)
    }

    /// The memory of a word that decides a size ([`Extent`]); none where no size is left open.
    fn word(_address: u64) -> Option<Self::Range> {
        None
    }

    /// Called when a run is done, before its outputs are handed out: an error where the device ended it early.
    fn ended(_queue: &Self::Queue) -> Result<(), BackendError> {
        Ok(())
    }

    /// Frees memory that only the last run of a step of control flow could name.
    fn settle(_state: &mut Self::FlowState) {}

    /// Called when a run's inputs are on the device.
    fn begin(_run: &mut Run<Self>, _queue: &mut Self::Queue) -> Result<(), BackendError> {
        Ok(())
    }

    /// Launches behind those of a step.
    fn after_step(_run: &Run<Self>, _step: usize) -> Vec<Self::Launch> {
        Vec::new()
    }

    /// Called when the reading of a run's outputs has started.
    fn end(_run: &mut Run<Self>, _queue: &mut Self::Queue) -> Result<(), BackendError> {
        Ok(())
    }
}

/// A program with the memory of one run: of a context, or of a body of control flow.
pub struct Run<D: Executor> {
    /// The program.
    pub loaded: Arc<Loaded<D>>,
    /// Memory of the run.
    pub memory: Memory<D>,
    /// Bodies of the steps of control flow.
    pub bodies: Vec<Option<Bodies<D>>>,
    /// Launches of earlier runs.
    pub launches: Kept<D::Range, D::Batch>,
    /// Sizes that the last run left open.
    pub open: Open,
    /// Whether a run may leave sizes open.
    pub may_leave_open: bool,
    /// Times of steps.
    pub times: Times<D>,
    /// Steps that needed the host in the last run that was not timed; in a body, in the last walk of its step.
    pub host_steps: Vec<HostStep>,
    /// Number of times that the host waited for the device within a run, walks left out.
    pub host_syncs: u64,
    /// State of the device.
    pub state: D::State,
    /// Whether it is a body.
    pub nested: bool,
    poison: bool,
}

/// Times of steps, if they are taken.
pub struct Times<D: Executor> {
    /// Whether they are.
    pub on: bool,
    /// Marks around launches.
    pub stamps: Option<D::Stamps>,
    /// Steps of control flow that the host walked in the last run.
    walked: Vec<usize>,
}

/// The bodies of one step of control flow.
pub struct Bodies<D: Executor> {
    /// Bodies in the order of the node's regions.
    pub list: Vec<Body<D>>,
    /// Memory of values between them.
    pub pool: Pool<D>,
    /// Number of times that the host waited for values.
    pub host_syncs: u64,
    /// State of the device.
    pub state: D::FlowState,
}

impl<D: Executor> Bodies<D> {
    /// Sets the case of the run around them: their steps run by the kernels of it.
    pub fn set_case(&mut self, case: u32) {
        for body in self.list.iter_mut().filter(|b| b.case != case) {
            (body.case, body.shapes) = (case, None);
        }
    }
}

/// A body with its memory.
pub struct Body<D: Executor> {
    /// Run of the body's program.
    pub run: Run<D>,
    /// The shapes of the last run with what they were inferred from.
    pub shapes: Option<(Vec<(TensorType, Option<Tensor>)>, Arc<Shapes>)>,
    /// The case of the run around it.
    pub case: u32,
    /// Times of its steps since they were forgotten.
    pub times: Vec<StepTime>,
}

/// Records of programs: where they are, and how many bytes they have.
pub type Records<D> = Vec<(Arc<Loaded<D>>, (<D as Device>::Range, usize))>;

impl<D: Executor> Run<D> {
    /// A run of a program, and of the bodies in it. The arena of the program is the run's own, or the caller's.
    pub fn new(
        loaded: &Arc<Loaded<D>>,
        queue: &mut D::Queue,
        nested: bool,
        own_arena: bool,
    ) -> Result<Run<D>, BackendError> {
        let checks = loaded.steps.iter().any(|s| !s.checks.is_empty());
        let mut bodies = Vec::with_capacity(loaded.bodies.len());
        for b in &loaded.bodies {
            bodies.push(b.as_ref().map(|b| Bodies::new(b, queue)).transpose()?);
        }
        Ok(Run {
            loaded: loaded.clone(),
            memory: Memory::new(queue, &loaded.program, checks, own_arena)?,
            bodies,
            launches: Kept::new(if nested { PREPARED_BODIES } else { D::PREPARED }),
            open: Open::default(),
            may_leave_open: false,
            times: Times { on: false, stamps: None, walked: Vec::new() },
            host_steps: Vec::new(),
            host_syncs: 0,
            state: D::state(queue)?,
            nested,
            poison: std::env::var_os("KILN_POISON").is_some_and(|v| v == "1"),
        })
    }

    /// Starts a run: the one before is done.
    pub fn begin(&mut self) {
        self.settle();
        self.launches.begin();
        self.times.walked.clear();
        if let Some(s) = &mut self.times.stamps {
            D::reset(s);
        }
    }

    /// Frees memory that only the last run could name, unless graphs of the caller's name it as well.
    pub fn settle(&mut self) {
        self.memory.settle();
        let recorded = self.memory.recorded;
        for b in self.bodies.iter_mut().flatten() {
            if !recorded {
                D::settle(&mut b.state);
            }
            b.list.iter_mut().for_each(|b| b.run.settle());
        }
    }

    /// Overwrites what nothing may read, where that is asked for.
    pub fn poison(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        if self.poison { self.memory.poison(queue) } else { Ok(()) }
    }

    /// The error of a kernel that wrote outside of the memory of a buffer, where buffers have guards.
    pub fn check_guards(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        self.memory.check_guards(queue)?;
        let mut bodies = self.bodies.iter().flatten().flat_map(|b| &b.list);
        bodies.try_for_each(|b| b.run.check_guards(queue))
    }

    /// After a failure: forgets launches, which may name freed memory. If memory was short, frees everything
    /// that can be made again.
    pub fn forget(&mut self, why: &BackendError) {
        self.launches.clear();
        if matches!(why, BackendError::OutOfMemory { .. }) {
            self.memory.release();
            if !self.memory.recorded {
                self.bodies.iter().flatten().for_each(|b| b.pool.release());
            }
        }
        let bodies = self.bodies.iter_mut().flatten().flat_map(|b| &mut b.list);
        bodies.for_each(|b| b.run.forget(why));
    }

    /// Launches all steps; returns the shapes with what became known.
    pub fn launch(
        &mut self,
        queue: &mut D::Queue,
        key: Vec<Key<D::Range>>,
        shapes: &Arc<Shapes>,
    ) -> Result<Arc<Shapes>, BackendError> {
        // Steps inside of control flow are timed where the host walks.
        let walks = self.times.on && self.loaded.has_flow();
        let prepared = match walks {
            true => None,
            false => match self.launches.take(&key) {
                None => self.rebound(&key)?,
                found => found,
            },
        };
        if let Some(mut p) = prepared {
            self.open = p.open.clone();
            let (ran, shapes) = (D::put(self, queue, &mut p.batch, true), p.shapes.clone());
            self.launches.keep(p);
            return ran.map(|()| shapes);
        }
        let mut known = (**shapes).clone();
        self.run_steps(queue, &mut known, key)?;
        Ok(Arc::new(known))
    }

    /// A prepared run of equal shapes, its launches put into the memory of this key.
    fn rebound(
        &mut self,
        key: &[Key<D::Range>],
    ) -> Result<Option<Prepared<D::Range, D::Batch>>, BackendError> {
        let Some(mut p) = self.launches.take_like(key, D::REBINDS) else { return Ok(None) };
        if D::rebind(self, &mut p.batch, &p.key, key)? {
            p.key = key.to_vec();
            return Ok(Some(p));
        }
        self.launches.put_back(p);
        Ok(None)
    }

    fn run_steps(
        &mut self,
        queue: &mut D::Queue,
        shapes: &mut Shapes,
        key: Vec<Key<D::Range>>,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let allocations = queue.allocations();
        let (mut waiting, mut stopped) = (Vec::new(), false);
        self.open.clear();
        for i in 0..loaded.program.steps.len() {
            self.run_step(queue, shapes, i, &mut waiting, &mut stopped)?;
            waiting.extend(D::after_step(self, i));
        }
        if stopped {
            if queue.allocations() != allocations {
                // Memory of bodies may have moved, which launches of other shapes name.
                self.launches.clear();
            }
            return self.flush(queue, &mut waiting);
        }
        // Launches that were planned before a buffer grew name the old one: plan once more.
        if queue.allocations() != allocations {
            waiting = self.plan_all(queue, shapes)?;
            self.launches.clear();
        }
        let old = self.launches.give_up().map(|p| p.batch);
        let mut batch = D::batch(&loaded, queue, waiting, old)?;
        if self.launches.has_like(&key) {
            D::has_run(&mut batch);
        }
        D::put(self, queue, &mut batch, true)?;
        let (shapes, open) = (Arc::new(shapes.clone()), self.open.clone());
        self.launches.keep(Prepared { key, batch, shapes, open });
        Ok(())
    }

    /// The launches of all steps of a run that needs no host, at shapes that are all known.
    pub(crate) fn plan_all(
        &mut self,
        queue: &mut D::Queue,
        shapes: &Shapes,
    ) -> Result<Vec<D::Launch>, BackendError> {
        let loaded = self.loaded.clone();
        let mut launches = Vec::new();
        for i in 0..loaded.program.steps.len() {
            launches.extend(self.weight_launches(queue, i)?.unwrap_or_default());
            launches.extend(match loaded.is_flow(i) {
                true if self.stacks_nothing(shapes, i) => Vec::new(),
                true => match D::control_flow(self, queue, shapes, i, false)? {
                    Some(planned) => planned,
                    None => return Err(self.needs_host(i)),
                },
                false => self.plan(queue, shapes, i, false)?,
            });
            launches.extend(D::after_step(self, i));
        }
        Ok(launches)
    }

    /// Plans one step; where the host has to know something first, launches what waits and finds it out.
    fn run_step(
        &mut self,
        queue: &mut D::Queue,
        shapes: &mut Shapes,
        i: usize,
        waiting: &mut Vec<D::Launch>,
        stopped: &mut bool,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let program = &loaded.program;
        let kernel = loaded.steps.get(loaded.kernel(i, shapes.case()));
        let (Some(step), Some(kernel)) = (program.steps.get(i), kernel) else { return Ok(()) };
        stop::check(&step.name)?;
        if self.copy_weights(queue, i, waiting)? {
            *stopped = true;
        }
        shapes.update(program, step)?;
        if loaded.is_flow(i) {
            if self.stacks_nothing(shapes, i) {
                return Ok(());
            }
            if let Some(planned) = D::control_flow(self, queue, shapes, i, *stopped)? {
                waiting.extend(planned);
                return Ok(());
            }
            self.flush(queue, waiting)?;
            *stopped = true;
            return self.walk_step(queue, shapes, i);
        }
        if kernel.on_host.is_some() {
            self.flush(queue, waiting)?;
            *stopped = true;
            return self.run_on_host(queue, shapes, i);
        }
        let unknown = shapes.unknown_host_ports(program, step);
        if !unknown.is_empty() {
            self.note_host(i, assisted::CONTENTS);
            self.flush(queue, waiting)?;
            self.host_syncs += 1;
            for v in unknown {
                let t = self.fetch(queue, shapes, v)?;
                shapes.set_content(v, t);
            }
            shapes.update(program, step)?;
            *stopped = true;
        }
        if let Some(message) = &kernel.assertion {
            shapes.check_assertion(program, step, message)?;
        }
        if let Some(why) = shapes.counted(program, step) {
            self.note_host(i, why);
            waiting.extend(self.plan(queue, shapes, i, true)?);
            self.flush(queue, waiting)?;
            self.host_syncs += 1;
            let from = (self.memory.sizes(queue)?, SIZES_BYTES);
            let words = queue.read(&[from])?.pop().unwrap_or_default();
            shapes.set_counted(&step.name, kernel.assertion.as_deref(), &kernel.results, &words)?;
            *stopped = true;
        }
        *stopped |= kernel.random;
        waiting.extend(self.plan(queue, shapes, i, false)?);
        Ok(())
    }

    /// The launches that copy the streamed weights that a step is the first to read; none where the host has to copy them.
    fn weight_launches(
        &mut self,
        queue: &mut D::Queue,
        step: usize,
    ) -> Result<Option<Vec<D::Launch>>, BackendError> {
        let loaded = self.loaded.clone();
        let plan = loaded.weights.streamed.as_ref();
        let Some(weights) = plan.and_then(|p| p.before.get(step)) else { return Ok(Some(Vec::new())) };
        let mut all = Vec::with_capacity(weights.len());
        for &v in weights {
            let Some(w) = loaded.program.graph.weight(v) else { continue };
            if w.tensor.bytes().is_empty() {
                continue;
            }
            let Some(from) = loaded.weights.copies.get(&v) else { return Ok(None) };
            let to = self.room(queue, v, w.tensor.bytes().len() as u64)?;
            match D::copy_weight(step, v, from, to) {
                Some(launch) => all.push(launch),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// Copies the streamed weights that a step is the first to read, behind the launches that wait; whether the host did.
    fn copy_weights(
        &mut self,
        queue: &mut D::Queue,
        step: usize,
        waiting: &mut Vec<D::Launch>,
    ) -> Result<bool, BackendError> {
        let loaded = self.loaded.clone();
        let plan = loaded.weights.streamed.as_ref();
        let Some(weights) = plan.and_then(|p| p.before.get(step)).filter(|w| !w.is_empty()) else {
            return Ok(false);
        };
        if let Some(copies) = self.weight_launches(queue, step)? {
            waiting.extend(copies);
            return Ok(false);
        }
        self.note_host(step, assisted::WEIGHTS);
        self.flush(queue, waiting)?;
        for &v in weights {
            let Some(w) = loaded.program.graph.weight(v) else { continue };
            let bytes = w.tensor.bytes();
            if !bytes.is_empty() {
                let to = self.room(queue, v, bytes.len() as u64)?;
                queue.store(&to, bytes)?;
            }
        }
        self.host_syncs += 1;
        Ok(true)
    }

    /// Runs the plug-in layer of a step on the host: its inputs are read, its outputs are copied to their places.
    fn run_on_host(
        &mut self,
        queue: &mut D::Queue,
        shapes: &mut Shapes,
        step: usize,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        let node =
            loaded.steps.get(step).and_then(|k| graph.get(k.on_host?)).ok_or_else(|| flow::lost(step))?;
        self.note_host(step, assisted::PLUGIN);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for v in &node.inputs {
            let known = v.and_then(|v| shapes.content(graph, v));
            inputs.push(match (v, known) {
                (Some(_), Some(t)) => Some(t),
                (Some(v), None) => {
                    self.host_syncs += 1;
                    Some(self.fetch(queue, shapes, *v)?)
                }
                (None, _) => None,
            });
        }
        for (&v, out) in node.outputs.iter().zip(node.eval(&inputs)?) {
            shapes.came_out(graph, v, out.shape())?;
            let (to, n) = self.place(queue, shapes, v)?;
            if n > 0 {
                queue.store(&to, out.bytes())?;
            }
        }
        if self.times.on {
            self.times.walked.push(step);
        }
        Ok(())
    }

    /// Whether a step is a loop of which only tensors without elements come.
    fn stacks_nothing(&self, shapes: &Shapes, step: usize) -> bool {
        let Ok((node, _)) = flow::walked(&self.loaded.program, step) else { return false };
        let outputs: Vec<_> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
        flow::stacks_nothing(node, &outputs)
    }

    /// Launches what waits, for this run only.
    fn flush(&mut self, queue: &mut D::Queue, waiting: &mut Vec<D::Launch>) -> Result<(), BackendError> {
        if waiting.is_empty() {
            return Ok(());
        }
        let old = self.launches.take_spare();
        let mut batch = D::batch(&self.loaded.clone(), queue, std::mem::take(waiting), old)?;
        let put = D::put(self, queue, &mut batch, false);
        self.launches.keep_part(batch);
        put
    }

    /// The launches of a step; `counts` picks those before or after sizes are read.
    pub fn plan(
        &mut self,
        queue: &mut D::Queue,
        shapes: &Shapes,
        step: usize,
        counts: bool,
    ) -> Result<Vec<D::Launch>, BackendError> {
        Planner { loaded: &self.loaded, memory: &mut self.memory, queue, shapes }.step(step, counts)
    }

    /// Walks a step of control flow: its inputs are read where they are, its outputs are copied to their places.
    fn walk_step(
        &mut self,
        queue: &mut D::Queue,
        shapes: &mut Shapes,
        step: usize,
    ) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        let (node, ids) = flow::walked(&loaded.program, step)?;
        let mut inputs = Vec::with_capacity(ids.len());
        for v in ids {
            let at = self.place(queue, shapes, v)?.0;
            inputs.push(Value::lent(shapes.fact(v).ty.clone(), at, shapes.content(graph, v)));
        }
        let facts: Vec<_> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
        let bodies = self.bodies.get_mut(step).and_then(Option::as_mut).ok_or_else(|| flow::lost(step))?;
        bodies.list.iter_mut().for_each(|b| b.run.forget_host_steps());
        bodies.set_case(shapes.case());
        let before = bodies.all_host_syncs();
        let outputs = bodies.walk(queue, node, &inputs, &facts);
        let waited = bodies.all_host_syncs() > before;
        if let Some(why) = D::WALKS.filter(|_| waited) {
            self.note_host(step, why);
        }
        let outputs = outputs.map_err(|e| e.inside(&loaded.program.steps[step].name))?;
        for (&v, out) in node.outputs.iter().zip(&outputs) {
            shapes.came_out(graph, v, &out.shape())?;
            let (to, n) = self.place(queue, shapes, v)?;
            queue.copy(&out.at, &to, n as u64)?;
        }
        if self.times.on {
            self.times.walked.push(step);
        }
        Ok(())
    }

    /// The memory of a value, and its bytes; the greatest number where its size is open.
    pub fn place(
        &mut self,
        queue: &mut D::Queue,
        shapes: &Shapes,
        v: ValueId,
    ) -> Result<(D::Range, usize), BackendError> {
        let open = self.open.get(v).filter(|_| shapes.shape(v).is_none()).map(Extent::bytes);
        let bytes = open.unwrap_or_else(|| shapes.bytes(&self.loaded.program, v))?;
        Ok((self.room(queue, v, bytes)?, bytes as usize))
    }

    /// The memory of a value: for all that it may become.
    pub fn capacity(
        &mut self,
        queue: &mut D::Queue,
        shapes: &Shapes,
        v: ValueId,
    ) -> Result<D::Range, BackendError> {
        match self.open.get(v).map(Extent::bytes).transpose()? {
            Some(bytes) => self.room(queue, v, bytes),
            None => self.place(queue, shapes, v).map(|p| p.0),
        }
    }

    /// The memory of a value of so many bytes.
    pub fn room(&mut self, queue: &mut D::Queue, v: ValueId, bytes: u64) -> Result<D::Range, BackendError> {
        self.memory.place(queue, &self.loaded.program, &self.loaded.weights, v, bytes)
    }

    /// Copies a value to the host now.
    pub fn fetch(
        &mut self,
        queue: &mut D::Queue,
        shapes: &Shapes,
        v: ValueId,
    ) -> Result<Tensor, BackendError> {
        let from = self.place(queue, shapes, v)?;
        let bytes = queue.read(&[from])?.pop().unwrap_or_default();
        tensor(&shapes.fact(v).ty, bytes)
    }

    /// The records of indices out of range, of this program and of the bodies in it.
    pub fn records(&self) -> Records<D> {
        let own = self.memory.records().map(|r| (self.loaded.clone(), (r, self.loaded.record_bytes())));
        own.into_iter().chain(self.bodies.iter().flatten().flat_map(Bodies::records)).collect()
    }

    /// Resets them.
    pub fn clear_records(&self, queue: &mut D::Queue) -> Result<(), BackendError> {
        self.memory.clear_records(queue)?;
        let mut bodies = self.bodies.iter().flatten().flat_map(|b| &b.list);
        bodies.try_for_each(|b| b.run.clear_records(queue))
    }

    /// Notes that the run needs the host at a step.
    pub fn note_host(&mut self, step: usize, why: Reason) {
        if !self.times.on {
            HostStep::add(&mut self.host_steps, step, why);
        }
    }

    /// Begins to note anew, unless steps are timed.
    pub fn forget_host_steps(&mut self) {
        if !self.times.on {
            self.host_steps.clear();
        }
    }

    /// The steps that were noted; those in bodies that the host walked follow their own.
    pub fn all_host_steps(&self) -> Vec<HostStep> {
        let mut all = Vec::new();
        for s in &self.host_steps {
            all.push(s.clone());
            let bodies = self.bodies.get(s.step).and_then(Option::as_ref);
            for (i, b) in bodies.into_iter().flat_map(|b| b.list.iter().enumerate()) {
                all.extend(b.run.all_host_steps().into_iter().map(|inner| inner.within(s.step, i)));
            }
        }
        all
    }

    /// Number of times that the host waited within runs, those of bodies included.
    pub fn all_host_syncs(&self) -> u64 {
        self.host_syncs + self.bodies.iter().flatten().map(Bodies::all_host_syncs).sum::<u64>()
    }

    /// Times steps from the next run on, those of bodies too.
    pub fn set_timing(&mut self) -> Result<(), BackendError> {
        if self.times.stamps.is_none() && !self.loaded.steps.is_empty() {
            self.times.stamps = Some(D::stamps(&self.loaded.device, &self.loaded.program)?);
        }
        let mut bodies = self.bodies.iter_mut().flatten().flat_map(|b| &mut b.list);
        bodies.try_for_each(|b| b.run.set_timing())?;
        self.times.on = true;
        Ok(())
    }

    /// Times of the steps of the last run, which is done, those inside of control flow left out.
    pub fn own_times(&mut self, queue: &mut D::Queue) -> Result<Vec<StepTime>, BackendError> {
        let mut all = match &mut self.times.stamps {
            Some(s) => D::step_times(queue, s)?,
            None => Vec::new(),
        };
        all.extend(self.times.walked.iter().map(|&step| StepTime::new(step, 0.0)));
        Ok(all)
    }

    /// Times of steps with those inside of them. The time of control flow is the sum of those inside: between its bodies the
    /// device waits for the host.
    pub fn with_inner(&self, own: Vec<StepTime>) -> Vec<StepTime> {
        let mut all = own;
        for (step, b) in self.bodies.iter().enumerate() {
            let inside: Vec<StepTime> = b.iter().flat_map(|b| b.times(step)).collect();
            if inside.is_empty() {
                continue;
            }
            let ns = inside.iter().filter(|t| t.inside.len() == 1).map(|t| t.ns).sum();
            match all.iter_mut().find(|t| t.step == step && t.inside.is_empty()) {
                Some(t) => t.ns = ns,
                None => all.push(StepTime::new(step, ns)),
            }
            all.extend(inside);
        }
        all.sort_by_key(|t| t.step);
        all
    }

    /// Forgets the times of the steps inside of control flow.
    pub fn forget_inner_times(&mut self) {
        for b in self.bodies.iter_mut().flatten().flat_map(|b| &mut b.list) {
            b.times.clear();
            b.run.forget_inner_times();
        }
    }
}

impl<D: Executor> Bodies<D> {
    fn new(bodies: &[Arc<Loaded<D>>], queue: &mut D::Queue) -> Result<Bodies<D>, BackendError> {
        let mut list = Vec::with_capacity(bodies.len());
        for loaded in bodies {
            list.push(Body {
                run: Run::new(loaded, queue, true, true)?,
                shapes: None,
                case: 0,
                times: Vec::new(),
            });
        }
        Ok(Bodies { list, pool: Pool::default(), host_syncs: 0, state: D::FlowState::default() })
    }

    /// The records of the steps inside.
    pub fn records(&self) -> Records<D> {
        self.list.iter().flat_map(|b| b.run.records()).collect()
    }

    fn all_host_syncs(&self) -> u64 {
        self.host_syncs + self.list.iter().map(|b| b.run.all_host_syncs()).sum::<u64>()
    }

    /// Times of the steps inside of step `step`, since they were forgotten.
    fn times(&self, step: usize) -> Vec<StepTime> {
        let each = self.list.iter().enumerate();
        each.flat_map(|(i, b)| StepTime::within(b.run.with_inner(b.times.clone()), step, i)).collect()
    }
}
