//! When memory that the caller lent for inputs may be overwritten: events behind the last step that reads it.

use super::context::CudaContext;
use super::plan::Planned;
use crate::driver::{Command, Event};
use kiln_backend::{BackendError, Place, Program};
use kiln_ir::{Node, ValueId};
use std::collections::HashSet;
use std::sync::Arc;

/// The events that a run marks.
#[derive(Default)]
pub(super) struct Consumed {
    /// The caller's.
    pub given: Option<Arc<Event>>,
    /// What the host waits for, once it has asked.
    own: Option<Arc<Event>>,
    /// Has the last run marked `own`?
    marked: bool,
}

/// Behind what nothing reads the memory of bound inputs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastRead {
    /// There are none.
    Nothing,
    /// A step of this index.
    Step(usize),
    /// What is copied to outputs.
    Outputs,
}

impl LastRead {
    /// Of a program whose inputs `bound` lie in memory of the caller's.
    fn of(program: &Program, bound: impl Fn(usize) -> bool) -> LastRead {
        let g = &program.graph;
        let inputs = g.inputs.iter().enumerate();
        let mut there: HashSet<ValueId> = inputs.filter(|(i, _)| bound(*i)).map(|(_, &v)| v).collect();
        let mut last = LastRead::Nothing;
        for (i, step) in program.steps.iter().enumerate() {
            for node in step.nodes.iter().filter_map(|&n| g.get(n)) {
                if reads(node, &there) {
                    last = LastRead::Step(i);
                    there.extend(lying_there(program, node, &there));
                }
            }
        }
        if g.outputs.iter().any(|v| there.contains(v)) { LastRead::Outputs } else { last }
    }
}

/// Does a node read elements of one of these values?
fn reads(node: &Node, there: &HashSet<ValueId>) -> bool {
    let shape_only = node.op.is("shape") || node.op.is("size");
    !shape_only && node.inputs.iter().flatten().any(|v| there.contains(v))
}

/// The results of a node that lie in the memory of inputs of it that are among `there`: as views, or by aliasing.
fn lying_there(program: &Program, node: &Node, there: &HashSet<ValueId>) -> Vec<ValueId> {
    let view = |v: ValueId| matches!(program.memory.places.get(v.0 as usize), Some(Place::Input(_)));
    let input = |i: usize| node.inputs.get(i).copied().flatten();
    let aliased = |j: usize| {
        let pairs = node.op.def().traits.must_alias.iter().filter(|(_, o)| *o == j);
        pairs.filter_map(|&(i, _)| input(i)).any(|x| there.contains(&x))
    };
    let outputs = node.outputs.iter().enumerate();
    outputs.filter(|&(j, &v)| view(v) || aliased(j)).map(|(_, &v)| v).collect()
}

impl CudaContext {
    /// Behind what the memory of bound inputs is free; `None` where nobody asks.
    pub(super) fn last_read(&self) -> Option<LastRead> {
        let asked = self.consumed.given.is_some() || self.consumed.own.is_some();
        let bound = &self.memory.bound.inputs;
        asked.then(|| LastRead::of(&self.loaded.program, |i| bound.contains_key(&i)))
    }

    /// The events of a step, as commands behind its own.
    pub(super) fn marks(&self, last: Option<LastRead>, step: usize) -> Vec<Planned> {
        if last != Some(LastRead::Step(step)) {
            return Vec::new();
        }
        let planned =
            |e: &Arc<Event>| Planned { step, launch: Command::Mark(e.clone()), further: Vec::new() };
        self.events().map(planned).collect()
    }

    /// Records the events now, if this is where they belong.
    pub(super) fn mark(&mut self, at: LastRead) -> Result<(), BackendError> {
        if self.last_read() == Some(at) {
            self.events().try_for_each(|e| e.record(&self.stream))?;
        }
        self.consumed.marked = self.consumed.own.is_some();
        Ok(())
    }

    fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.consumed.given.iter().chain(&self.consumed.own)
    }

    /// Waits until the memory of bound inputs of the last run may be overwritten. The first call waits for the whole run.
    pub(super) fn await_consumed(&mut self) -> Result<(), BackendError> {
        self.loaded.gpu.bind()?;
        match self.consumed.own.as_ref().filter(|_| self.consumed.marked) {
            Some(e) => e.wait()?,
            None => {
                self.await_run()?;
                self.consumed.own = Some(Arc::new(Event::new(&self.loaded.gpu, false)?));
                self.prepared.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_backend::Tactic;
    use kiln_ir::Graph;

    fn last(text: &str, bound: &[usize]) -> LastRead {
        let g = Graph::from_text(text).expect("a graph");
        let program = Program::step_per_node(g, &Tactic::plain(""));
        LastRead::of(&program, |i| bound.contains(&i))
    }

    const CHAIN: &str = "graph \"g\" { input %a: f32[4] input %b: f32[4] %c = mul(%a, %a) %d = add(%c, %b)
        %n = shape(%a) %e = exp(%d) output %e }";

    #[test]
    fn the_last_step_that_reads_elements_counts() {
        assert_eq!(last(CHAIN, &[]), LastRead::Nothing);
        assert_eq!(last(CHAIN, &[0]), LastRead::Step(0));
        assert_eq!(last(CHAIN, &[1]), LastRead::Step(1));
        assert_eq!(last(CHAIN, &[0, 1]), LastRead::Step(1));
    }

    #[test]
    fn an_output_that_is_an_input_is_read_last() {
        let text = "graph \"g\" { input %a: f32[4] %b = exp(%a) output %b output %a }";
        assert_eq!(last(text, &[0]), LastRead::Outputs);
    }
}
