//! Attention of windows whose masks differ from window to window but not from image to image, as shifted windows are written:
//! scores as [images·windows, heads, ..] are seen as [images, windows, heads, ..], a mask is added, and they are seen as before.
//! Windows become heads, and what is added one mask, so that nothing is left between the products but a sum and a softmax.

use super::attention::parts::{Product, product};
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::softmax::SOFTMAX;

pub struct AttentionWindows {
    first: Product,
    v: ValueId,
    /// Bias of the scores of all windows, and mask of each window's scores.
    bias: Option<ValueId>,
    mask: ValueId,
    softmax: Attrs,
    /// Images, windows, heads, queries, keys.
    sizes: [i64; 5],
    inside: Vec<NodeId>,
}

impl Rule for AttentionWindows {
    const NAME: &'static str = "attention-windows";

    fn find(view: &View<'_>, root: NodeId) -> Option<AttentionWindows> {
        let last = view.g.get(root).and_then(|n| product(n, false)).filter(|p| !p.trans_b)?;
        let (id, softmax) = view.made_by(last.a, SOFTMAX)?;
        let mut inside = vec![root, id];
        let scores = numbers(view, last.a).filter(|d| d.len() == 4)?;
        let axis = softmax.op.attrs().int("axis").ok()?;
        let (id, back) = view.made_by(input(softmax, 0)?, RESHAPE).filter(|_| axis == -1 || axis == 3)?;
        inside.push(id);
        let (id, sum) = view.made_by(input(back, 0)?, ADD)?;
        inside.push(id);
        let apart = |v: ValueId| view.made_by(v, RESHAPE).filter(|_| view.g.ty(v).rank() == 5);
        let (a, b) = (input(sum, 0)?, input(sum, 1)?);
        let (all, mask) = if apart(a).is_some() { (a, b) } else { (b, a) };
        let (id, split) = apart(all)?;
        inside.push(id);
        let sizes: [i64; 5] = numbers(view, all)?.try_into().ok()?;
        let [images, windows, heads, queries, keys] = sizes;
        if scores != [images * windows, heads, queries, keys] {
            return None;
        }
        let (bias, qk) = biased(view, input(split, 0)?, &mut inside)?;
        let (id, first) = view.made_by(qk, MATMUL)?;
        inside.push(id);
        let first = product(first, false)?;
        let softmax = softmax.op.attrs().clone();
        let found = AttentionWindows { first, v: last.b, bias, mask, softmax, sizes, inside };
        found.fits(view).then_some(found)
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let [images, windows, heads, queries, keys] = self.sizes;
        let own = |w: &mut Writer<'_>, v: ValueId| {
            let last = w.g.ty(v).dims.iter().skip(2).map(|d| d.as_const().unwrap_or(-1)).collect::<Vec<_>>();
            w.reshape(v, &[&[images, windows * heads][..], &last].concat())
        };
        let q = own(&mut w, self.first.a)?;
        let k = own(&mut w, self.first.b)?;
        let v = own(&mut w, self.v)?;
        let mut mask = self.mask;
        if let Some(bias) = self.bias {
            mask = w.op(ADD, Attrs::new(), &[mask, bias])?;
        }
        let whole = w.ints(&[1, windows, heads, queries, keys])?;
        mask = w.op(EXPAND, Attrs::new(), &[mask, whole])?;
        mask = w.reshape(mask, &[1, windows * heads, queries, keys])?;
        let trans = Attrs::new().with("trans_b", self.first.trans_b);
        let scores = w.op(MATMUL, trans, &[q, k])?;
        let scores = w.op(ADD, Attrs::new(), &[scores, mask])?;
        let shares = w.op(SOFTMAX, self.softmax, &[scores])?;
        let y = w.op(MATMUL, Attrs::new(), &[shares, v])?;
        let size = w.g.ty(y).dims.last().and_then(|d| d.as_const()).unwrap_or(-1);
        let y = w.reshape(y, &[images * windows, heads, queries, size])?;
        Ok(w.replace(root, y))
    }
}

impl AttentionWindows {
    /// Whether operands have the scores' batch, and what is added broadcasts to the scores of one image and is not larger.
    fn fits(&self, view: &View<'_>) -> bool {
        let [images, windows, heads, queries, keys] = self.sizes;
        let batch = |v: ValueId| {
            let dims = numbers(view, v).filter(|d| d.len() == 4 && !d.contains(&0));
            dims.is_some_and(|d| d[..2] == [images * windows, heads])
        };
        let operands = [self.first.a, self.first.b, self.v];
        let one = |v: ValueId, to: &[i64]| {
            let Some(dims) = numbers(view, v) else { return false };
            let each = dims.len() == to.len() && dims.first() != Some(&1);
            !each
                && dims.len() <= to.len()
                && dims.iter().rev().zip(to.iter().rev()).all(|(d, t)| *d == 1 || d == t)
        };
        operands.into_iter().all(batch)
            && one(self.mask, &[images, windows, heads, queries, keys])
            && self.bias.is_none_or(|b| one(b, &[images * windows, heads, queries, keys]))
    }
}

/// Dimensions, if all are known.
fn numbers(view: &View<'_>, v: ValueId) -> Option<Vec<i64>> {
    view.dims(v).iter().map(|d| d.as_const()).collect()
}

/// The product, and what is added to it, if anything is.
fn biased(view: &View<'_>, x: ValueId, inside: &mut Vec<NodeId>) -> Option<(Option<ValueId>, ValueId)> {
    let Some((id, node)) = view.made_by(x, ADD) else { return Some((None, x)) };
    inside.push(id);
    let (a, b) = (input(node, 0)?, input(node, 1)?);
    let (qk, bias) = if view.made_by(a, MATMUL).is_some() { (a, b) } else { (b, a) };
    Some((Some(bias), qk))
}
