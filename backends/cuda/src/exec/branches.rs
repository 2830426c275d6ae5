//! Control flow on the device: steps of loops and conditionals as nodes of a graph, where all sizes are known before the
//! run. Everything else the host walks ([`super::flow`]).

use super::asked::Test;
use super::conditional::Choice;
use super::context::CudaContext;
use super::extent::Extent;
use super::flow::{Bodies, Body};
use super::loops::Loop;
use super::memory::Range;
use super::moves::{CELL_BYTES, Decision, Move, Trips, clash, commands};
use super::plan::Planned;
use super::reasons;
use super::run::Batch;
use crate::driver::{Branch, Buffer, Command, DriverError, Kind, Launch, Module, Stream};
use kiln_backend::assisted::Reason;
use kiln_backend::{BackendError, Place, Shapes, Tactic, flow};
use kiln_ir::{Fact, IrError, Node, Tensor, TensorType, ValueId};
use std::any::Any;
use std::sync::Arc;

/// Why the host walks a step, or what went wrong.
pub(super) enum Stop {
    Host(Reason),
    Failed(BackendError),
}

macro_rules! failures {
    ($($error:ty),*) => {
        $(impl From<$error> for Stop {
            fn from(e: $error) -> Stop {
                Stop::Failed(e.into())
            }
        })*
    };
}

failures!(BackendError, DriverError, IrError);

pub(super) type Made<T> = Result<T, Stop>;

pub(super) fn host<T>(why: Reason) -> Made<T> {
    Err(Stop::Host(why))
}

/// A tensor that bodies read: where it lies, its type, and its elements if the host knows them.
#[derive(Clone)]
pub(super) struct Given {
    pub at: Range,
    pub ty: TensorType,
    pub content: Option<Tensor>,
}

impl Given {
    /// As an input of a body that reads it where it lies.
    pub fn lent(&self) -> Input {
        (Some(self.at), self.ty.clone(), self.content.clone())
    }
}

/// An input of a body: where it lies (`None`: in memory of the body's own), its type, and its elements if they are known.
pub(super) type Input = (Option<Range>, TensorType, Option<Tensor>);

/// What all parts of a step need.
pub(super) struct Site {
    pub step: usize,
    pub tactic: Tactic,
    pub inputs: Vec<Given>,
    pub outputs: Vec<Given>,
    module: Arc<Module>,
}

impl CudaContext {
    /// The commands of a step of control flow, if the host is not needed in it.
    pub(super) fn on_device(
        &mut self,
        shapes: &Shapes,
        step: usize,
    ) -> Result<Option<Vec<Planned>>, BackendError> {
        match self.branches(shapes, step) {
            Ok(planned) => Ok(Some(planned)),
            Err(Stop::Failed(e)) => Err(e),
            Err(Stop::Host(why)) => {
                let loaded = self.loaded.clone();
                let walked = loaded.program.steps.get(step);
                let node = walked.and_then(|s| flow::node(&loaded.program.graph, s));
                node.map_or(&[][..], |n| &n.outputs).iter().for_each(|&v| self.open.remove(v));
                let name = walked.map_or("", |s| s.name.as_str());
                tracing::debug!("\"{name}\" is walked by the host: {}", why.why);
                self.note_host(step, why);
                Ok(None)
            }
        }
    }

    fn branches(&mut self, shapes: &Shapes, step: usize) -> Made<Vec<Planned>> {
        let loaded = self.loaded.clone();
        let Some(module) = loaded.moves.clone() else { return host(reasons::NO_NODES) };
        let (node, inputs) = flow::walked(&loaded.program, step)?;
        let tactic = loaded.program.steps[step].tactic.clone();
        let inputs = inputs.into_iter().map(|v| self.given(shapes, v)).collect::<Made<Vec<_>>>()?;
        let mut bodies = self.bodies.get_mut(step).and_then(Option::take).ok_or_else(|| flow::lost(step))?;
        let site = Site { step, tactic, inputs, outputs: Vec::new(), module };
        let made = self.decided(shapes, node, site, &mut bodies);
        if let Some(place) = self.bodies.get_mut(step) {
            *place = Some(bodies);
        }
        made
    }

