//! Layers that all parts of attention are made of: products, reshapes and constant factors.

use super::super::Writer;
use super::super::view::{View, input};
use kiln_ir::op::Movement;
use kiln_ir::{Attrs, Dim, IrError, Node, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::{DIV, MUL};
use kiln_ops::shape::RESHAPE;

/// A matrix product.
pub struct Product {
    pub a: ValueId,
    pub b: ValueId,
    pub trans_b: bool,
}

/// A matrix product whose first operand is transposed as given.
pub fn product(n: &Node, trans_a: bool) -> Option<Product> {
    let attrs = n.op.attrs();
    let own = n.op.is(MATMUL) && attrs.bool("trans_a").ok()? == trans_a;
    own.then_some(Product { a: input(n, 0)?, b: input(n, 1)?, trans_b: attrs.bool("trans_b").ok()? })
}

/// The contents of a shape: 0 for a dimension that stays at its place, -1 for at most one other that is not a number.
pub fn shape_of(from: &[Dim], to: &[Dim]) -> Option<Vec<i64>> {
    let contents = |(i, d): (usize, &Dim)| match d.as_const() {
        Some(0) => None,
        Some(n) => Some(n),
        None if from.get(i) == Some(d) => Some(0),
        None => Some(-1),
    };
    let shape: Vec<i64> = to.iter().enumerate().map(contents).collect::<Option<_>>()?;
    (shape.iter().filter(|&&n| n < 0).count() <= 1).then_some(shape)
}

/// Reshapes to a shape by [`shape_of`].
pub fn reshape(w: &mut Writer<'_>, x: ValueId, shape: &[i64]) -> Result<ValueId, IrError> {
    let shape = w.ints(shape)?;
    w.op(RESHAPE, Attrs::new(), &[x, shape])
}

/// A layer that reshapes and leaves the last two dimensions alone: what it reads.
pub fn folds(view: &View<'_>, node: &Node) -> Option<ValueId> {
    let (x, y) = (input(node, 0)?, *node.outputs.first()?);
    let (from, to) = (view.dims(x), view.dims(y));
    let kind = node.op.movement() == Movement::Reshape;
    let tail = |d: &[Dim]| d.len().checked_sub(2).map(|n| d[n..].to_vec());
    (kind && tail(from).is_some() && tail(from) == tail(to)).then_some(x)
}

/// Takes a constant factor off a value: the layer, the factor, and what is scaled.
pub fn factor(view: &View<'_>, v: ValueId) -> Option<(NodeId, f64, ValueId)> {
    let (id, n) = view.g.producer(v)?;
    let (a, b) = (input(n, 0)?, input(n, 1)?);
    let (factor, x) = match n.op.id() {
        MUL => match view.scalar(b) {
            Some(s) => (s, a),
            None => (view.scalar(a)?, b),
        },
        DIV => (1.0 / view.scalar(b)?, a),
        _ => return None,
    };
    (view.g.ty(x).rank() == view.g.ty(v).rank()).then_some((id, factor, x))
}
