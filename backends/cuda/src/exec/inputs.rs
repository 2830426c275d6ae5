//! Inputs of a run: copied, or read where they lie.

use super::context::{CudaContext, Key};
use kiln_backend::{BackendError, Shapes};
use kiln_ir::Tensor;
use std::sync::Arc;

impl CudaContext {
    pub(super) fn upload(&mut self, inputs: &[Tensor], shapes: &Shapes) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        shapes.check_inputs(&loaded.program.graph, inputs)?;
        let padded = |t: &Tensor| t.bytes().len().next_multiple_of(256);
        let own = inputs.iter().enumerate().filter(|(i, _)| !self.memory.bound.inputs.contains_key(i));
        let total = own.map(|(_, t)| padded(t)).sum();
        let mut at = 0;
        for (i, t) in inputs.iter().enumerate() {
            let to = self.memory.input(i, t.bytes().len() as u64)?;
            if !self.memory.bound.inputs.contains_key(&i) {
                self.memory.staging(total)?.send(at, t.bytes(), to.address)?;
                at += padded(t);
            }
        }
        Ok(())
    }

    pub(super) fn key(&self, inputs: &[Tensor]) -> Vec<Key> {
        let read = |i: usize| self.loaded.shape_inputs.contains(&i) || self.counts(i);
        let content = |i: usize, t: &Tensor| read(i).then(|| t.clone());
        let lent = &self.memory.bound;
        let address = |i: usize| lent.inputs.get(&i).map(|r| r.address);
        let of_inputs = inputs.iter().enumerate();
        let of_inputs = of_inputs.map(|(i, t)| Key(t.shape().to_vec(), content(i, t), address(i)));
        let outputs = &self.loaded.program.graph.outputs;
        let of_outputs =
            outputs.iter().map(|v| Key(Vec::new(), None, lent.outputs.get(v).map(|r| r.address)));
        of_inputs.chain(of_outputs).collect()
    }

    /// Does the host plan by the elements of this input, beside those of shape inputs? Not where it lies in memory of the
    /// caller's.
    fn counts(&self, input: usize) -> bool {
        self.loaded.counts.contains(&input) && !self.memory.bound.inputs.contains_key(&input)
    }

    /// The shapes with what else the elements of inputs tell.
    pub(super) fn with_counts(&self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Arc<Shapes> {
        if !(0..inputs.len()).any(|i| self.counts(i)) {
            return shapes.clone();
        }
        let mut known = (**shapes).clone();
        known.set_inputs(&self.loaded.program.graph, inputs, |i| self.counts(i));
        Arc::new(known)
    }
}
