//! One body: a program in a context of its own that reads and writes where it is told to.

use super::super::context::{WgpuContext, tensor};
use super::super::device::Loaded;
use super::super::memory::{Growing, Range};
use super::super::plan::Dispatch;
use super::super::record::{BindGroups, bind};
use super::{Recorder, Value};
use kiln_backend::{BackendError, Shapes, StepTime};
use kiln_ir::{Fact, Tensor, TensorType};
use std::collections::HashMap;
use std::sync::Arc;

/// So many plans are kept: a loop needs one for its first trip and two for the others, in each trip of a loop around it.
const KEPT: usize = 8;

pub struct Body {
    pub context: WgpuContext,
    /// The shapes of the last run with what they were made for.
    last: Option<(Vec<(TensorType, Option<Tensor>)>, Arc<Shapes>)>,
    prepared: Vec<Prepared>,
    /// Which of them is given up next.
    oldest: usize,
    times: Vec<StepTime>,
    pub allocations: u64,
}

/// Places of inputs and of outputs.
type Places = Vec<Option<(u64, u64, u64)>>;

/// A run without an answer of the device in between, bound and ready.
struct Prepared {
    shapes: Arc<Shapes>,
    places: Places,
    dispatches: Vec<Dispatch>,
    groups: Vec<wgpu::BindGroup>,
    outs: Vec<Value>,
    /// Arguments of the dispatches.
    args: Option<Growing>,
}

impl Body {
    pub fn new(loaded: &Arc<Loaded>) -> Result<Body, BackendError> {
        let context = WgpuContext::new(loaded.clone())?;
        let (times, prepared) = (Vec::new(), Vec::new());
        Ok(Body { context, last: None, prepared, oldest: 0, times, allocations: 0 })
    }

    /// Lets the host know the contents of shape inputs.
    pub fn know(
        &mut self,
        recorder: &mut Recorder,
        given: &mut [Value],
        syncs: &mut u64,
    ) -> Result<(), BackendError> {
        for &i in &self.context.loaded.shape_inputs {
            let Some(v) = given.get_mut(i).filter(|v| v.known.is_none()) else { continue };
            *syncs += 1;
            let from = (v.at.clone(), v.bytes()?);
            let bytes = recorder.read(&mut self.context.memory, &[from])?.pop();
            v.known = Some(tensor(&v.ty, bytes.unwrap_or_default())?);
        }
        Ok(())
    }

    /// The shapes of a run with these inputs, shape inputs known.
    pub fn shapes(&mut self, given: &[Value]) -> Result<Arc<Shapes>, BackendError> {
        let loaded = &self.context.loaded;
        let content =
            |(i, v): (usize, &Value)| (v.ty.clone(), v.known.clone().filter(|_| loaded.plans_by(i)));
        let key: Vec<_> = given.iter().enumerate().map(content).collect();
        if let Some((made_for, shapes)) = &self.last
            && *made_for == key
        {
            return Ok(shapes.clone());
        }
        let fact = |(ty, content): &(TensorType, Option<Tensor>)| match content {
            Some(t) => Fact::constant(t.clone()),
            None => Fact::of(ty.clone()),
        };
        let facts: Vec<Fact> = key.iter().map(fact).collect();
        let shapes = Arc::new(Shapes::new(self.context.loaded.program.graph.infer_from(&facts)?));
        self.last = Some((key, shapes.clone()));
        Ok(shapes)
    }

    /// The shape of output `j`, if a step can write it where it is told to: one that the body computes, known before the
    /// run.
    pub fn writes(&self, shapes: &Shapes, j: usize) -> Option<Vec<usize>> {
        let graph = &self.context.loaded.program.graph;
        let v = *graph.outputs.get(j)?;
        graph.producer(v)?;
        let first = graph.outputs.iter().position(|&o| o == v) == Some(j);
        shapes.shape(v).filter(|_| first)
    }

