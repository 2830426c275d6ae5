//! Products of several parts of one tensor with matrices of their own (experts, groups): one product of a batch.

use super::parallel_matmul::{Part, part};
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attr, Attrs, Dim, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::shape::squeeze::SQUEEZE;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::transpose::TRANSPOSE;

pub struct BatchedMatmul {
    /// The tensor that all read, and its dimensions but the last.
    of: ValueId,
    lead: Vec<Dim>,
    /// Depth and width of a product.
    depth: i64,
    width: i64,
    trans: bool,
    /// The products in the order of the parts that they read, which cover the tensor.
    parts: Vec<Part>,
    /// Vectors that are added, one to each, or none.
    biases: Vec<Bias>,
}

/// A constant vector that is added to a product; nobody else reads the product.
#[derive(Clone, Copy)]
struct Bias {
    id: NodeId,
    y: ValueId,
    vector: ValueId,
}

impl Rule for BatchedMatmul {
    const NAME: &'static str = "batched-matmul";
    const WEIGHTS: bool = true;
    // Small batches may be slower than products side by side.
    const ALWAYS: bool = false;

    /// The root is the first of the products.
    fn find(view: &View<'_>, root: NodeId) -> Option<BatchedMatmul> {
        let first = view.g.get(root).filter(|n| n.op.is(MATMUL))?;
        let trans = first.op.attrs().bool("trans_b").ok()?;
        let own = part(view.g, root, first).filter(|p| view.g.ty(p.weights).dtype.is_float())?;
        let (of, _) = slice(view, input(first, 0)?)?;
        let (dims, weights) = (view.dims(of), view.g.ty(own.weights));
        let mut found: Vec<(i64, Part)> = Vec::new();
        for &(id, _) in view.readers(of) {
            let Some(y) = view.g.get(id).and_then(|n| n.outputs.first().copied()) else { continue };
            let Some((_, start)) = slice(view, y).filter(|(x, _)| *x == of) else { continue };
            for &(id, at) in view.readers(y) {
                let n = view
                    .g
                    .get(id)
                    .filter(|n| at == 0 && n.op == first.op && n.meta.precision == first.meta.precision);
                let p = n.and_then(|n| part(view.g, id, n)).filter(|p| view.g.ty(p.weights) == weights);
                found.extend(p.map(|p| (start, p)));
            }
        }
        found.sort_by_key(|(start, _)| *start);
        let depth = *weights.static_dims()?.get(usize::from(trans))? as i64;
        let cover = found.iter().zip(0..).all(|((start, _), i)| *start == i * depth);
        let whole = dims.last()?.as_const()? == found.len() as i64 * depth;
        let order = view.g.order();
        let place = |p: &Part| order.iter().position(|n| *n == p.id);
        let is_first = found.iter().all(|(_, p)| place(p) >= place(&own));
        let (last, lead) = (dims.len() - 1, dims.get(..dims.len() - 1)?.to_vec());
        let unknown = lead.iter().filter(|d| d.as_const().is_none()).count();
        let empty = depth == 0 || lead.iter().any(|d| d.as_const() == Some(0));
        let fits = found.len() > 1 && cover && whole && is_first && last > 0 && unknown <= 1 && !empty;
        let parts: Vec<Part> = found.into_iter().map(|(_, p)| p).collect();
        // If there is one for each.
        let biases: Option<Vec<Bias>> = parts.iter().map(|p| bias(view, p)).collect();
        let biases = biases.unwrap_or_default();
        fits.then_some(BatchedMatmul { of, lead, depth, width: own.width, trans, parts, biases })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let (n, rank) = (self.parts.len() as i64, self.lead.len() as i64);
        let mut shape: Vec<i64> = self.lead.iter().map(|d| d.as_const().unwrap_or(-1)).collect();
        shape.extend([n, self.depth]);
        let apart = w.reshape(self.of, &shape)?;
        let perm: Vec<i64> = [rank].into_iter().chain(0..rank).chain([rank + 1]).collect();
        let x = w.op(TRANSPOSE, Attrs::new().with("perm", perm), &[apart])?;
        let along = Attrs::new().with("axis", 0i64);
        let weights: Vec<ValueId> = self.parts.iter().map(|p| p.weights).collect();
        let weights = w.op(CONCAT, along.clone(), &weights)?;
        let ones = vec![1; self.lead.len() - 1];
        let matrix = if self.trans { [self.width, self.depth] } else { [self.depth, self.width] };
        let weights = w.reshape(weights, &[&[n], &ones[..], &matrix].concat())?;
        let attrs = Attrs::new().with("trans_b", Attr::Bool(self.trans));
        let mut y = w.op(MATMUL, attrs, &[x, weights])?;
        let biases: Vec<ValueId> = self.biases.iter().map(|b| b.vector).collect();
        if !biases.is_empty() {
            let bias = w.op(CONCAT, along, &biases)?;
            let bias = w.reshape(bias, &[&[n], &ones[..], &[1, self.width]].concat())?;
            y = w.op(ADD, Attrs::new(), &[y, bias])?;
        }
        let axis = w.ints(&[0])?;
        for (i, p) in (0i64..).zip(&self.parts) {
            let (from, to) = (w.ints(&[i])?, w.ints(&[i + 1])?);
            let one = w.op(SLICE, Attrs::new(), &[y, from, to, axis])?;
            let one = w.op(SQUEEZE, Attrs::new(), &[one, axis])?;
            w.stand_in(self.biases.get(i as usize).map_or(p.y, |b| b.y), one);
        }
        let sums = self.biases.iter().map(|b| b.id);
        sums.chain(self.parts.iter().map(|p| p.id)).for_each(|id| w.g.remove_node(id));
        Ok(w.g.get(root).is_none())
    }
}

/// The constant vector, as long as the product is wide, that is added to it and to nothing else.
fn bias(view: &View<'_>, p: &Part) -> Option<Bias> {
    let &[(id, i)] = view.readers(p.y) else { return None };
    let n = view.g.get(id).filter(|n| n.op.is(ADD) && view.read_once(p.y))?;
    let vector = input(n, 1 - i.min(1))
        .filter(|&v| view.g.weight(v).is_some() && view.g.ty(v).dtype == view.g.ty(p.y).dtype)?;
    let fits = view.g.ty(vector).static_dims()?[..] == [usize::try_from(p.width).ok()?];
    let plain = n.meta.output_types.iter().all(Option::is_none);
    (fits && plain).then_some(Bias { id, y: *n.outputs.first()?, vector })
}

/// The tensor of which a value is a part of the last axis, with steps of one, and where it begins.
fn slice(view: &View<'_>, v: ValueId) -> Option<(ValueId, i64)> {
    let (_, node) = view.made_by(v, SLICE)?;
    let of = input(node, 0)?;
    let rank = view.g.ty(of).rank();
    let one = |i: usize| view.ints(input(node, i)?).filter(|v| v.len() == 1)?.first().copied();
    let steps = input(node, 4).is_none() || one(4) == Some(1);
    let last = normalize_axis(one(3)?, rank, "axis").ok()? + 1 == rank;
    let start = one(1).filter(|s| *s >= 0)?;
    let known = view.dims(v).last()?.as_const().is_some();
    (steps && last && known).then_some((of, start))
}
