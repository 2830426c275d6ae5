//! The body of a loop or of a branch as commands, which read and write where they are told.

use super::condition::DeviceCondition;
use super::fallback::{OnDevice, on_host};
use super::kernel::CudaGpu;
use super::launch::Planned;
use super::memory::Range;
use super::planning::{Input, Operand, Planning};
use super::queue::CudaQueue;
use super::reasons;
use kiln_backend::{Place, Program, Shapes};
use kiln_gpu::{Body, Extent, bytes_of};
use kiln_ir::{Fact, TensorType, ValueId};
use std::sync::Arc;

/// A body's commands and results.
pub struct Part {
    pub planned: Vec<Planned>,
    pub results: Vec<Operand>,
}

/// A body's commands and results, whose sizes may be open.
pub struct OpenPart {
    pub planned: Vec<Planned>,
    /// Their first bytes, and what is known of their sizes.
    pub results: Vec<(u64, Extent)>,
}

/// Plans a body.
pub struct BodyPlan<'a> {
    pub body: &'a mut Body<CudaGpu>,
    pub queue: &'a mut CudaQueue,
}

impl BodyPlan<'_> {
    fn program(&self) -> Arc<Program> {
        self.body.run.loaded.program.clone()
    }

    fn planning(&mut self) -> Planning<'_> {
        Planning { run: &mut self.body.run, queue: self.queue }
    }

    /// Plans the body. Results lie where they are wanted, if the body writes them; else where it has them.
    pub fn part(&mut self, inputs: Vec<Input>, wanted: &[Option<Range>]) -> OnDevice<Part> {
        let (planned, shapes) = self.steps(inputs, wanted, false)?;
        let program = self.program();
        let mut results = Vec::new();
        for &v in &program.graph.outputs {
            if shapes.shape(v).is_none() {
                return on_host(reasons::SIZE_INSIDE);
            }
            let at = self.planning().place(&shapes, v)?;
            results.push(Operand { at, ty: shapes.fact(v).ty.clone(), content: None });
        }
        Ok(Part { planned, results })
    }

    /// Plans the body; sizes of results may be open.
    pub fn open_part(&mut self, inputs: Vec<Input>, wanted: &[Option<Range>]) -> OnDevice<OpenPart> {
        let (planned, shapes) = self.steps(inputs, wanted, true)?;
        let program = self.program();
        let mut results = Vec::new();
        for &v in &program.graph.outputs {
            let extent = self.planning().extent(&shapes, v)?;
            results.push((self.planning().place(&shapes, v)?.address, extent));
        }
        Ok(OpenPart { planned, results })
    }

    fn steps(
        &mut self,
        inputs: Vec<Input>,
        wanted: &[Option<Range>],
        open: bool,
    ) -> OnDevice<(Vec<Planned>, Shapes)> {
        let mut shapes = self.lend(inputs)?;
        self.lend_outputs(&shapes, wanted)?;
        self.body.run.may_leave_open = open;
        Ok((self.planning().all_steps(&mut shapes)?, shapes))
    }

    /// The types of the results for these inputs, those whose sizes are known before anything is planned.
    pub fn result_types(&mut self, inputs: Vec<Input>) -> OnDevice<Vec<Option<TensorType>>> {
        let shapes = self.lend(inputs)?;
        let known = |&v: &ValueId| Some(shapes.fact(v).ty.clone()).filter(|ty| ty.static_dims().is_some());
        Ok(self.program().graph.outputs.iter().map(known).collect())
    }

    /// Lets an input be stored there, or in memory of the body's own.
    pub fn lend_input(&mut self, i: usize, at: Option<Range>) {
        let bound = &mut self.body.run.memory.bound.inputs;
        match at {
            Some(r) => bound.insert(i, r),
            None => bound.remove(&i),
        };
    }

    /// The shapes of a run with these inputs, which are stored where they are from now on.
    fn lend(&mut self, inputs: Vec<Input>) -> OnDevice<Shapes> {
        let loaded = self.body.run.loaded.clone();
        let mut facts = Vec::with_capacity(inputs.len());
        for (i, (lent, ty, content)) in inputs.into_iter().enumerate() {
            self.lend_input(i, lent);
            let read = loaded.plans_by(i);
            facts.push(match content.filter(|_| read) {
                Some(t) => Fact::constant(t),
                None => Fact::of(ty),
            });
        }
        Ok(Shapes::new(loaded.program.graph.infer_from(&facts)?).in_case(self.body.case))
    }

    fn lend_outputs(&mut self, shapes: &Shapes, wanted: &[Option<Range>]) -> OnDevice<()> {
        let program = self.program();
        self.body.run.memory.bound.outputs.clear();
        for (&v, wanted) in program.graph.outputs.iter().zip(wanted) {
            let Some(at) = *wanted else { continue };
            let bytes = bytes_of(&shapes.fact(v).ty).ok();
            let lent = self.body.run.memory.bound.outputs.contains_key(&v);
            if bytes == Some(at.size) && !lent && self.body.writes(v) {
                self.body.run.memory.bound.outputs.insert(v, at);
            }
        }
        Ok(())
    }

    /// Whether it has values in the memory of an input.
    pub fn overwrites(&self, input: usize) -> bool {
        let program = self.program();
        let here = |v: &ValueId| {
            let place = program.memory.places.get(v.0 as usize);
            matches!(place, Some(&Place::Input(i)) if i as usize == input)
                && !program.graph.inputs.contains(v)
        };
        program.graph.value_ids().any(|v| here(&v))
    }

    /// The only output of a body without effects as a condition of the deciding kernel, if that can compute it.
    pub fn condition(&mut self, inputs: Vec<Input>) -> OnDevice<Option<DeviceCondition>> {
        let shapes = self.lend(inputs)?;
        let program = self.program();
        DeviceCondition::of(&program.graph, |v| self.planning().place(&shapes, v))
    }

    /// The memory of an input.
    pub fn input(&mut self, i: usize, ty: &TensorType) -> OnDevice<Range> {
        Ok(self.body.run.memory.input(self.queue, i, bytes_of(ty)?)?)
    }
}
