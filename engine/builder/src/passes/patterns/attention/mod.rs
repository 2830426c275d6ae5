//! Scaled dot-product attention out of two products and a softmax, in whatever form exporters write it.
//!
//! Three parts are brought to a canonical form on their own: the *weights* between the softmax and the second product
//! (`weights.rs`: casts, reshapes, guards of rows without keys), the *scores* between the first product and the softmax
//! (`scores.rs`: factors, a cap, masks; `triangle.rs`: masks that are the flag `causal`), and the *operands* (`operands.rs`: factors, casts, transposes and reshapes of q, k
//! and v; `groups.rs`: heads of keys that were repeated). What has no exact form as the operator stays unfused.

mod groups;
mod operands;
pub mod parts;
mod scores;
mod triangle;
mod weights;

use super::view::View;
use super::{Rule, Writer};
use kiln_ir::{Attrs, DType, Dim, IrError, NodeId, ValueId};
use kiln_ops::attention::ATTENTION;
use kiln_ops::shape::squeeze::UNSQUEEZE;
use operands::{Heads, Operand};
use parts::{Product, product, reshape, shape_of};
use scores::Scores;

pub struct Attention {
    q: Operand,
    k: Operand,
    v: Operand,
    scores: Scores,
    scale: f64,
    softmax_f32: bool,
    zero_nan: bool,
    zero_empty: bool,
    /// Whether the flag of the operator stands for the mask.
    causal: bool,
    heads: Heads,
    /// The shape of the result, if it is not the operator's.
    shape: Option<Vec<i64>>,
    inside: Vec<NodeId>,
}

impl Rule for Attention {
    const NAME: &'static str = "attention";

    fn find(view: &View<'_>, root: NodeId) -> Option<Attention> {
        let node = view.g.get(root)?;
        let last = product(node, false).filter(|p| !p.trans_b)?;
        let y = *node.outputs.first()?;
        let mut inside = vec![root];
        let weights = weights::Weights::of(view, last.a, &mut inside)?;
        let scores = Scores::of(view, weights.scores, &mut inside)?;
        let (id, first) = view.g.producer(scores.product)?;
        let first = product(first, false)?;
        inside.push(id);
        let rank = |v: ValueId| view.g.ty(v).rank();
        let alike = |p: &Product, y: ValueId| rank(p.a) == rank(y) && rank(p.b) == rank(y);
        if !alike(&last, y) || !alike(&first, scores.product) {
            return None;
        }
        let kind = view.g.ty(last.b).dtype;
        let q = operands::Peeled::plain(view, first.a, kind, &mut inside);
        let k = operands::Peeled::keys(view, &first, kind, &mut inside)?;
        let v = operands::Peeled::bare(view, last.b);
        let levels = weights.levels.iter().chain(&scores.levels).copied();
        let heads = Heads::of(view, levels, &[&q, &v])?;
        let scale = scores.scale * q.factor * k.factor;
        let [q, k, v] = heads.operands(view, q, k, v)?;
        let own: Vec<Dim> =
            [&heads.lead[..], &[q.dims.get(heads.rank() - 2)?.clone(), v.dims.last()?.clone()]].concat();
        let shape = if view.dims(y) == own { None } else { Some(shape_of(&own, view.dims(y))?) };
        let found = Attention {
            softmax_f32: view.g.ty(scores.value).dtype == DType::F32 && q.dtype(view) != DType::F32,
            q,
            k,
            v,
            causal: triangle::is_causal(view, &scores),
            scores,
            scale,
            zero_nan: weights.zero_nan,
            zero_empty: weights.zero_empty,
            heads,
            shape,
            inside,
        };
        let fits = found.fits(view, weights.value, y);
        (scale.is_finite() && scale != 0.0 && fits).then_some(found)
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let q = self.q.write(&mut w)?;
        let k = self.k.write(&mut w)?;
        let v = self.v.write(&mut w)?;
        let dtype = w.g.ty(q).dtype;
        let mut attrs = Attrs::new().with("scale", self.scale);
        let hidden = self.scores.hidden().filter(|_| !self.causal);
        let flat = self.heads.rank() == 3;
        let mut mask = match self.causal {
            true => None,
            false => self.scores.mask(&mut w, dtype, &self.heads)?,
        };
        // Three dimensions are [batch, length, heads·size]; a mask of three then belongs to the batch, not to heads.
        if let Some(m) = mask.filter(|&m| flat && w.g.ty(m).rank() == 3) {
            let axes = w.ints(&[1])?;
            mask = Some(w.op(UNSQUEEZE, Attrs::new(), &[m, axes])?);
        }
        for (name, value) in [("softcap", self.scores.cap), ("hidden_score", hidden)] {
            if let Some(x) = value {
                attrs.set(name, x);
            }
        }
        for (name, yes) in [
            ("causal", self.causal),
            ("softmax_f32", self.softmax_f32),
            ("zero_nan", self.zero_nan),
            ("zero_empty", self.zero_empty),
        ] {
            if yes {
                attrs.set(name, true);
            }
        }
        if flat {
            attrs = attrs.with("q_heads", 1i64).with("kv_heads", 1i64);
        }
        let mut inputs = vec![Some(q), Some(k), Some(v)];
        inputs.extend(mask.map(Some));
        let mut y = w.node(ATTENTION, attrs, &inputs)?;
        if let Some(shape) = &self.shape {
            y = reshape(&mut w, y, shape)?;
        }
        Ok(w.replace(root, y))
    }
}

impl Attention {
    /// Whether types and dimensions mean the same to `attention` as to the products, which broadcast otherwise.
    fn fits(&self, view: &View<'_>, weights: ValueId, y: ValueId) -> bool {
        let (q, k, v) = (&self.q.dims, &self.k.dims, &self.v.dims);
        let (lead, rank) = (&self.heads.lead, self.heads.rank());
        let n = rank - 2;
        if [q.len(), k.len(), v.len()].iter().any(|&n| n != rank) {
            return false;
        }
        let dtype = self.q.dtype(view);
        let types = dtype.is_float()
            && self.k.dtype(view) == dtype
            && self.v.dtype(view) == dtype
            && view.g.ty(weights).dtype == dtype
            && view.g.ty(y).dtype == dtype;
        let batch = q[0] == k[0] && q[0] == v[0] && q[..n] == lead[..];
        // Keys and values of one head serve all heads, those of a group the heads that it was repeated for.
        let groups =
            n == 1 || (k[1] == v[1] && (k[1] == q[1] || k[1].is(1) || (self.k.grouped && self.v.grouped)));
        let lengths = k[n] == v[n] && q[n + 1] == k[n + 1];
        let scores: Vec<Dim> = [&lead[..], &[q[n].clone(), k[n].clone()]].concat();
        types && batch && groups && lengths && self.scores.mask_fits(view, &self.heads, &scores)
    }
}
