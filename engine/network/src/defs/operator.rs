//! A layer that is one operator of the graph.

use crate::{Body, LayerDef, WeightsRole};
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::op::{Arity, Op};
use kiln_ops::cast::IDENTITY;

/// One operator of the graph, with its attributes.
#[derive(Clone, Debug)]
pub struct Operator {
    pub(crate) op: Op,
}

impl Operator {
    /// The operator.
    pub fn op(&self) -> &Op {
        &self.op
    }
}

impl LayerDef for Operator {
    fn kind(&self) -> &'static str {
        self.op.name()
    }

    fn max_inputs(&self) -> usize {
        let ports = self.op.def().inputs;
        match ports.last() {
            Some(p) if p.arity == Arity::Variadic => usize::MAX,
            _ => ports.len(),
        }
    }

    fn output_name(&self, index: usize) -> String {
        self.op.def().outputs.get(index).map_or_else(|| index.to_string(), |s| (*s).to_owned())
    }

    fn operand_role(&self, input: usize) -> Option<WeightsRole> {
        match self.op.def().inputs.get(input)?.name {
            "w" => Some(WeightsRole::Kernel),
            "bias" => Some(WeightsRole::Bias),
            "scale" => Some(WeightsRole::Scale),
            _ => None,
        }
    }

    fn limits_rank(&self) -> bool {
        false
    }

    fn implicit_batch(&self) -> bool {
        self.op.is(IDENTITY)
    }

    fn side_effect(&self) -> bool {
        self.op.def().traits.side_effect
    }

    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let inputs: Vec<_> = (0..b.len()).map(|i| b.opt(i)).collect();
        b.operator(self.op.clone(), &inputs)
    }
}
