//! Runs of bodies: inputs and outputs stay on the device.

use super::context::{CudaContext, Key};
use super::values::{Pool, Value};
use kiln_backend::{BackendError, Shapes};
use kiln_ir::Tensor;
use std::sync::Arc;

impl CudaContext {
    /// Runs with inputs that lie on the device, in the order of the stream. `contents` are the elements of shape inputs;
    /// the outputs are tensors of the pool, or inputs that pass through.
    pub fn run_here(
        &mut self,
        inputs: &[Value],
        contents: Vec<Option<Tensor>>,
        shapes: &Arc<Shapes>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Value>, BackendError> {
        self.start_here(inputs, contents, shapes, pool).inspect_err(|e| self.forget(e))
    }

    fn start_here(
        &mut self,
        inputs: &[Value],
        contents: Vec<Option<Tensor>>,
        shapes: &Arc<Shapes>,
        pool: &Arc<Pool>,
    ) -> Result<Vec<Value>, BackendError> {
        let loaded = self.loaded.clone();
        let graph = &loaded.program.graph;
        self.parts.clear();
        self.may_leave_open = false;
        self.settle();
        (0..inputs.len()).for_each(|i| self.memory.lend(i, None));
        self.memory.bound.outputs.clear();
        let allocations = self.memory.allocations;
        for (i, v) in inputs.iter().enumerate() {
            let to = self.memory.input(i, v.at.size)?;
            let here = Some((v.id, to.address));
            if let Some(last) = self.given.get_mut(i).filter(|last| **last != here) {
                self.stream.copy(to.address, v.at.address, v.at.size as usize)?;
                *last = here;
            }
        }
        if self.memory.allocations != allocations {
            self.prepared.clear();
        }
        if let Some(s) = &mut self.stamps {
            s.reset();
        }
        if self.poison {
            self.memory.poison()?;
        }
        let key = inputs.iter().zip(contents).map(|(v, t)| Key(v.shape(), t, None)).collect();
        let known = self.launch(key, shapes)?;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        for &v in &graph.outputs {
            if let Some(input) = graph.inputs.iter().position(|&i| i == v).and_then(|i| inputs.get(i)) {
                outputs.push(input.clone());
                continue;
            }
            let (from, n) = self.place(&known, v)?;
            let mut out = pool.take(known.fact(v).ty.clone())?;
            self.stream.copy(out.at.address, from.address, n)?;
            out.host = known.fact(v).as_const().cloned();
            outputs.push(out);
        }
        Ok(outputs)
    }
}
