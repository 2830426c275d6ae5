//! One index of an axis, taken for attention: a slice, which attention reads in place, in the place of a gather.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, ValueId};
use kiln_ops::attention::ATTENTION;
use kiln_ops::gather::GATHER;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::transpose::TRANSPOSE;

/// Layers between the gather and attention, at most.
const FAR: usize = 8;

pub struct Pick {
    x: ValueId,
    index: i64,
    axis: i64,
}

impl Rule for Pick {
    const NAME: &'static str = "pick";

    fn find(view: &View<'_>, root: NodeId) -> Option<Pick> {
        let (node, index) = picks(view, root)?;
        let x = input(node, 0)?;
        let (y, rank) = (*node.outputs.first()?, view.g.ty(x).rank() as i64);
        let axis = node.op.attrs().int("axis").ok()?;
        let axis = if axis < 0 { axis + rank } else { axis };
        serves(view, y, FAR).then_some(Pick { x, index, axis })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let bounds = [w.ints(&[self.index])?, w.ints(&[self.index + 1])?, w.ints(&[self.axis])?];
        let one = w.op(SLICE, Attrs::new(), &[self.x, bounds[0], bounds[1], bounds[2]])?;
        let y = w.op(SQUEEZE, Attrs::new(), &[one, bounds[2]])?;
        Ok(w.replace(root, y))
    }
}

/// A gather of one constant index, counted from the front.
fn picks<'g>(view: &View<'g>, id: NodeId) -> Option<(&'g kiln_ir::Node, i64)> {
    let node = view.g.get(id).filter(|n| n.op.is(GATHER))?;
    let index = input(node, 1)?;
    let i = view.g.weight(index).filter(|_| view.g.ty(index).rank() == 0)?.tensor.to_i64();
    i.first().filter(|i| **i >= 0).map(|i| (node, *i))
}

/// Whether a value goes into attention, by way of layers that only move it. What else reads it does not matter: a slice serves
/// them as well as a gather.
fn serves(view: &View<'_>, v: ValueId, far: usize) -> bool {
    let moves = |n: NodeId| {
        let node = view.g.get(n)?;
        match node.op.id() {
            ATTENTION => Some(true),
            SLICE | SQUEEZE | UNSQUEEZE | RESHAPE | TRANSPOSE | CONCAT => {
                Some(far > 0 && serves(view, *node.outputs.first()?, far - 1))
            }
            _ => Some(far > 0 && picks(view, n).is_some() && serves(view, *node.outputs.first()?, far - 1)),
        }
    };
    view.readers(v).iter().any(|(n, _)| moves(*n) == Some(true))
}
