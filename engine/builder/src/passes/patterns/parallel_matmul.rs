//! Products of one input with several constant matrices (queries, keys and values): one product with all of them, and
//! a slice for each. Equal pointwise layers behind all of them become one, too, with what they read for each column: sums with a constant
//! vector, or scales of codes. Weights may stay codes, with a scale and a zero point for each part of them.

use super::tail::Tail;
use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Graph, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::codes::{MATMUL_CODES, shared};
use kiln_ops::slice::concat::CONCAT;

pub struct ParallelMatmul {
    x: ValueId,
    op: Op,
    /// The axis of outputs of all operands but the first.
    axis: i64,
    /// The products in the order of the graph.
    parts: Vec<Part>,
    widths: Vec<i64>,
    /// Equal layers behind all of them, and what the last ones return.
    tail: Tail,
    ends: Vec<ValueId>,
}

/// A product with a constant matrix.
#[derive(Clone, Copy)]
pub struct Part {
    pub id: NodeId,
    pub y: ValueId,
    pub weights: ValueId,
    pub width: i64,
    /// The axis of the matrix that has its columns.
    pub axis: i64,
}

impl Rule for ParallelMatmul {
    const NAME: &'static str = "parallel-matmul";
    const WEIGHTS: bool = true;
    // The slices cost more than the product saves where nobody reads them in place.
    const ALWAYS: bool = false;

    /// The root is the first of the products.
    fn find(view: &View<'_>, root: NodeId) -> Option<ParallelMatmul> {
        let first = view.g.get(root)?;
        let x = input(first, 0)?;
        let mut ids: Vec<NodeId> = view.readers(x).iter().filter(|(_, i)| *i == 0).map(|(n, _)| *n).collect();
        ids.sort_by_key(|id| view.g.order().iter().position(|n| n == id));
        let own = either(view.g, root, first)?;
        let precision = first.meta.precision;
        let parts: Vec<Part> = ids
            .iter()
            .filter_map(|&id| Some((id, view.g.get(id)?)))
            .filter(|(_, n)| n.op == first.op && n.meta.precision == precision)
            .filter_map(|(id, n)| either(view.g, id, n))
            .filter(|p| alike(view.g, p.id, root))
            .collect();
        let fits = parts.len() > 1 && parts.first().is_some_and(|p| p.id == root) && view.g.ty(x).rank() >= 2;
        fits.then(|| {
            let (mut ends, widths): (Vec<ValueId>, Vec<i64>) = parts.iter().map(|p| (p.y, p.width)).unzip();
            let tail = Tail::with_columns(view, &mut ends, &widths);
            ParallelMatmul { x, op: first.op.clone(), axis: own.axis, parts, widths, tail, ends }
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let operands = w.g.get(root).map_or(0, |n| n.inputs.len());
        let mut inputs = Vec::from([Some(self.x)]);
        for i in 1..operands {
            let own = |p: &Part| w.g.get(p.id).and_then(|n| input(n, i));
            let each: Option<Vec<ValueId>> = self.parts.iter().map(own).collect();
            let joined = each.map(|all| w.op(CONCAT, Attrs::new().with("axis", self.axis), &all));
            inputs.push(joined.transpose()?);
        }
        let product = w.nodes(self.op.clone(), &inputs)?[0];
        let y = self.tail.write(&mut w, product, &self.widths)?;
        let last = w.g.ty(y).rank() as i64 - 1;
        let mut at = 0;
        for (p, &end) in self.parts.iter().zip(&self.ends) {
            let slice = w.slice(y, last, at, at + p.width)?;
            at += p.width;
            w.stand_in(end, slice);
        }
        self.tail.nodes.iter().for_each(|&id| w.g.remove_node(id));
        self.parts.iter().for_each(|p| w.g.remove_node(p.id));
        Ok(w.g.get(root).is_none())
    }
}

/// A product with a constant matrix on the right, or with codes of one.
fn either(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
    part(g, id, n).or_else(|| coded(g, id, n))
}

/// A product with a constant matrix on the right.
pub fn part(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
    let attrs = n.op.attrs();
    let weights = input(n, 1).filter(|&v| n.op.is(MATMUL) && constant(g, v))?;
    let dims = g.ty(weights).static_dims().filter(|d| d.len() == 2)?;
    let axis = usize::from(!attrs.bool("trans_b").ok()?);
    let dtype = g.ty(weights).dtype;
    let plain = !attrs.bool("trans_a").ok()? && (dtype.is_float() || dtype.bits() == 8);
    let (y, width) = (*n.outputs.first()?, i64::try_from(dims[axis]).ok()?);
    (plain && width > 0).then_some(Part { id, y, weights, width, axis: axis as i64 })
}

/// A product with weights that stay codes, of which whole parts share a scale.
fn coded(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
    let fixed = |v: &Option<ValueId>| v.is_none_or(|v| constant(g, v));
    let weights = input(n, 1).filter(|_| n.op.is(MATMUL_CODES) && n.inputs[1..].iter().all(fixed))?;
    let [_, across] = shared(n.op.attrs()).ok()?;
    let width = g.ty(weights).dims.first()?.as_const().filter(|n| *n > 0 && n % across == 0)?;
    Some(Part { id, y: *n.outputs.first()?, weights, width, axis: 0 })
}

/// Whether operands of two products but the first have the same types.
fn alike(g: &Graph, a: NodeId, b: NodeId) -> bool {
    let types = |id: NodeId| {
        let node = g.get(id)?;
        Some(node.inputs.iter().skip(1).map(|v| v.map(|v| g.ty(v).dtype)).collect::<Vec<_>>())
    };
    types(a) == types(b)
}
