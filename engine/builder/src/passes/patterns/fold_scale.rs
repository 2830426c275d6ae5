//! A constant factor behind a convolution or a product with constant weights goes into the weights, a constant term
//! behind a convolution into its bias.

use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Graph, IrError, Node, NodeId, OpName, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::{ADD, DIV, MUL, SUB};
use kiln_ops::shape::expand::EXPAND;

pub struct FoldScale {
    anchor: Anchor,
    change: Change,
    /// The constant: one element, or one for each channel.
    by: ValueId,
    inside: Vec<NodeId>,
}

struct Anchor {
    op: OpName,
    attrs: Attrs,
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    /// Dimension of the weights that is the channel, and that of the result, counted from its end.
    axis: usize,
    from_end: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Multiply,
    Divide,
    Add,
    Subtract,
}

impl Rule for FoldScale {
    const NAME: &'static str = "fold-scale";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<FoldScale> {
        let node = view.g.get(root)?;
        let change = match node.op.id() {
            MUL => Change::Multiply,
            DIV => Change::Divide,
            ADD => Change::Add,
            SUB => Change::Subtract,
            _ => return None,
        };
        let (a, b) = (input(node, 0)?, input(node, 1)?);
        let swaps = matches!(change, Change::Multiply | Change::Add);
        let (y, by) = if swaps && constant(view.g, a) { (b, a) } else { (a, b) };
        let (id, producer) = view.g.producer(y)?;
        let anchor = anchor(view.g, producer)?;
        let plus = matches!(change, Change::Add | Change::Subtract);
        let fits = constant(view.g, by)
            && view.g.ty(by).dtype == view.g.ty(anchor.weights).dtype
            && view.g.ty(by).dtype.is_float()
            && (anchor.op == CONV || !plus)
            && per_channel(view.g, by, y, &anchor);
        fits.then(|| FoldScale { anchor, change, by, inside: vec![id, root] })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let Anchor { op, attrs, x, mut weights, mut bias, axis, .. } = self.anchor;
        let channels = w.g.ty(weights).static_dims().and_then(|d| d.get(axis).copied());
        let Some(channels) = channels.and_then(|n| i64::try_from(n).ok()) else { return Ok(false) };
        let one = w.g.ty(self.by).static_volume() == Some(1);
        let by = w.reshape(self.by, &[if one { 1 } else { channels }])?;
        let rank = w.g.ty(weights).rank();
        let name = match self.change {
            Change::Multiply => MUL,
            Change::Divide => DIV,
            Change::Add => ADD,
            Change::Subtract => SUB,
        };
        if matches!(self.change, Change::Multiply | Change::Divide) {
            let column = w.column(by, rank, axis)?;
            weights = w.op(name, Attrs::new(), &[weights, column])?;
            bias = match bias {
                Some(b) => Some(w.op(name, Attrs::new(), &[b, by])?),
                None => None,
            };
        } else {
            let old = match bias {
                Some(b) => b,
                None => {
                    let dtype = w.g.ty(weights).dtype;
                    let zero = w.scalar(0.0, dtype)?;
                    let shape = w.ints(&[channels])?;
                    w.op(EXPAND, Attrs::new(), &[zero, shape])?
                }
            };
            bias = Some(w.op(name, Attrs::new(), &[old, by])?);
        }
        let inputs: Vec<ValueId> = [x, weights].into_iter().chain(bias).collect();
        let y = w.op(op, attrs, &inputs)?;
        Ok(w.replace(root, y))
    }
}

/// A convolution, or a product with a constant matrix on the right.
fn anchor(g: &Graph, n: &Node) -> Option<Anchor> {
    let (x, weights) = (input(n, 0)?, input(n, 1)?);
    let bias = input(n, 2);
    if !constant(g, weights) || !bias.is_none_or(|b| constant(g, b)) {
        return None;
    }
    let attrs = n.op.attrs().clone();
    let (op, axis, from_end) = match n.op.id() {
        CONV => (CONV, 0, g.ty(*n.outputs.first()?).rank().checked_sub(2)?),
        MATMUL if g.ty(weights).rank() == 2 => {
            let trans = attrs.bool("trans_b").ok()?;
            (MATMUL, usize::from(!trans), 0)
        }
        _ => return None,
    };
    Some(Anchor { op, attrs, x, weights, bias, axis, from_end })
}

/// Whether `by` has one element, or one for each channel of the result `y`, whose shape it does not change.
fn per_channel(g: &Graph, by: ValueId, y: ValueId, anchor: &Anchor) -> bool {
    let (Some(own), y) = (g.ty(by).static_dims(), g.ty(y)) else { return false };
    if own.len() > y.rank() {
        return false;
    }
    let channels = g.ty(anchor.weights).static_dims().and_then(|d| d.get(anchor.axis).copied());
    own.iter().rev().enumerate().all(|(i, &n)| n == 1 || (i == anchor.from_end && Some(n) == channels))
}
