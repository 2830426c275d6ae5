//! Memory for activations at the shapes that are set.

use super::ExecutionContext;
use crate::RuntimeError;
use kiln_backend::Place;

impl ExecutionContext {
    /// Bytes that [`ExecutionContext::set_memory`] wants for runs with the shapes that are set: at most
    /// [`Engine::context_memory`](crate::Engine::context_memory).
    ///
    /// # Errors
    /// Errors of shapes as of [`ExecutionContext::infer_shapes`].
    pub fn memory_for_shapes(&mut self) -> Result<u64, RuntimeError> {
        let shapes = self.shapes();
        let shapes = self.recorder.note(shapes)?;
        let program = &self.loaded.program;
        let ends = program.graph.value_ids().filter_map(|v| match program.memory.places.get(v.0 as usize) {
            // The size of what only a run determines is that of the plan.
            Some(&Place::Arena { offset, size }) => {
                Some(offset.saturating_add(shapes.bytes(program, v).map_or(size, |n| n.min(size))))
            }
            _ => None,
        });
        Ok(ends.max().unwrap_or(0))
    }
}
