//! Transposes of transposes: one, or none where the second undoes the first.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, ValueId};
use kiln_ops::transpose::TRANSPOSE;

pub struct Transposes {
    x: ValueId,
    perm: Vec<usize>,
}

impl Rule for Transposes {
    const NAME: &'static str = "transposes";

    fn find(view: &View<'_>, root: NodeId) -> Option<Transposes> {
        let second = view.g.get(root).filter(|n| n.op.is(TRANSPOSE))?;
        let (_, first) = view.made_by(input(second, 0)?, TRANSPOSE)?;
        let (p, q) = (view.perm(first)?, view.perm(second)?);
        Some(Transposes { x: input(first, 0)?, perm: q.iter().map(|&i| p[i]).collect() })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let y = if self.perm.iter().copied().eq(0..self.perm.len()) {
            self.x
        } else {
            w.transpose(self.x, &self.perm)?
        };
        Ok(w.replace(root, y))
    }
}

impl Writer<'_> {
    /// Axis i of the result is axis perm[i] of `x`.
    pub fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId, IrError> {
        let perm: Vec<i64> = perm.iter().map(|&p| p as i64).collect();
        self.op(TRANSPOSE, Attrs::new().with("perm", perm), &[x])
    }
}
