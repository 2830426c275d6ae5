//! A run: node by node, each by its operator's oracle.

use kiln_backend::flow::{self, Bodies, LoadedBodies};
use kiln_backend::{BackendError, Context, Counters, HostStep, Program, Shapes, Step, StepTime, stop};
use kiln_ir::{NodeId, Tensor, ValueId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// A program with what its contexts share.
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    /// Bodies of each step of control flow.
    pub(crate) bodies: Vec<Option<LoadedBodies>>,
    /// Values between steps, and outputs: what can be observed.
    pub(crate) border: HashSet<ValueId>,
    /// Values that nobody reads after a node.
    pub(crate) dead_after: HashMap<NodeId, Vec<ValueId>>,
}

/// Runs on the calling thread.
pub(crate) struct OracleContext {
    loaded: Arc<Loaded>,
    /// Contexts of the bodies of each step of control flow.
    bodies: Vec<Option<Bodies>>,
    values: Vec<Option<Tensor>>,
    outputs: Option<Vec<Tensor>>,
    observable: bool,
    times: Vec<StepTime>,
    /// Whether times are asked for, of the steps inside of control flow too.
    timing: bool,
    runs: u64,
}

impl OracleContext {
    pub(crate) fn new(loaded: Arc<Loaded>) -> Result<OracleContext, BackendError> {
        let bodies = loaded.bodies.iter().map(|b| b.as_ref().map(LoadedBodies::context).transpose());
        let bodies = bodies.collect::<Result<_, _>>()?;
        Ok(OracleContext {
            loaded,
            bodies,
            values: Vec::new(),
            outputs: None,
            observable: false,
            times: Vec::new(),
            timing: false,
            runs: 0,
        })
    }

    fn run(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<Vec<Tensor>, BackendError> {
        let program = self.loaded.program.clone();
        let graph = &program.graph;
        shapes.check_inputs(graph, inputs)?;
        self.values = vec![None; graph.value_ids().count()];
        let given = graph.inputs.iter().copied().zip(inputs);
        for (v, t) in given.chain(program.weights()) {
            self.values[v.0 as usize] = Some(t.clone());
        }
        let mut shapes = shapes.clone();
        let mut sharpened = false;
        for (i, step) in program.steps.iter().enumerate() {
            stop::check(&step.name)?;
            let start = Instant::now();
            if sharpened || !shapes.ready(&program, step) {
                sharpened = true;
                self.sharpen(Arc::make_mut(&mut shapes), &program, step)?;
            }
            match flow::node(graph, step) {
                Some(_) => self.walk(&program, i, &shapes).map_err(|e| e.inside(&step.name))?,
                None => self.step(&program, step, &shapes)?,
            }
            if sharpened {
                self.record_shapes(Arc::make_mut(&mut shapes), &program, step);
            }
            self.times.push(StepTime::new(i, start.elapsed().as_nanos() as f64));
        }
        graph.outputs.iter().map(|&v| self.value(v)).collect()
    }

    fn step(&mut self, program: &Program, step: &Step, shapes: &Shapes) -> Result<(), BackendError> {
        for id in &step.nodes {
            let Some(node) = program.graph.get(*id) else { continue };
            let args: Vec<Option<Tensor>> =
                node.inputs.iter().map(|v| v.map(|v| self.value(v)).transpose()).collect::<Result<_, _>>()?;
            let outs = stop::interruptible(&node.name, || Ok(node.eval(&args)?))?;
            for (&v, out) in node.outputs.iter().zip(outs) {
                shapes.check_shape(&program.graph, v, out.shape())?;
                self.values[v.0 as usize] = Some(out);
            }
            if !self.observable {
                let dead = self.loaded.dead_after.get(id).into_iter().flatten();
                dead.for_each(|v| self.values[v.0 as usize] = None);
            }
        }
        Ok(())
    }

    /// Runs a step of control flow: its bodies are programs of their own.
    fn walk(&mut self, program: &Program, index: usize, shapes: &Shapes) -> Result<(), BackendError> {
        let (node, inputs) = flow::walked(program, index)?;
        let inputs = inputs.iter().map(|&v| self.value(v)).collect::<Result<Vec<_>, _>>()?;
        let facts: Vec<_> = node.outputs.iter().map(|&v| shapes.fact(v).clone()).collect();
        let bodies = self.bodies.get_mut(index).and_then(Option::as_mut).ok_or_else(|| flow::lost(index))?;
        let outs = bodies.walk(node, &inputs, &facts, shapes.case())?;
        for (&v, out) in node.outputs.iter().zip(outs) {
            shapes.check_shape(&program.graph, v, out.shape())?;
            self.values[v.0 as usize] = Some(out);
        }
        Ok(())
    }

    /// Infers the step again from the contents that earlier steps computed.
    fn sharpen(&self, shapes: &mut Shapes, program: &Program, step: &Step) -> Result<(), BackendError> {
        for v in shapes.unknown_host_ports(program, step) {
            if let Some(t) = &self.values[v.0 as usize] {
                shapes.set_content(v, t.clone());
            }
        }
        shapes.update(program, step)
    }

    fn record_shapes(&self, shapes: &mut Shapes, program: &Program, step: &Step) {
        for &v in step.nodes.iter().filter_map(|&n| program.graph.get(n)).flat_map(|n| &n.outputs) {
            if let Some(t) = self.values[v.0 as usize].as_ref().filter(|_| shapes.shape(v).is_none()) {
                shapes.set_shape(v, t.shape());
            }
        }
    }

    fn value(&self, v: ValueId) -> Result<Tensor, BackendError> {
        let missing = || BackendError::Internal(format!("value {v:?} was never computed"));
        self.values.get(v.0 as usize).and_then(Clone::clone).ok_or_else(missing)
    }
}

impl Context for OracleContext {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.outputs = None;
        self.times.clear();
        self.bodies.iter_mut().flatten().for_each(Bodies::forget_times);
        let result = self.run(inputs, shapes);
        if !self.observable || result.is_err() {
            self.values.clear();
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
        if value.0 as usize >= graph.value_ids().count() {
            return Err(BackendError::InvalidArgument(format!("{value:?} is no value of the program")));
        }
        let name = &graph.value(value).name;
        if !self.loaded.border.contains(&value) {
            return Err(BackendError::Unsupported(format!("\"{name}\" is inside a step")));
        }
        let kept = self.values.get(value.0 as usize).and_then(Clone::clone);
        kept.ok_or_else(|| {
            BackendError::Unsupported(format!(
                "\"{name}\" was not kept; call set_observable(true) before the run"
            ))
        })
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
        // The device is the host.
        Ok(Vec::new())
    }

    fn counters(&self) -> Counters {
        Counters { runs: self.runs, ..Counters::default() }
    }
}
