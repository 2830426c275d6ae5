//! A transpose of the last two axes before a matrix product: the product's flag instead.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::transpose::TRANSPOSE;

const FLAGS: [&str; 2] = ["trans_a", "trans_b"];

pub struct MatmulFlags {
    operands: [ValueId; 2],
    attrs: Attrs,
}

impl Rule for MatmulFlags {
    const NAME: &'static str = "matmul-flags";

    fn find(view: &View<'_>, root: NodeId) -> Option<MatmulFlags> {
        let node = view.g.get(root).filter(|n| n.op.is(MATMUL))?;
        let mut operands = [input(node, 0)?, input(node, 1)?];
        let mut attrs = node.op.attrs().clone();
        let mut changed = false;
        for (v, flag) in operands.iter_mut().zip(FLAGS) {
            let Some((_, t)) = view.made_by(*v, TRANSPOSE) else { continue };
            if swaps_last(&view.perm(t)?) {
                *v = input(t, 0)?;
                attrs.set(flag, !attrs.bool(flag).ok()?);
                changed = true;
            }
        }
        changed.then_some(MatmulFlags { operands, attrs })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let y = w.op(MATMUL, self.attrs, &self.operands)?;
        Ok(w.replace(root, y))
    }
}

/// Whether it swaps the last two axes and nothing else.
pub fn swaps_last(perm: &[usize]) -> bool {
    let n = perm.len();
    n >= 2 && perm[..n - 2].iter().copied().eq(0..n - 2) && perm[n - 2..] == [n - 1, n - 2]
}
