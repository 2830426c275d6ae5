//! Products of one input with several constant matrices (queries, keys and values): one product with all of them, and
//! a slice for each. Equal pointwise layers behind all of them become one, too, with what they read for each column: sums with a constant
//! vector, or scales of codes.

use super::tail::Tail;
use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attr, Attrs, Graph, IrError, Node, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;

pub struct ParallelMatmul {
    x: ValueId,
    trans: bool,
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
}

impl Rule for ParallelMatmul {
    const NAME: &'static str = "parallel-matmul";
    const WEIGHTS: bool = true;
    // The slices cost more than the product saves where nobody reads them in place.
    const ALWAYS: bool = false;

    /// The root is the first of the products.
    fn find(view: &View<'_>, root: NodeId) -> Option<ParallelMatmul> {
        let first = view.g.get(root)?;
        let x = input(first, 0).filter(|_| first.op.is(MATMUL))?;
        let trans = first.op.attrs().bool("trans_b").ok()?;
        let mut ids: Vec<NodeId> = view.readers(x).iter().filter(|(_, i)| *i == 0).map(|(n, _)| *n).collect();
        ids.sort_by_key(|id| view.g.order().iter().position(|n| n == id));
        let own = part(view.g, root, first)?;
        let precision = first.meta.precision;
        let parts: Vec<Part> = ids
            .iter()
            .filter_map(|&id| Some((id, view.g.get(id)?)))
            .filter(|(_, n)| n.op == first.op && n.meta.precision == precision)
            .filter_map(|(id, n)| part(view.g, id, n))
            .filter(|p| same_type(view.g, p.weights, own.weights))
            .collect();
        let fits = parts.len() > 1 && parts.first().is_some_and(|p| p.id == root) && view.g.ty(x).rank() >= 2;
        fits.then(|| {
            let (mut ends, widths): (Vec<ValueId>, Vec<i64>) = parts.iter().map(|p| (p.y, p.width)).unzip();
            let tail = Tail::with_columns(view, &mut ends, &widths);
            ParallelMatmul { x, trans, parts, widths, tail, ends }
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let axis = i64::from(!self.trans);
        let weights: Vec<ValueId> = self.parts.iter().map(|p| p.weights).collect();
        let all = w.op(CONCAT, Attrs::new().with("axis", axis), &weights)?;
        let product = w.op(MATMUL, Attrs::new().with("trans_b", Attr::Bool(self.trans)), &[self.x, all])?;
        let y = self.tail.write(&mut w, product, &self.widths)?;
        let last = w.g.ty(y).rank() as i64 - 1;
        let mut at = 0;
        for (p, &end) in self.parts.iter().zip(&self.ends) {
            let bounds = [w.ints(&[at])?, w.ints(&[at + p.width])?, w.ints(&[last])?];
            let slice = w.op(SLICE, Attrs::new(), &[y, bounds[0], bounds[1], bounds[2]])?;
            at += p.width;
            w.stand_in(end, slice);
        }
        self.tail.nodes.iter().for_each(|&id| w.g.remove_node(id));
        self.parts.iter().for_each(|p| w.g.remove_node(p.id));
        Ok(w.g.get(root).is_none())
    }
}

/// A product with a constant matrix on the right.
pub fn part(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
    let attrs = n.op.attrs();
    let weights = input(n, 1).filter(|&v| constant(g, v))?;
    let dims = g.ty(weights).static_dims().filter(|d| d.len() == 2)?;
    let width = if attrs.bool("trans_b").ok()? { dims[0] } else { dims[1] };
    let dtype = g.ty(weights).dtype;
    let plain = n.op.is(MATMUL) && !attrs.bool("trans_a").ok()? && (dtype.is_float() || dtype.bits() == 8);
    let (y, width) = (*n.outputs.first()?, i64::try_from(width).ok()?);
    (plain && width > 0).then_some(Part { id, y, weights, width })
}

pub fn same_type(g: &Graph, a: ValueId, b: ValueId) -> bool {
    g.ty(a).dtype == g.ty(b).dtype
}
