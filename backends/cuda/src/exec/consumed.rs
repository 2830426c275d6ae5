//! When memory that the caller lent for inputs may be overwritten: events behind the last step that reads it.

use crate::driver::{Event, Gpu, Stream};
use kiln_backend::{BackendError, Place, Program};
use kiln_ir::{Node, ValueId};
use kiln_ops::generate::SIZE;
use kiln_ops::shape::SHAPE;
use std::collections::HashSet;
use std::sync::Arc;

/// The events that a run marks when the memory of bound inputs is free.
#[derive(Default)]
pub struct Consumed {
    /// The caller's.
    pub given: Option<Arc<Event>>,
    /// The host's, once it has asked.
    own: Option<Arc<Event>>,
    /// Whether the last run has marked `own`.
    marked: bool,
    /// The point at which the run marks them; none where nobody asks.
    last: Option<LastRead>,
}

/// Behind what nothing reads the memory of bound inputs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRead {
    /// There are none.
    Nothing,
    /// A step of this index.
    Step(usize),
    /// The copies to outputs.
    Outputs,
}

impl LastRead {
    /// The last reader in a program whose inputs `bound` are in memory of the caller's.
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

/// Whether a node reads elements of one of these values.
fn reads(node: &Node, there: &HashSet<ValueId>) -> bool {
    let shape_only = node.op.is(SHAPE) || node.op.is(SIZE);
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

impl Consumed {
    /// Finds out behind what the memory of bound inputs is free, if anybody asks.
    pub fn begin(&mut self, program: &Program, bound: impl Fn(usize) -> bool) {
        let asked = self.given.is_some() || self.own.is_some();
        self.last = asked.then(|| LastRead::of(program, bound));
    }

    /// The events that belong behind a step.
    pub fn after(&self, step: usize) -> impl Iterator<Item = Arc<Event>> {
        self.events().filter(move |_| self.last == Some(LastRead::Step(step))).cloned()
    }

    /// Records the events now, if this is where they belong.
    pub fn mark(&mut self, at: LastRead, stream: &Stream) -> Result<(), BackendError> {
        if self.last == Some(at) {
            self.events().try_for_each(|e| e.record(stream))?;
        }
        self.marked = self.own.is_some();
        Ok(())
    }

    fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.given.iter().chain(&self.own)
    }

    /// Waits until the memory of bound inputs of the last run may be overwritten; false if the last run has no mark for that.
    pub fn wait(&self) -> Result<bool, BackendError> {
        match self.own.as_ref().filter(|_| self.marked) {
            Some(e) => e.wait().map(|()| true).map_err(BackendError::from),
            None => Ok(false),
        }
    }

    /// Lets further runs mark an event for [`Consumed::wait`].
    pub fn mark_further(&mut self, gpu: &Arc<Gpu>) -> Result<(), BackendError> {
        self.own = Some(Arc::new(Event::new(gpu, false)?));
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
