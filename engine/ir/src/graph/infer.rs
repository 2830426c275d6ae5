//! Facts of a whole graph, again, from facts of its inputs.

use super::{Graph, Source, ValueId};
use crate::error::IrError;
use crate::infer::Fact;

impl Graph {
    /// Infers every value from these facts of the inputs (in the order of [`Graph::inputs`]), without changing the
    /// graph. Indexed by [`ValueId`]; dead values keep what they had.
    pub fn infer_from(&self, inputs: &[Fact]) -> Result<Vec<Fact>, IrError> {
        let mut facts: Vec<Fact> = self.values.iter().map(|v| v.fact.clone()).collect();
        for (v, f) in self.inputs.iter().zip(inputs) {
            facts[v.0 as usize] = f.clone();
        }
        for (_, node) in self.nodes() {
            let ins: Vec<Option<Fact>> =
                node.inputs.iter().map(|v| v.map(|v| facts[v.0 as usize].clone())).collect();
            for (v, f) in node.outputs.iter().zip(node.infer(&ins)?) {
                facts[v.0 as usize] = f;
            }
        }
        Ok(facts)
    }

    /// Infers every value again, after passes changed nodes or inputs.
    pub fn refresh(&mut self) -> Result<(), IrError> {
        let inputs: Vec<Fact> = self.inputs.iter().map(|&v| self.value(v).fact.clone()).collect();
        let facts = self.infer_from(&inputs)?;
        self.note_all();
        self.refresh_regions(&facts)?;
        for (v, f) in self.values.iter_mut().zip(facts) {
            v.fact = f;
        }
        Ok(())
    }

    /// Runs the graph on the oracle. Inputs in the order of [`Graph::inputs`].
    pub fn eval(&self, inputs: &[crate::tensor::Tensor]) -> Result<Vec<crate::tensor::Tensor>, IrError> {
        let mut values: Vec<Option<crate::tensor::Tensor>> = self
            .values
            .iter()
            .map(|v| if let Source::Weight(w) = &v.source { Some(w.tensor.clone()) } else { None })
            .collect();
        for (v, t) in self.inputs.iter().zip(inputs) {
            values[v.0 as usize] = Some(t.clone());
        }
        for (_, node) in self.nodes() {
            let ins: Vec<_> =
                node.inputs.iter().map(|v| v.and_then(|v| values[v.0 as usize].clone())).collect();
            for (v, t) in node.outputs.iter().zip(node.eval(&ins)?) {
                values[v.0 as usize] = Some(t);
            }
        }
        self.outputs.iter().map(|&v| self.take(&values, v)).collect()
    }

    fn take(
        &self,
        values: &[Option<crate::tensor::Tensor>],
        v: ValueId,
    ) -> Result<crate::tensor::Tensor, IrError> {
        values[v.0 as usize].clone().ok_or_else(|| IrError::UnknownTensor(self.value(v).name.clone()))
    }
}
