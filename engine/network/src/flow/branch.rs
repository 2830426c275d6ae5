//! The boundary layers of conditionals and the types of what they give.

use super::Boundary;
use super::rules::scalar;
use crate::ids::IfId;
use crate::{Body, LayerDef};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::graph::join;

/// Decides which branch is taken.
#[derive(Clone, Debug)]
pub struct Condition {
    pub(crate) of: IfId,
}

/// Passes a value on to the branches: what depends on it is computed only if the branch is taken.
#[derive(Clone, Debug)]
pub struct IfInput {
    pub(crate) of: IfId,
}

/// A result: input 0 if the condition is true, input 1 otherwise.
#[derive(Clone, Debug)]
pub struct IfOutput {
    pub(crate) of: IfId,
    /// The condition, if it is known when the network is built.
    pub(crate) known: Option<i64>,
}

macro_rules! conditional {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// The conditional that it belongs to.
            pub fn of(&self) -> IfId {
                self.of
            }
        }
    )*};
}
conditional!(Condition, IfInput, IfOutput);

impl LayerDef for Condition {
    fn kind(&self) -> &'static str {
        "condition"
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::Condition(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        scalar(b, 0, |d| d == DType::Bool, "bool")?;
        Ok(Vec::new())
    }
}

impl LayerDef for IfInput {
    fn kind(&self) -> &'static str {
        "if_input"
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::IfInput(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let fact = b.fact(b.x(0)?).clone();
        Ok(vec![b.outside("inside", fact)])
    }
}

impl LayerDef for IfOutput {
    fn kind(&self) -> &'static str {
        "if_output"
    }
    fn max_inputs(&self) -> usize {
        2
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::IfOutput(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let (x, y) = (b.fact(b.x(0)?).clone(), b.fact(b.x(1)?).clone());
        let fact = join(b.layer(), self.known, &x, &y)?;
        Ok(vec![b.outside("result", fact)])
    }
}
