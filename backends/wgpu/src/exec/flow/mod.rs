//! Control flow: the host decides, values stay in buffers of the device.
//!
//! A body runs in a context of its own, with inputs bound where they lie and, where their sizes are known, outputs written
//! where they belong. A loop's carried values go to and fro between two buffers. What a body runs is planned and bound
//! once for each pair of them; trips that need no answer of the device are recorded one behind the other.

mod body;
mod cut;
mod pieces;
mod recorder;
mod stack;
#[cfg(test)]
mod tests;
mod trips;

use super::context::{WgpuContext, check_faults, tensor};
use super::device::Loaded;
use super::memory::Range;
use body::Body;
use kiln_backend::{BackendError, Counters, Shapes, StepTime};
use kiln_codegen::checks::RECORD_WORDS;
use kiln_ir::{Node, Tensor, TensorType};
use pieces::Pieces;
use recorder::Recorder;
use std::sync::Arc;
use trips::State;

/// A tensor on the device.
#[derive(Clone)]
pub struct Value {
    /// Its type; all dimensions are numbers.
    pub ty: TensorType,
    /// Where it lies.
    pub at: Range,
    /// Its elements, where the host knows them.
    pub known: Option<Tensor>,
}

impl Value {
    /// Its size in bytes.
    fn bytes(&self) -> Result<usize, BackendError> {
        bytes_of(&self.ty)
    }
}

/// Bytes of a tensor whose dimensions are numbers.
fn bytes_of(ty: &TensorType) -> Result<usize, BackendError> {
    let n = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64));
    let lost = || BackendError::Internal(format!("the size of {ty} is not known"));
    usize::try_from(n.ok_or_else(lost)?).map_err(|_| lost())
}

/// Contexts of the bodies of one step, and what a loop keeps between trips.
pub struct Bodies {
    list: Vec<Body>,
    recorder: Recorder,
    state: State,
    pieces: Pieces,
    host_syncs: u64,
}

impl Bodies {
    /// Contexts for these bodies.
    pub fn new(bodies: &[Arc<Loaded>]) -> Result<Bodies, BackendError> {
        let gpu = bodies.first().map(|b| b.gpu.clone());
        let gpu = gpu.ok_or_else(|| BackendError::Internal("control flow without bodies".into()))?;
        Ok(Bodies {
            list: bodies.iter().map(Body::new).collect::<Result<_, _>>()?,
            recorder: Recorder::new(gpu),
            state: State::default(),
            pieces: Pieces::default(),
            host_syncs: 0,
        })
    }

    /// Runs the node of a step of `outer`, whose values have these shapes. All work is submitted when it returns.
    pub fn walk(
        &mut self,
        outer: &mut WgpuContext,
        shapes: &mut Shapes,
        node: &Node,
        inputs: &[Value],
    ) -> Result<(), BackendError> {
        self.recorder.forget();
        match node.branches(inputs.len())? {
            Some(captures) => {
                let condition = inputs.first().ok_or_else(|| lost(node, "condition"))?;
                let taken = usize::from(self.number(condition)? == 0);
                let given = inputs.get(captures[taken].clone()).unwrap_or_default().to_vec();
                self.branch(outer, shapes, node, taken, given)?;
            }
            None => self.trips(outer, shapes, node, inputs)?,
        }
        self.recorder.flush()
    }

