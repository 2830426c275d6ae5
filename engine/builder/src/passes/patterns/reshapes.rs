//! Chains of `reshape`, `squeeze`, `unsqueeze` and `identity`-like moves of all elements in their order: one reshape.

use super::moves::shape_text;
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::op::Movement;
use kiln_ir::{IrError, Node, NodeId, ValueId};

pub struct Reshapes {
    x: ValueId,
    /// Shape of the result, −1 for the only dimension that is not a number.
    shape: Option<Vec<i64>>,
}

impl Rule for Reshapes {
    const NAME: &'static str = "reshapes";

    fn find(view: &View<'_>, root: NodeId) -> Option<Reshapes> {
        let reshapes = |n: &Node| n.op.movement() == Movement::Reshape;
        let last = view.g.get(root).filter(|n| reshapes(n))?;
        let (_, before) = view.g.producer(input(last, 0)?).filter(|(_, n)| reshapes(n))?;
        let (x, y) = (input(before, 0)?, *last.outputs.first()?);
        if view.dims(x) == view.dims(y) {
            return Some(Reshapes { x, shape: None });
        }
        Some(Reshapes { x, shape: Some(shape_text(view.dims(y))?) })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let y = match &self.shape {
            None => self.x,
            Some(shape) => w.reshape(self.x, shape)?,
        };
        Ok(w.replace(root, y))
    }
}
