//! Products of one input with several constant matrices (queries, keys and values): one product with all of them, and
//! a slice for each. Where a constant vector is added to each product, the vectors become one, too.

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
}

#[derive(Clone, Copy)]
struct Part {
    id: NodeId,
    y: ValueId,
    weights: ValueId,
    width: i64,
    bias: Option<Bias>,
}

/// A constant vector that is added to a product; nobody else reads the product.
#[derive(Clone, Copy)]
struct Bias {
    id: NodeId,
    y: ValueId,
    vector: ValueId,
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
        let mut parts: Vec<Part> = ids
            .iter()
            .filter_map(|&id| Some((id, view.g.get(id)?)))
            .filter(|(_, n)| n.op == first.op && n.meta.precision == precision)
            .filter_map(|(id, n)| part(view.g, id, n))
            .filter(|p| same_type(view.g, p.weights, own.weights))
            .collect();
        for p in &mut parts {
            p.bias = bias(view, p);
        }
        if parts.iter().any(|p| p.bias.is_none()) {
            parts.iter_mut().for_each(|p| p.bias = None);
        }
        let fits = parts.len() > 1 && parts.first().is_some_and(|p| p.id == root) && view.g.ty(x).rank() >= 2;
        fits.then_some(ParallelMatmul { x, trans, parts })
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
        let last = w.g.ty(sum).rank() as i64 - 1;
        let mut at = 0;
        let mut slices = Vec::new();
        for p in &self.parts {
            let bounds = [w.ints(&[at])?, w.ints(&[at + p.width])?, w.ints(&[last])?];
            slices.push(w.op(SLICE, Attrs::new(), &[sum, bounds[0], bounds[1], bounds[2]])?);
            at += p.width;
        }
        let rest: Vec<(Part, ValueId)> = self.parts.iter().copied().zip(slices).collect();
        for (p, slice) in rest.iter().filter(|(p, _)| p.id != root) {
            put(&mut w, p, *slice);
        }
        match rest.first() {
            Some((p, slice)) if p.bias.is_some() => {
                put(&mut w, p, *slice);
                Ok(true)
            }
            Some((_, slice)) => Ok(w.replace(root, *slice)),
            None => Ok(false),
        }
    }
}

/// Puts a slice in the place of a product, or of the sum that it is read by.
fn put(w: &mut Writer<'_>, p: &Part, slice: ValueId) {
    let (last, y) = p.bias.map_or((p.id, p.y), |b| (b.id, b.y));
    w.stand_in(y, slice);
    w.g.remove_node(last);
    w.g.remove_node(p.id);
}

/// A product with a constant matrix on the right.
fn part(g: &Graph, id: NodeId, n: &Node) -> Option<Part> {
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