    /// Runs one branch; outputs whose size is known before are written where they belong.
    fn branch(
        &mut self,
        outer: &mut WgpuContext,
        shapes: &mut Shapes,
        node: &Node,
        taken: usize,
        mut given: Vec<Value>,
    ) -> Result<(), BackendError> {
        let Bodies { list, recorder, host_syncs, .. } = self;
        let body = list.get_mut(taken).ok_or_else(|| lost(node, "branch"))?;
        body.know(recorder, &mut given, host_syncs)?;
        let made = body.shapes(&given)?;
        let mut to = Vec::with_capacity(node.outputs.len());
        for (j, &v) in node.outputs.iter().enumerate() {
            let place = match body.writes(&made, j) {
                Some(shape) => Some(outer.place_as(shapes, v, &shape)?),
                None => None,
            };
            to.push(place.filter(|r| given.iter().all(|g| !g.at.overlaps(r))));
        }
        let outs = body.run(recorder, &given, &to, &made)?;
        for ((&v, out), to) in node.outputs.iter().zip(&outs).zip(&to) {
            let shape = out.ty.static_dims().unwrap_or_default();
            let there = outer.place_as(shapes, v, &shape)?;
            if to.is_none() {
                recorder.copy(&out.at, &there, out.bytes()?)?;
            }
        }
        Ok(())
    }

    /// The number in a tensor of one element; of a truth value, 0 or 1. Faults told so far come first.
    fn number(&mut self, v: &Value) -> Result<i64, BackendError> {
        let wrong =
            || BackendError::InvalidArgument(format!("{} decides on control flow, wants one element", v.ty));
        if v.ty.static_volume() != Some(1) {
            return Err(wrong());
        }
        if let Some(t) = &v.known {
            return t.scalar_i64().ok_or_else(wrong);
        }
        self.fetch(v)?.scalar_i64().ok_or_else(wrong)
    }

    /// Waits for the elements of a tensor; faults told so far come first.
    fn fetch(&mut self, v: &Value) -> Result<Tensor, BackendError> {
        self.host_syncs += 1;
        let faults = self.faults()?;
        let mut from = vec![(v.at.clone(), v.bytes()?)];
        from.extend(faults.iter().map(|(r, p)| (r.clone(), p.steps.len() * RECORD_WORDS * 4)));
        let Bodies { list, recorder, .. } = self;
        let body = list.first_mut().ok_or_else(|| BackendError::Internal("no bodies".into()))?;
        let mut bytes = recorder.read(&mut body.context.memory, &from)?.into_iter();
        let found = tensor(&v.ty, bytes.next().unwrap_or_default())?;
        faults.iter().zip(bytes).try_for_each(|((_, p), words)| check_faults(p, &words))?;
        Ok(found)
    }

    /// Where the steps inside tell of their faults.
    pub fn faults(&mut self) -> Result<Vec<(Range, Arc<Loaded>)>, BackendError> {
        let mut all = Vec::new();
        for b in &mut self.list {
            all.extend(b.context.faults()?);
        }
        Ok(all)
    }

    /// Are the steps inside to be timed? Then every body is waited for.
    pub fn set_timing(&mut self, on: bool) {
        self.list.iter_mut().for_each(|b| b.context.set_timing(on));
    }

    /// Forgets the times of the steps inside.
    pub fn forget_times(&mut self) {
        self.list.iter_mut().for_each(Body::forget_times);
    }

    /// Times of the steps inside, since they were forgotten; the node is step `step` of its program.
    pub fn times(&self, step: usize) -> Vec<StepTime> {
        let each = self.list.iter().enumerate();
        each.flat_map(|(i, b)| StepTime::within(b.times(), step, i)).collect()
    }

    /// What was done for the bodies; kernels made are counted by the device.
    pub fn counters(&self) -> Counters {
        use kiln_backend::Context;
        let own = Counters {
            allocations: self.state.allocations + self.recorder.allocations + self.pieces.allocations,
            host_syncs: self.host_syncs,
            ..Counters::default()
        };
        self.list.iter().fold(own, |a, b| {
            let c = b.context.counters();
            Counters {
                allocations: a.allocations + c.allocations + b.allocations,
                host_syncs: a.host_syncs + c.host_syncs,
                ..a
            }
        })
    }
}

fn lost(node: &Node, what: &str) -> BackendError {
    BackendError::InvalidArgument(format!("layer \"{}\" ({}) lacks its {what}", node.name, node.op.name()))
}
