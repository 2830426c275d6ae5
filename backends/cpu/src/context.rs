//! A run.

use crate::buffer::{Options, Pool};
use crate::fast::RunCx;
use crate::kernel::{Operation, Schedule};
use crate::threads::Threads;
use crate::value::Val;
use kiln_backend::flow::{self, Bodies, LoadedBodies};
use kiln_backend::{
    BackendError, Context, Counters, HostStep, Program, Shapes, Step, StepTime, assisted, stop,
};
use kiln_ir::{Tensor, ValueId};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// A program with its schedule and weights.
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    pub(crate) schedule: Schedule,
    /// Bodies of each step that the host walks.
    pub(crate) bodies: Vec<Option<LoadedBodies>>,
    /// Weights by value id.
    pub(crate) weights: Vec<Option<Val>>,
    pub(crate) options: Options,
    pub(crate) threads: Arc<Threads>,
}

/// Runs on the calling thread, with the device's workers beside it.
pub(crate) struct CpuContext {
    loaded: Arc<Loaded>,
    pool: Arc<Pool>,
    /// Contexts of the bodies of each step that the host walks.
    bodies: Vec<Option<Bodies>>,
    values: Vec<Option<Val>>,
    outputs: Option<Vec<Tensor>>,
    observable: bool,
    times: Vec<StepTime>,
    /// Steps of the last run in which the oracle computed a layer.
    by_oracle: Vec<HostStep>,
    /// Whether times are asked for, of the steps inside of control flow too.
    timing: bool,
    runs: u64,
    /// Shapes of which a run knew everything before it began.
    known: Option<Arc<Shapes>>,
}

impl CpuContext {
    pub(crate) fn new(loaded: Arc<Loaded>) -> Result<CpuContext, BackendError> {
        let pool = Pool::new(&loaded.options);
        let values = vec![None; loaded.weights.len()];
        let bodies = loaded.bodies.iter().map(|b| b.as_ref().map(LoadedBodies::context).transpose());
        let bodies = bodies.collect::<Result<_, _>>()?;
        Ok(CpuContext {
            loaded,
            pool,
            bodies,
            values,
            outputs: None,
            observable: false,
            times: Vec::new(),
            by_oracle: Vec::new(),
            timing: false,
            runs: 0,
            known: None,
        })
    }

    /// Places inputs and weights.
    fn place(&mut self, inputs: &[Tensor], shapes: &Shapes) -> Result<(), BackendError> {
        let graph = &self.loaded.program.graph;
        shapes.check_inputs(graph, inputs)?;
        self.values.clone_from(&self.loaded.weights);
        for (&v, t) in graph.inputs.iter().zip(inputs) {
            self.values[v.0 as usize] = Some(Val::shared(t.clone()));
        }
        Ok(())
    }

    fn step(&mut self, index: usize, shapes: &Shapes) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        if let Some(bodies) = self.bodies.get_mut(index).and_then(Option::as_mut) {
            let name = &loaded.program.steps[index].name;
            let walked = walk(&loaded.program, index, bodies, &mut self.values, shapes);
            return walked.map_err(|e| e.inside(name));
        }
        let fell_back =
            Cell::new(loaded.program.steps[index].tactic_in(shapes.case()).name == assisted::ORACLE);
        let cx =
            RunCx { graph, shapes, pool: &self.pool, fell_back: &fell_back, observable: self.observable };
        for op in loaded.schedule.step(index, shapes.case()) {
            let args = fetch(&mut self.values, op, self.observable);
            self.pool.begin(op.node.0);
            let layer = graph.get(op.node).map_or("", |n| n.name.as_str());
            let outs = stop::interruptible(layer, || op.run(&cx, args))?;
            for ((&v, &unused), out) in op.outputs.iter().zip(&op.unused).zip(outs) {
                if !unused || self.observable {
                    shapes.check_shape(graph, v, out.shape())?;
                    self.values[v.0 as usize] = Some(out);
                }
            }
        }
        if fell_back.get() {
            HostStep::add(&mut self.by_oracle, index, assisted::BY_ORACLE);
        }
        Ok(())
    }

    fn run(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<Vec<Tensor>, BackendError> {
        let program = self.loaded.program.clone();
        self.place(inputs, shapes)?;
        let given = shapes;
        let known = self.known.as_ref().is_some_and(|k| Arc::ptr_eq(k, given));
        let mut shapes = given.clone();
        let mut sharpened = false;
        for (i, step) in program.steps.iter().enumerate() {
            stop::check(&step.name)?;
            let start = Instant::now();
            if sharpened || !known && !shapes.ready(&program, step) {
                sharpened = true;
                self.sharpen(Arc::make_mut(&mut shapes), &program, step)?;
            }
            self.step(i, &shapes)?;
            if sharpened {
                self.record_shapes(Arc::make_mut(&mut shapes), &program, step);
            }
            self.times.push(StepTime::new(i, start.elapsed().as_nanos() as f64));
        }
        if !sharpened && !known {
            self.known = Some(given.clone());
        }
        program.graph.outputs.iter().map(|&v| self.value(v)?.output()).collect()
    }

    /// Infers the step again from what earlier steps gave.
    fn sharpen(&self, shapes: &mut Shapes, program: &Program, step: &Step) -> Result<(), BackendError> {
        for v in shapes.unknown_host_ports(program, step) {
            if let Some(x) = &self.values[v.0 as usize] {
                shapes.set_content(v, x.tensor()?);
            }
        }
        shapes.update(program, step)
    }

    fn record_shapes(&self, shapes: &mut Shapes, program: &Program, step: &Step) {
        for v in step.nodes.iter().filter_map(|&n| program.graph.get(n)).flat_map(|n| &n.outputs) {
            if let Some(x) = self.values[v.0 as usize].as_ref().filter(|_| shapes.shape(*v).is_none()) {
                shapes.set_shape(*v, x.shape());
            }
        }
    }

    fn value(&self, v: ValueId) -> Result<&Val, BackendError> {
        let missing = || BackendError::Internal(format!("value {v:?} was never computed"));
        self.values.get(v.0 as usize).and_then(Option::as_ref).ok_or_else(missing)
    }
}