    /// Runs the body: inputs where they lie, outputs into the given places, where there are some. Gives the outputs, which
    /// stay until the next run.
    pub fn run(
        &mut self,
        recorder: &mut Recorder,
        given: &[Value],
        to: &[Option<Range>],
        shapes: &Arc<Shapes>,
    ) -> Result<Vec<Value>, BackendError> {
        self.context.prepare_stamps()?;
        if self.context.poison.is_some() {
            self.context.poison(recorder.encoder());
        }
        let place = |r: &Range| (r.id, r.offset, r.size);
        let places: Places = given
            .iter()
            .map(|v| Some(place(&v.at)))
            .chain(to.iter().map(|r| r.as_ref().map(place)))
            .collect();
        let found = |p: &Prepared| Arc::ptr_eq(&p.shapes, shapes) && p.places == places;
        let outs = match self.prepared.iter().find(|p| found(p)) {
            Some(p) => {
                recorder.run(&self.context.loaded, &p.dispatches, &p.groups, self.context.stamps());
                p.outs.clone()
            }
            None => self.first(recorder, given, to, shapes, places)?,
        };
        if self.context.timing {
            self.take_times(recorder)?;
        }
        Ok(outs)
    }

    /// A run that is not prepared.
    fn first(
        &mut self,
        recorder: &mut Recorder,
        given: &[Value],
        to: &[Option<Range>],
        shapes: &Arc<Shapes>,
        places: Places,
    ) -> Result<Vec<Value>, BackendError> {
        // Arguments are uploaded ahead of what was recorded.
        recorder.flush()?;
        let loaded = self.context.loaded.clone();
        let graph = &loaded.program.graph;
        let redirected = graph.outputs.iter().zip(to).filter_map(|(&v, r)| Some((v, r.clone()?)));
        let memory = &mut self.context.memory;
        memory.redirected = redirected.collect();
        memory.bound = given.iter().map(|v| v.at.clone()).enumerate().collect::<HashMap<_, _>>();
        let mut known = (**shapes).clone();
        let (mut dispatches, stopped) = self.context.plan_steps(&mut known)?;
        let mut outs = Vec::with_capacity(graph.outputs.len());
        for &v in &graph.outputs {
            let at = self.context.place(&known, v)?.0;
            let fact = known.fact(v);
            outs.push(Value { ty: fact.ty.clone(), at, known: fact.as_const().cloned() });
        }
        if stopped {
            self.context.flush(&mut dispatches)?;
            return Ok(outs);
        }
        let mut args = self.give_up();
        let groups = &mut BindGroups::default();
        let groups = bind(&loaded, &mut args, &mut self.allocations, groups, &dispatches)?;
        recorder.run(&loaded, &dispatches, &groups, self.context.stamps());
        let made = Prepared { shapes: shapes.clone(), places, dispatches, groups, outs: outs.clone(), args };
        match self.prepared.get_mut(self.oldest) {
            Some(old) => *old = made,
            None => self.prepared.push(made),
        }
        self.oldest = (self.oldest + 1) % KEPT;
        Ok(outs)
    }

    /// The buffer of the plan that is given up next.
    fn give_up(&mut self) -> Option<Growing> {
        self.prepared.get_mut(self.oldest).and_then(|p| p.args.take())
    }

    /// Adds the times of the run that was recorded last.
    fn take_times(&mut self, recorder: &mut Recorder) -> Result<(), BackendError> {
        if let Some(s) = self.context.stamps() {
            s.resolve(recorder.encoder());
        }
        recorder.flush()?;
        StepTime::add(&mut self.times, self.context.own_times()?);
        Ok(())
    }

    pub fn forget_times(&mut self) {
        self.times.clear();
        self.context.forget_inner_times();
    }

    /// Times of the steps since they were forgotten, in their order, those inside of control flow behind its own.
    pub fn times(&self) -> Vec<StepTime> {
        let inner = self.context.inner_times();
        let mut all = self.times.clone();
        let mut flows: Vec<usize> = inner.iter().map(|t| t.step).collect();
        flows.dedup();
        for step in flows {
            let direct = inner.iter().filter(|t| t.step == step && t.inside.len() == 1);
            let ns = direct.clone().map(|t| t.ns).sum();
            let runs = direct.map(|t| t.runs).max().unwrap_or(0);
            all.push(StepTime { runs, ..StepTime::new(step, ns) });
        }
        all.extend(inner);
        all.sort_by_key(|t| t.step);
        all
    }
}