    fn decided(
        &mut self,
        shapes: &Shapes,
        node: &Node,
        site: Site,
        bodies: &mut Bodies,
    ) -> Made<Vec<Planned>> {
        if let Some(captures) = node.branches(site.inputs.len())? {
            return self.conditional(shapes, bodies, &Choice::new(site, &node.outputs, captures));
        }
        let shape = node.loop_shape(site.inputs.len())?;
        let outputs = self.loop_outputs(shapes, node, &site, &shape, bodies)?;
        let site = Site { outputs, ..site };
        Loop::new(&site, &shape)?.planned(bodies)
    }

    /// A value whose size is known.
    pub(super) fn given(&mut self, shapes: &Shapes, v: ValueId) -> Made<Given> {
        if shapes.shape(v).is_none() {
            return host(reasons::SIZE_OUTSIDE);
        }
        let content = shapes.content(&self.loaded.program.graph, v);
        let at = self.place(shapes, v)?.0;
        // Control flow inside of a loop copies what it is given, decides by it, or lends it to others.
        Ok(Given { at: self.memory.fixed(at), ty: shapes.fact(v).ty.clone(), content })
    }

    /// The commands of all steps, if the host is needed in none.
    fn all_steps(&mut self, shapes: &mut Shapes) -> Made<Vec<Planned>> {
        let loaded = self.loaded.clone();
        let mut all = Vec::new();
        self.open.clear();
        for (i, step) in loaded.program.steps.iter().enumerate() {
            shapes.update(&loaded.program, step)?;
            if loaded.bodies.get(i).is_some_and(Option::is_some) {
                all.extend(self.branches(shapes, i)?);
                continue;
            }
            let k = loaded.steps.get(i).filter(|k| !k.data_dependent && k.assertion.is_none() && !k.random);
            if k.is_none() || !shapes.ready(&loaded.program, step) {
                return host(reasons::LAYER_INSIDE);
            }
            all.extend(self.plan(shapes, i, false)?);
        }
        Ok(all)
    }
}

impl Site {
    pub fn planned(&self, commands: impl IntoIterator<Item = Command>) -> Vec<Planned> {
        let one = |launch| Planned { step: self.step, launch, further: Vec::new() };
        commands.into_iter().map(one).collect()
    }

    /// Inputs at these positions; fewer where there are fewer.
    pub fn given(&self, range: std::ops::Range<usize>) -> &[Given] {
        self.inputs.get(range).unwrap_or_default()
    }

    /// Moves that read before others write, through memory in between where they must.
    pub fn moves(&self, bodies: &mut Bodies, all: &[Move], decision: &Decision) -> Made<Vec<Command>> {
        if !clash(all) {
            return Ok(commands(&self.module, all, decision));
        }
        let size = |m: &Move| (u64::from(m.rows) * u64::from(m.width)).next_multiple_of(256);
        let mut at = bodies.stage(all.iter().map(size).sum())?;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for m in all {
            let width = u64::from(m.width);
            first.push(Move { to: at, to_step: 0, to_pitch: width, ..*m });
            // An address is told once, and then copied.
            let trips = if m.trips == Trips::Address { Trips::Next } else { m.trips };
            second.push(Move { from: Some(at), from_step: 0, from_pitch: width, trips, ..*m });
            at += size(m);
        }
        let mut out = commands(&self.module, &first, &decision.without());
        out.extend(commands(&self.module, &second, decision));
        Ok(out)
    }

    /// The launch that decides, behind these moves: what comes before it, and the launch.
    pub fn deciding(
        &self,
        bodies: &mut Bodies,
        all: &[Move],
        decision: &Decision,
    ) -> Made<(Vec<Command>, Launch)> {
        let mut ahead = self.moves(bodies, all, decision)?;
        match ahead.pop() {
            Some(Command::Kernel(last)) => Ok((ahead, last)),
            _ => Err(BackendError::Internal("no kernel that decides".into()).into()),
        }
    }
}

/// A body's commands and results.
pub(super) struct Part {
    pub planned: Vec<Planned>,
    pub results: Vec<Given>,
}

/// The same, where sizes of results may be open.
pub(super) struct OpenPart {
    pub planned: Vec<Planned>,
    /// Their first bytes, and what is known of their sizes.
    pub results: Vec<(u64, Extent)>,
}

