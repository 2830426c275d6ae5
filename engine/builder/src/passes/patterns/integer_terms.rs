//! Two constants that are added to integers, or taken from them, one after the other: one constant. Integers wrap, so that the order of
//! sums makes no difference. Zero points of quantized layers and their biases are such constants.

use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, Node, NodeId, OpName, ValueId};
use kiln_ops::pointwise::binary::{ADD, SUB};

pub struct IntegerTerms {
    x: ValueId,
    /// The operators and the constants, in order.
    ops: [OpName; 2],
    terms: [ValueId; 2],
    inside: [NodeId; 2],
}

/// A sum of integers of 32 or 64 bits with a constant, or a difference: the other operand, and the constant.
fn parts(view: &View<'_>, node: &Node) -> Option<(ValueId, ValueId)> {
    let g = view.g;
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    let whole = g.ty(a).dtype.is_int() && g.ty(a).dtype.bits() >= 32;
    let swapped = node.op.is(ADD) && constant(g, a);
    let (x, term) = if swapped { (b, a) } else { (a, b) };
    let fits = whole && (node.op.is(ADD) || node.op.is(SUB)) && constant(g, term) && !constant(g, x);
    fits.then_some((x, term))
}

impl Rule for IntegerTerms {
    const NAME: &'static str = "integer-terms";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<IntegerTerms> {
        let g = view.g;
        let node = g.get(root)?;
        let (y, second) = parts(view, node)?;
        let (id, before) = g.producer(y)?;
        let (x, first) = parts(view, before)?;
        let terms = [first, second];
        // One of the shapes is that of both together, so that the constants do not grow.
        let shape = |v: ValueId| g.ty(v).static_dims();
        let [a, b] = [shape(first)?, shape(second)?];
        let rank = a.len().max(b.len());
        let size = |s: &[usize], i: usize| s.len().checked_sub(rank - i).map_or(1, |i| s[i]);
        let covers =
            |s: &[usize], other: &[usize]| (0..rank).all(|i| [1, size(s, i)].contains(&size(other, i)));
        let fits = covers(&a, &b) || covers(&b, &a);
        fits.then(|| IntegerTerms { x, ops: [before.op.id(), node.op.id()], terms, inside: [id, root] })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let [first, second] = self.ops;
        let both = if first == second { ADD } else { SUB };
        let term = w.op(both, Attrs::new(), &self.terms)?;
        let y = w.op(first, Attrs::new(), &[self.x, term])?;
        Ok(w.replace(root, y))
    }
}
