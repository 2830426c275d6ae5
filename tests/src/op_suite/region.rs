//! A graph as one region, by every tactic.

use super::run::{Subject, wanted};
use kiln_backend::{BackendError, Context, Program, Shapes, Tactic};
use kiln_ir::{Graph, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A context of a region's program, with the inputs and shapes of its runs.
pub struct Runs<'a> {
    context: Box<dyn Context>,
    inputs: &'a [Tensor],
    shapes: Arc<Shapes>,
}

impl Runs<'_> {
    /// The outputs of one more run.
    pub fn run(&mut self) -> Result<Vec<Tensor>, String> {
        let text = |e: BackendError| e.to_string();
        self.context.enqueue(self.inputs, &self.shapes).map_err(text)?;
        self.context.outputs().map_err(text)
    }
}

impl Subject {
    /// Compiles a graph as one region by every tactic, and lets `check` run it; counts what agrees by tactic. Returns why the backend
    /// has no kernel for the region, if it has none.
    pub(super) fn by_every_tactic(
        &self,
        graph: Graph,
        inputs: &[Tensor],
        passed: &mut BTreeMap<String, usize>,
        mut check: impl FnMut(&mut Runs<'_>) -> Result<(), String>,
    ) -> Result<Option<String>, String> {
        let mut program = Program::single_step(graph, Tactic::plain(""), Vec::new());
        let region = program.region(&program.steps[0]).map_err(|e| e.to_string())?;
        let tactics = match self.backend.tactics(&region, &self.target) {
            Err(BackendError::Unsupported(why)) => return Ok(Some(why)),
            t => t.map_err(|e| e.to_string())?,
        };
        self.backend.supports(&region, &self.target).map_err(|e| format!("tactics, and yet: {e}"))?;
        let Some(device) = &self.device else { return Ok(None) };
        for tactic in tactics.into_iter().filter(wanted) {
            let name = tactic.id();
            let text = |e: BackendError| format!("by {name}: {e}");
            let blob = self.backend.compile(&region, &tactic, &self.target).map_err(text)?;
            program.steps[0].blob = blob.into();
            program.steps[0].tactic = tactic.clone();
            let program = Arc::new(program.clone());
            let shapes = Arc::new(program.shapes(inputs).map_err(text)?);
            let context = device.load(program).and_then(|d| d.context()).map_err(text)?;
            check(&mut Runs { context, inputs, shapes }).map_err(|e| format!("by {name}: {e}"))?;
            *passed.entry(name).or_default() += 1;
        }
        Ok(None)
    }
}