/// Runs a step of control flow: its bodies are programs of their own.
fn walk(
    program: &Program,
    step: usize,
    bodies: &mut Bodies,
    values: &mut [Option<Val>],
    shapes: &Shapes,
) -> Result<(), BackendError> {
    let (node, inputs) = flow::walked(program, step)?;
    let input = |v: &ValueId| values[v.0 as usize].as_ref().ok_or_else(|| flow::lost(step))?.tensor();
    let inputs = inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let facts: Vec<_> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
    let outs = bodies.walk(node, &inputs, &facts, shapes.case())?;
    for (&v, out) in node.outputs.iter().zip(outs) {
        let out = Val::shared(out);
        shapes.check_shape(&program.graph, v, out.shape())?;
        values[v.0 as usize] = Some(out);
    }
    Ok(())
}

/// The operation's arguments; moved out of the table at their last use, so that their memory can be reused.
fn fetch(values: &mut [Option<Val>], op: &Operation, keep: bool) -> Vec<Option<Val>> {
    let mut get = |v: &Option<ValueId>, last: bool| {
        let slot = &mut values[v.as_ref()?.0 as usize];
        if last && !keep { slot.take() } else { slot.clone() }
    };
    op.inputs.iter().zip(&op.last).map(|(v, &last)| get(v, last)).collect()
}

impl Context for CpuContext {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.outputs = None;
        self.times.clear();
        self.by_oracle.clear();
        self.bodies.iter_mut().flatten().for_each(Bodies::forget_times);
        let threads = self.loaded.threads.clone();
        let result = threads.enter(|| self.run(inputs, shapes));
        if !self.observable || result.is_err() {
            self.values.fill(None);
        }
        self.outputs = Some(result?);
        self.runs += 1;
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        let none = || BackendError::InvalidArgument("no run was enqueued, or it failed".into());
        self.outputs.take().ok_or_else(none)
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        let graph = &self.loaded.program.graph;
        if value.0 as usize >= self.values.len() {
            return Err(BackendError::InvalidArgument(format!("{value:?} is no value of the program")));
        }
        if !self.loaded.schedule.border.contains(&value) {
            return Err(BackendError::Unsupported(format!(
                "\"{}\" lies inside a kernel",
                graph.value(value).name
            )));
        }
        match &self.values[value.0 as usize] {
            Some(v) => v.tensor(),
            None => Err(BackendError::Unsupported(format!(
                "\"{}\" was not kept; call set_observable(true) before the run",
                graph.value(value).name
            ))),
        }
    }

    fn set_observable(&mut self, on: bool) {
        self.observable = on;
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        if !std::mem::replace(&mut self.timing, true) {
            self.bodies.iter_mut().flatten().try_for_each(Bodies::set_timing)?;
        }
        let mut all = self.times.clone();
        for (step, b) in self.bodies.iter().enumerate() {
            all.extend(b.iter().flat_map(|b| b.times(step)));
        }
        all.sort_by_key(|t| t.step);
        Ok(all)
    }

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        // The device is the host; reported are layers that have no kernel.
        Ok(self.by_oracle.clone())
    }

    fn counters(&self) -> Counters {
        let inside = self.bodies.iter().flatten().map(|b| b.counters().allocations).sum::<u64>();
        Counters { runs: self.runs, allocations: self.pool.allocations() + inside, ..Counters::default() }
    }
}
