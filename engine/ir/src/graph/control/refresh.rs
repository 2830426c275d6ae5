//! Keeping regions in step with the graph around them.

use super::super::Graph;
use super::infer;
use crate::error::IrError;
use crate::infer::Fact;
use crate::op::IF;

impl Graph {
    /// Sets the inputs of every region to the facts that follow from facts of all values of this graph, and
    /// infers the regions again. A branch that these do not fit, so that it can't be taken, keeps its own.
    pub(crate) fn refresh_regions(&mut self, facts: &[Fact]) -> Result<(), IrError> {
        for node in self.nodes.iter_mut().flatten().filter(|n| !n.regions.is_empty()) {
            let ins: Vec<Option<Fact>> =
                node.inputs.iter().map(|v| v.map(|v| facts[v.0 as usize].clone())).collect();
            let inferred = infer::infer(&node.name, &node.op, &node.regions, &ins)?;
            for (region, inputs) in node.regions.iter_mut().zip(inferred.regions) {
                let own: Vec<Fact> = region.inputs.iter().map(|&v| region.value(v).fact.clone()).collect();
                region.set_inputs(inputs);
                if let Err(e) = region.refresh() {
                    if !node.op.is(IF) {
                        return Err(e);
                    }
                    region.set_inputs(own);
                    region.refresh()?;
                }
            }
        }
        Ok(())
    }

    fn set_inputs(&mut self, facts: Vec<Fact>) {
        for (v, fact) in self.inputs.clone().into_iter().zip(facts) {
            self.value_mut(v).fact = fact;
        }
    }
}
