//! The body of a loop or of a branch as commands, which read and write where they are told.

use super::asked::Test;
use super::branches::{Given, Input};
use super::extent::Extent;
use super::flow::Body;
use super::memory::Range;
use super::plan::Planned;
use super::reasons;
use super::stop::{Made, host};
use kiln_backend::{Place, Shapes};
use kiln_ir::{Fact, TensorType, ValueId};

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
    pub(super) fn part(&mut self, inputs: Vec<Input>, wanted: &[Option<Range>]) -> Made<Part> {
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
    pub(super) fn test(&mut self, inputs: Vec<Input>) -> Made<Option<Test>> {
        let shapes = self.lend(inputs)?;
        let loaded = self.loaded.clone();
        Ok(Test::of(&loaded.program.graph, |v| self.context.place(&shapes, v).map(|p| p.0))?)
    }

    /// Where an input lies.
    pub(super) fn input(&mut self, i: usize, ty: &TensorType) -> Made<Range> {
        Ok(self.context.memory.input(i, super::values::bytes(ty)?)?)
    }
}
