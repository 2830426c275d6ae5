//! Splitting and merging of heads around attention, however it is written: attention reads and writes
//! [batch, length, heads·size] itself, out of one packed product, too.

use super::moves::{Moved, Part, shape_text, trace};
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Dim, IrError, NodeId, ValueId};
use kiln_ops::attention::ATTENTION;

pub struct AttentionHeads {
    /// q, k and v with heads and sizes in one dimension.
    whole: [Whole; 3],
    mask: Option<ValueId>,
    attrs: Attrs,
    /// Whether the length is the first dimension of the result, before the batch.
    swapped: bool,
    /// The result, if it is not [batch, length, heads·size].
    shape: Option<Vec<i64>>,
    inside: Vec<NodeId>,
}

/// [batch, length, n·heads·size], or with the first two swapped, of which attention reads heads·size.
#[derive(Clone, Copy)]
struct Whole {
    x: ValueId,
    swapped: bool,
    /// Range of the last dimension.
    cut: Option<(i64, i64)>,
    heads: i64,
}

impl Rule for AttentionHeads {
    const NAME: &'static str = "attention-heads";

    fn find(view: &View<'_>, root: NodeId) -> Option<AttentionHeads> {
        let y = *view.g.get(root)?.outputs.first()?;
        let (z, moved, mut inside) =
            trace(view, y).into_iter().skip(1).find(|(v, ..)| view.made_by(*v, ATTENTION).is_some())?;
        let (id, node) = view.made_by(z, ATTENTION).filter(|(_, n)| n.outputs.first() == Some(&z))?;
        inside.push(id);
        // Only the first result is read: the others have the same layout in both forms, but inner results must be closed.
        if node.inputs.len() > 4 || view.g.ty(z).rank() != 4 || !moved.picked.is_empty() {
            return None;
        }
        let swapped = [[0, 2, 1, 3], [2, 0, 1, 3]].into_iter().position(|order| lies(&moved, order))? == 1;
        let [q, k, v] = [0, 1, 2].map(|i| split(view, input(node, i)?));
        let whole = [q?, k?, v?];
        let [batch, heads, length, size] = view.dims(z) else { return None };
        let width = heads.clone() * size.clone();
        let own = if swapped { [length, batch, &width] } else { [batch, length, &width] };
        let same = view.dims(y).iter().eq(own);
        let shape = if same { None } else { Some(shape_text(view.dims(y))?) };
        let attrs = node.op.attrs().clone().with("q_heads", whole[0].heads).with("kv_heads", whole[1].heads);
        let fits = whole[1].heads == whole[2].heads;
        fits.then(|| AttentionHeads { whole, mask: input(node, 3), attrs, swapped, shape, inside })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut inputs = Vec::new();
        for part in self.whole {
            inputs.push(Some(part.write(&mut w)?));
        }
        inputs.extend(self.mask.map(Some));
        let mut y = w.node(ATTENTION, self.attrs, &inputs)?;
        if self.swapped {
            y = w.transpose(y, &[1, 0, 2])?;
        }
        if let Some(shape) = &self.shape {
            y = w.reshape(y, shape)?;
        }
        Ok(w.replace(root, y))
    }
}

impl Whole {
    /// [batch, length, heads·size].
    fn write(self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        let mut x = self.x;
        if let Some((from, to)) = self.cut {
            x = w.slice(x, 2, from, to)?;
        }
        if self.swapped { w.transpose(x, &[1, 0, 2]) } else { Ok(x) }
    }
}

/// Whether the axes of the source lie one after the other in this order, each as a whole.
fn lies(moved: &Moved, order: [usize; 4]) -> bool {
    let wanted = order.into_iter().flat_map(|axis| of_axis(moved.parts(), axis));
    moved.parts().eq(wanted)
}

fn of_axis<'a>(parts: impl Iterator<Item = &'a Part>, axis: usize) -> Vec<&'a Part> {
    let mut own: Vec<&Part> = parts.filter(|p| p.key.first() == Some(&axis)).collect();
    own.sort_by(|a, b| a.key.cmp(&b.key));
    own
}

/// Source whose last dimension was split into [batch, heads, length, size].
fn split(view: &View<'_>, v: ValueId) -> Option<Whole> {
    let [_, heads, _, size] = view.dims(v) else { return None };
    let (heads, width) =
        (heads.as_const().filter(|&n| n > 0)?, heads.as_const()?.checked_mul(size.as_const()?)?);
    let whole = |(x, moved, _): (ValueId, Moved, Vec<NodeId>)| {
        if view.g.ty(x).rank() != 3 {
            return None;
        }
        let [batch, h, length, d] = &moved.dims[..] else { return None };
        // The picked parts go before heads and sizes in the last dimension.
        let mut picked: Vec<&(Part, i64)> = moved.picked.iter().collect();
        picked.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        let all = || picked.iter().map(|(p, _)| p).chain(moved.parts());
        let last: Vec<&Part> = picked.iter().map(|(p, _)| p).chain(h).chain(d).collect();
        if of_axis(all(), 2) != last {
            return None;
        }
        let outer = |axis: usize, group: &[Part]| of_axis(all(), axis).into_iter().eq(group);
        let plain = outer(0, batch) && outer(1, length);
        let swapped = !plain && outer(0, length) && outer(1, batch);
        (plain || swapped).then_some(())?;
        let mut index = 0i64;
        for (p, i) in &picked {
            index = index.checked_mul(p.dim.as_const()?)?.checked_add(*i)?;
        }
        let from = index.checked_mul(width)?;
        let cut = (!picked.is_empty()).then_some((from, from.checked_add(width)?));
        Some(Whole { x, swapped, cut, heads })
    };
    trace(view, v).into_iter().rev().find_map(whole).filter(|w| fits(view, *w, v))
}

/// Whether the batch and the length are those of the four dimensions, where dimensions of 1 are left out of sight.
fn fits(view: &View<'_>, w: Whole, v: ValueId) -> bool {
    let (x, own): (&[Dim], &[Dim]) = (view.dims(w.x), view.dims(v));
    let (batch, length) = if w.swapped { (&x[1], &x[0]) } else { (&x[0], &x[1]) };
    own.first() == Some(batch) && own.get(2) == Some(length)
}
