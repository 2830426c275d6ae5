//! Products of one input with several constant matrices (queries, keys and values): one product with all of them, and
//! a slice for each. Where a constant vector is added to each product, the vectors become one, too, and so do equal pointwise layers
//! behind all of them.

use super::tail::{self, Tail};
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attr, Attrs, Graph, IrError, Node, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;

pub struct ParallelMatmul {
    x: ValueId,
    trans: bool,
    /// The products in the order of the graph.
    parts: Vec<Part>,
    /// Equal layers behind all of them, and what the last ones return.
    tail: Tail,
    ends: Vec<ValueId>,
}

/// A product with a constant matrix, and what is added to it.
#[derive(Clone, Copy)]
pub struct Part {
    pub id: NodeId,
    y: ValueId,
    pub weights: ValueId,
    pub width: i64,
    pub bias: Option<Bias>,
}

impl Part {
    /// Result of the product, or of the sum that it is read by.
    pub fn end(&self) -> ValueId {
        self.bias.map_or(self.y, |b| b.y)
    }

    /// Removes the product and the sum.
    pub fn remove(&self, w: &mut Writer<'_>) {
        self.bias.iter().for_each(|b| w.g.remove_node(b.id));
        w.g.remove_node(self.id);
    }
}

/// A constant vector that is added to a product; nobody else reads the product.
#[derive(Clone, Copy)]
pub struct Bias {
    id: NodeId,
    y: ValueId,
    pub vector: ValueId,
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
            let parts = with_biases(view, parts);
            let mut ends: Vec<ValueId> = parts.iter().map(Part::end).collect();
            let tail = tail::behind(view, &mut ends);
            ParallelMatmul { x, trans, parts, tail, ends }
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let axis = i64::from(!self.trans);
        let weights: Vec<ValueId> = self.parts.iter().map(|p| p.weights).collect();
        let all = w.op(CONCAT, Attrs::new().with("axis", axis), &weights)?;
        let product = w.op(MATMUL, Attrs::new().with("trans_b", Attr::Bool(self.trans)), &[self.x, all])?;
        let biases: Vec<ValueId> = self.parts.iter().filter_map(|p| Some(p.bias?.vector)).collect();
        let sum = match &biases[..] {
            [] => product,
            all => {
                let bias = w.op(CONCAT, Attrs::new().with("axis", 0i64), all)?;
                w.op(ADD, Attrs::new(), &[product, bias])?
            }
        };
        let mut y = sum;
        for op in &self.tail.ops {
            y = w.op(op.id(), op.attrs().clone(), &[y])?;
        }
        let last = w.g.ty(y).rank() as i64 - 1;
        let mut at = 0;
        for (p, &end) in self.parts.iter().zip(&self.ends) {
            let bounds = [w.ints(&[at])?, w.ints(&[at + p.width])?, w.ints(&[last])?];
            let slice = w.op(SLICE, Attrs::new(), &[y, bounds[0], bounds[1], bounds[2]])?;
            at += p.width;
            w.stand_in(end, slice);
        }
        self.tail.nodes.iter().for_each(|&id| w.g.remove_node(id));
        self.parts.iter().for_each(|p| p.remove(&mut w));
        Ok(w.g.get(root).is_none())
    }
}

/// The products with the vectors that are added to them, if there is one for each.
pub fn with_biases(view: &View<'_>, mut parts: Vec<Part>) -> Vec<Part> {
    let biases: Vec<Option<Bias>> = parts.iter().map(|p| bias(view, p)).collect();
    if biases.iter().all(Option::is_some) {
        parts.iter_mut().zip(biases).for_each(|(p, b)| p.bias = b);
    }
    parts
}

/// A product with a constant matrix on the right.
pub fn part(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
    let attrs = n.op.attrs();
    let weights = input(n, 1).filter(|&v| g.weight(v).is_some())?;
    let dims = g.ty(weights).static_dims().filter(|d| d.len() == 2)?;
    let width = if attrs.bool("trans_b").ok()? { dims[0] } else { dims[1] };
    let plain = n.op.is(MATMUL) && !attrs.bool("trans_a").ok()? && g.ty(weights).dtype.is_float();
    let (y, width) = (*n.outputs.first()?, i64::try_from(width).ok()?);
    (plain && width > 0).then_some(Part { id, y, weights, width, bias: None })
}

/// The constant vector, as long as the product is wide, that is added to it and to nothing else.
fn bias(view: &View<'_>, p: &Part) -> Option<Bias> {
    let &[(id, i)] = view.readers(p.y) else { return None };
    let n = view.g.get(id).filter(|n| n.op.is(ADD) && view.read_once(p.y))?;
    let vector =
        input(n, 1 - i.min(1)).filter(|&v| view.g.weight(v).is_some() && same_type(view.g, v, p.y))?;
    let fits = view.g.ty(vector).static_dims()?[..] == [usize::try_from(p.width).ok()?];
    let plain = n.meta.output_types.iter().all(Option::is_none);
    (fits && plain).then_some(Bias { id, y: *n.outputs.first()?, vector })
}

fn same_type(g: &Graph, a: ValueId, b: ValueId) -> bool {
    g.ty(a).dtype == g.ty(b).dtype
}
