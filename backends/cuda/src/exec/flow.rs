//! A step of control flow on the device: its operands, and its bodies as commands.

use super::batch::Batch;
use super::condition::DeviceCondition;
use super::fallback::{OnDevice, on_host};
use super::launch::Planned;
use super::memory::Range;
use super::moves::{Decision, Factor, Move, clash, commands};
use super::parts::{BodyPlan, Part};
use super::planning::{CudaBodies, Input, Operand};
use super::queue::CudaQueue;
use super::reasons;
use crate::driver::{Branch, Command, Kind, Launch, Module, Stream};
use kiln_backend::{BackendError, Tactic};
use std::any::Any;
use std::sync::Arc;

/// A step of control flow.
pub struct Site {
    pub step: usize,
    pub tactic: Tactic,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Operand>,
    pub module: Arc<Module>,
}

impl Site {
    pub fn planned(&self, commands: impl IntoIterator<Item = Command>) -> Vec<Planned> {
        let one = |launch| Planned::new(self.step, launch);
        commands.into_iter().map(one).collect()
    }

    /// Inputs at these positions; fewer where there are fewer.
    pub fn operands(&self, range: std::ops::Range<usize>) -> &[Operand] {
        self.inputs.get(range).unwrap_or_default()
    }

    /// Copies that read before others write, through memory in between where they must.
    pub fn moves(&self, flow: &mut Flow<'_>, all: &[Move], decision: &Decision) -> OnDevice<Vec<Command>> {
        if !clash(all) {
            return Ok(commands(&self.module, all, decision));
        }
        let size = |m: &Move| (u64::from(m.rows) * u64::from(m.width)).next_multiple_of(256);
        let mut at = flow.stage(all.iter().map(size).sum())?;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for m in all {
            let width = u64::from(m.width);
            first.push(Move { to: at, to_step: 0, to_pitch: width, ..*m });
            // An address is computed once, and then copied.
            let factor = if m.factor == Factor::Address { Factor::Next } else { m.factor };
            second.push(Move { from: Some(at), from_step: 0, from_pitch: width, factor, ..*m });
            at += size(m);
        }
        let mut out = commands(&self.module, &first, &decision.without());
        out.extend(commands(&self.module, &second, decision));
        Ok(out)
    }

    /// The launch that decides, behind these copies: what comes before it, and the launch.
    pub fn deciding(
        &self,
        flow: &mut Flow<'_>,
        all: &[Move],
        decision: &Decision,
    ) -> OnDevice<(Vec<Command>, Launch)> {
        let mut ahead = self.moves(flow, all, decision)?;
        match ahead.pop() {
            Some(Command::Kernel(last)) => Ok((ahead, last)),
            _ => Err(BackendError::Internal("no kernel that decides".into()).into()),
        }
    }
}

/// The bodies of a step, and its memory.
pub struct Flow<'a> {
    pub bodies: &'a mut CudaBodies,
    pub queue: &'a mut CudaQueue,
}

impl Flow<'_> {
    pub fn body(&mut self, body: usize) -> OnDevice<BodyPlan<'_>> {
        let lost = || BackendError::InvalidArgument(format!("an interpreted step has no body {body}"));
        let body = self.bodies.list.get_mut(body).ok_or_else(lost)?;
        Ok(BodyPlan { body, queue: self.queue })
    }

    pub fn part(&mut self, body: usize, inputs: Vec<Input>, wanted: &[Option<Range>]) -> OnDevice<Part> {
        self.body(body)?.part(inputs, wanted)
    }

    /// The condition of a loop: the steps that compute it, and what the deciding kernel evaluates then.
    pub fn condition(
        &mut self,
        inputs: Vec<Input>,
        folded: bool,
    ) -> OnDevice<(Vec<Planned>, DeviceCondition)> {
        let mut body = self.body(1)?;
        if let Some(test) = folded.then(|| body.condition(inputs.clone())).transpose()?.flatten() {
            return Ok((Vec::new(), test));
        }
        let part = body.part(inputs, &[])?;
        let flag = part.results.first().ok_or_else(|| BackendError::Internal("no condition".into()))?;
        Ok((part.planned, DeviceCondition::flag(flag.at.address)))
    }

    /// The commands of a body, and the memory that they name.
    pub fn commands(
        &mut self,
        planned: Vec<Planned>,
        kept: &mut Vec<Box<dyn Any + Send>>,
    ) -> OnDevice<Vec<Command>> {
        let (commands, memory) = Batch::new(self.queue, planned, None)?.into_parts();
        kept.extend(memory.map(|m| Box::new(m) as Box<dyn Any + Send>));
        Ok(commands)
    }

    pub fn node(
        &self,
        kind: Kind,
        ahead: Launch,
        bodies: Vec<Vec<Command>>,
        kept: Vec<Box<dyn Any + Send>>,
    ) -> OnDevice<Command> {
        let recorder = Stream::new(&self.queue.stream.gpu)?;
        match Branch::new(recorder, kind, ahead, bodies, kept) {
            Some(b) => Ok(Command::Branch(Arc::new(b))),
            None => on_host(reasons::NO_NODES),
        }
    }

    /// Memory for values on their way.
    pub fn stage(&mut self, bytes: u64) -> OnDevice<u64> {
        self.bodies.state.stage(self.queue, bytes)
    }

    /// Memory of carried value `i` after every other iteration.
    pub fn other(&mut self, i: usize, bytes: u64) -> OnDevice<Range> {
        self.bodies.state.other(self.queue, i, bytes)
    }

    /// Memory for so many cells.
    pub fn cells(&mut self, count: usize) -> OnDevice<u64> {
        self.bodies.state.cells(self.queue, count)
    }

    /// Memory in which a loop counts its iterations.
    pub fn state(&mut self) -> OnDevice<u64> {
        self.bodies.state.state(self.queue)
    }

    /// Cells that planned launches of the first body cannot use.
    pub fn refused(&mut self) -> OnDevice<&mut Vec<u64>> {
        let lost = || BackendError::Internal("a loop without a body".into());
        Ok(self.bodies.list.first_mut().map(|b| &mut b.run.memory.notes.refused).ok_or_else(lost)?)
    }
}