impl Body {
    /// Plans the body. Results lie where they are wanted, if the body writes them; else where it has them.
    fn part(&mut self, inputs: Vec<Input>, wanted: &[Option<Range>]) -> Made<Part> {
        let (planned, shapes) = self.steps(inputs, wanted, false)?;
        let loaded = self.loaded.clone();
        let mut results = Vec::new();
        for &v in &loaded.program.graph.outputs {
            if shapes.shape(v).is_none() {
                return host(reasons::SIZE_INSIDE);
            }
            let at = self.context.place(&shapes, v)?.0;
            results.push(Given { at, ty: shapes.fact(v).ty.clone(), content: None });
        }
        Ok(Part { planned, results })
    }

    /// The same; sizes of results may be open.
    pub(super) fn open_part(&mut self, inputs: Vec<Input>, wanted: &[Option<Range>]) -> Made<OpenPart> {
        let (planned, shapes) = self.steps(inputs, wanted, true)?;
        let loaded = self.loaded.clone();
        let mut results = Vec::new();
        for &v in &loaded.program.graph.outputs {
            let extent = self.context.extent(&shapes, v)?;
            results.push((self.context.place(&shapes, v)?.0.address, extent));
        }
        Ok(OpenPart { planned, results })
    }

    fn steps(
        &mut self,
        inputs: Vec<Input>,
        wanted: &[Option<Range>],
        open: bool,
    ) -> Made<(Vec<Planned>, Shapes)> {
        let mut shapes = self.lend(inputs)?;
        self.lend_outputs(&shapes, wanted)?;
        self.context.may_leave_open = open;
        Ok((self.context.all_steps(&mut shapes)?, shapes))
    }

    /// The types of the results for these inputs, those whose sizes are known before anything is planned.
    pub(super) fn result_types(&mut self, inputs: Vec<Input>) -> Made<Vec<Option<TensorType>>> {
        let shapes = self.lend(inputs)?;
        let known = |&v: &ValueId| Some(shapes.fact(v).ty.clone()).filter(|ty| ty.static_dims().is_some());
        Ok(self.loaded.program.graph.outputs.iter().map(known).collect())
    }

    /// The shapes of a run with these inputs, which lie where they are from now on.
    fn lend(&mut self, inputs: Vec<Input>) -> Made<Shapes> {
        let loaded = self.loaded.clone();
        let mut facts = Vec::with_capacity(inputs.len());
        for (i, (lent, ty, content)) in inputs.into_iter().enumerate() {
            self.context.lend(i, lent);
            let read = loaded.shape_inputs.contains(&i) || loaded.counts.contains(&i);
            facts.push(match content.filter(|_| read) {
                Some(t) => Fact::constant(t),
                None => Fact::of(ty),
            });
        }
        Ok(Shapes::new(loaded.program.graph.infer_from(&facts)?))
    }

    fn lend_outputs(&mut self, shapes: &Shapes, wanted: &[Option<Range>]) -> Made<()> {
        let loaded = self.loaded.clone();
        let outputs = &loaded.program.graph.outputs;
        outputs.iter().for_each(|&v| self.context.memory.lend_output(v, None));
        let mut lent: Vec<ValueId> = Vec::new();
        for (&v, wanted) in outputs.iter().zip(wanted) {
            let Some(at) = *wanted else { continue };
            let bytes = super::values::bytes(&shapes.fact(v).ty).ok();
            if bytes == Some(at.size) && !lent.contains(&v) && self.writes(v) {
                self.context.memory.lend_output(v, Some(at));
                lent.push(v);
            }
        }
        Ok(())
    }

    /// Does a step write it anew, wherever it lies?
    pub(super) fn writes(&self, v: ValueId) -> bool {
        let program = &self.loaded.program;
        let Some((_, node)) = program.graph.producer(v) else { return false };
        let at = node.outputs.iter().position(|&o| o == v);
        let aliased = node.op.def().traits.must_alias.iter().any(|&(_, o)| Some(o) == at);
        !aliased && !matches!(program.memory.places.get(v.0 as usize), Some(Place::Input(_)))
    }

    /// Does it write into the memory of an input?
    pub(super) fn overwrites(&self, input: usize) -> bool {
        let program = &self.loaded.program;
        let here = |v: &ValueId| {
            let place = program.memory.places.get(v.0 as usize);
            matches!(place, Some(&Place::Input(i)) if i as usize == input)
                && !program.graph.inputs.contains(v)
        };
        program.graph.value_ids().any(|v| here(&v))
    }

