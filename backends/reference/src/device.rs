//! The device and what is loaded on it.

use crate::context::{Loaded, OracleContext};
use crate::tactic::check_tactic;
use kiln_backend::flow::LoadedBodies;
use kiln_backend::{BackendError, Context, Device, Executable, Program, TimeRequest};
use kiln_ir::{NodeId, ValueId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The processor.
pub(crate) struct Processor;

struct OracleExecutable(Arc<Loaded>);

impl Device for Processor {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let program = Arc::new(Program::single_step(
            request.graph.clone(),
            request.tactic.clone(),
            request.blob.to_vec(),
        ));
        let shapes = Arc::new(program.shapes(request.inputs)?);
        let mut context = self.load(program)?.context()?;
        let mut samples = Vec::new();
        for _ in 0..request.samples {
            context.enqueue(request.inputs, &shapes)?;
            context.outputs()?;
            let times = context.step_times()?;
            samples.push(times.iter().filter(|t| t.inside.is_empty()).map(|t| t.ns).sum());
        }
        Ok(samples)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        let mut bodies = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            step.tactics().try_for_each(|t| check_tactic(&t.name))?;
            bodies.push(LoadedBodies::of(&program, step, |body| self.load(body))?);
            if let Some(id) = step.nodes.iter().find(|&&n| program.graph.get(n).is_none()) {
                return Err(BackendError::InvalidArgument(format!("{id:?} is no node of the program")));
            }
        }
        let (border, dead_after) = (program.border(), dead_after(&program));
        Ok(Arc::new(OracleExecutable(Arc::new(Loaded { program, bodies, border, dead_after }))))
    }
}

impl Executable for OracleExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        let bytes = self.0.program.memory.arena;
        kiln_ir::budget::reserve(bytes).map_err(|e| {
            let what = format!(
                "the activations of a context (the limit is {} bytes, {} are in use; raise it with --memory-limit)",
                e.limit, e.used
            );
            BackendError::OutOfMemory { what, bytes }
        })?;
        Ok(Box::new(OracleContext::new(self.0.clone())?))
    }
}

/// For each node the values that it reads or defines and that no later one reads.
fn dead_after(program: &Program) -> HashMap<NodeId, Vec<ValueId>> {
    let graph = &program.graph;
    let mut later: HashSet<ValueId> = graph.outputs.iter().copied().collect();
    let mut dead: HashMap<NodeId, Vec<ValueId>> = HashMap::new();
    for id in program.steps.iter().flat_map(|s| &s.nodes).rev() {
        let Some(node) = graph.get(*id) else { continue };
        let touched = node.inputs.iter().flatten().chain(&node.outputs);
        dead.insert(*id, touched.copied().filter(|v| later.insert(*v)).collect());
    }
    dead
}
