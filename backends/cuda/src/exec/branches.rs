//! Control flow on the device: steps of loops and conditionals as nodes of a graph, where all sizes are known before the
//! run. Everything else the host walks ([`super::flow`]).

use super::asked::Test;
use super::conditional::Choice;
use super::context::CudaContext;
use super::flow::{Bodies, Body};
use super::loops::Loop;
use super::memory::Range;
use super::moves::{Decision, Move, Trips, clash, commands};
use super::parts::Part;
use super::plan::Planned;
use super::reasons;
use super::run::Batch;
use super::stop::{Made, Stop, host};
use crate::driver::{Branch, Command, Kind, Launch, Module, Stream};
use kiln_backend::{BackendError, Shapes, Tactic, flow};
use kiln_ir::{Node, Tensor, TensorType, ValueId};
use std::any::Any;
use std::sync::Arc;

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
    pub(super) fn all_steps(&mut self, shapes: &mut Shapes) -> Made<Vec<Planned>> {
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