    /// What the only output of a body without effects has to be, computed by the deciding kernel if that can.
    fn test(&mut self, inputs: Vec<Input>) -> Made<Option<Test>> {
        let shapes = self.lend(inputs)?;
        let loaded = self.loaded.clone();
        Ok(Test::of(&loaded.program.graph, |v| self.context.place(&shapes, v).map(|p| p.0))?)
    }

    /// Where an input lies.
    pub(super) fn input(&mut self, i: usize, ty: &TensorType) -> Made<Range> {
        Ok(self.context.memory.input(i, super::values::bytes(ty)?)?)
    }
}

impl Bodies {
    pub(super) fn body(&mut self, body: usize) -> Made<&mut Body> {
        let lost = || BackendError::InvalidArgument(format!("an interpreted step has no body {body}"));
        Ok(self.bodies.get_mut(body).ok_or_else(lost)?)
    }

    pub(super) fn part(&mut self, body: usize, inputs: Vec<Input>, wanted: &[Option<Range>]) -> Made<Part> {
        self.body(body)?.part(inputs, wanted)
    }

    /// The condition of a loop: the steps that compute it, and what the deciding kernel asks then.
    pub(super) fn asked(&mut self, inputs: Vec<Input>, folded: bool) -> Made<(Vec<Planned>, Test)> {
        let body = self.body(1)?;
        if let Some(test) = folded.then(|| body.test(inputs.clone())).transpose()?.flatten() {
            return Ok((Vec::new(), test));
        }
        let part = body.part(inputs, &[])?;
        let flag = part.results.first().ok_or_else(|| BackendError::Internal("no condition".into()))?;
        Ok((part.planned, Test::flag(flag.at.address)))
    }

    /// Memory for values on their way.
    fn stage(&mut self, bytes: u64) -> Made<u64> {
        if self.stage.as_ref().is_none_or(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let old = self.stage.replace(Buffer::new(&self.stream, bytes)?);
            self.retired.extend(old);
        }
        Ok(self.stage.as_ref().map_or(0, Buffer::address))
    }

    /// Where carried value `i` lies after every other trip.
    pub(super) fn other(&mut self, i: usize, bytes: u64) -> Made<Range> {
        while self.others.len() <= i || self.others.get(i).is_some_and(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let new = Buffer::new(&self.stream, if self.others.len() < i { 16 } else { bytes.max(1) })?;
            match self.others.get_mut(i) {
                Some(b) => self.retired.push(std::mem::replace(b, new)),
                None => self.others.push(new),
            }
        }
        let address = self.others.get(i).map_or(0, Buffer::address);
        Ok(Range { address, size: bytes })
    }

    /// Memory for so many cells.
    pub(super) fn cells(&mut self, count: usize) -> Made<u64> {
        let bytes = count.max(1) as u64 * CELL_BYTES;
        if self.cells.as_ref().is_none_or(|b| b.size() < bytes) {
            self.own_allocations += 1;
            let old = self.cells.replace(Buffer::new(&self.stream, bytes)?);
            self.retired.extend(old);
        }
        Ok(self.cells.as_ref().map_or(0, Buffer::address))
    }

    /// Where a loop counts its trips, and 16 bytes behind that to spare.
    pub(super) fn state(&mut self) -> Made<u64> {
        if self.state.is_none() {
            self.own_allocations += 1;
            let b = Buffer::new(&self.stream, 32)?;
            b.fill(0, &self.stream)?;
            self.state = Some(b);
        }
        Ok(self.state.as_ref().map_or(0, Buffer::address))
    }

    /// The commands of a body, and the memory that they name.
    pub(super) fn commands(
        &mut self,
        planned: Vec<Planned>,
        kept: &mut Vec<Box<dyn Any + Send>>,
    ) -> Made<Vec<Command>> {
        let (commands, memory) =
            Batch::new(&self.stream, planned, None, &mut self.own_allocations)?.into_parts();
        kept.extend(memory.map(|m| Box::new(m) as Box<dyn Any + Send>));
        Ok(commands)
    }

    pub(super) fn node(
        &self,
        kind: Kind,
        ahead: Launch,
        bodies: Vec<Vec<Command>>,
        kept: Vec<Box<dyn Any + Send>>,
    ) -> Made<Command> {
        let recorder = Stream::new(&self.stream.gpu)?;
        match Branch::new(recorder, kind, ahead, bodies, kept) {
            Some(b) => Ok(Command::Branch(Arc::new(b))),
            None => host(reasons::NO_NODES),
        }
    }
}
