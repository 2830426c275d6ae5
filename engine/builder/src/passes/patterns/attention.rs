//! Scaled dot-product attention out of two products and a softmax, perhaps with a guard that makes NaN rows zero.

use super::matmul_flags::swaps_last;
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, DType, Dim, Graph, IrError, Node, NodeId, ValueId};

/// A number in the place of scores that leaves nothing of them, in f64 as in f32.
const HIDES: f64 = -1e30;

pub struct Attention {
    q: ValueId,
    /// Keys as [.., keys, size], after this transpose.
    k: ValueId,
    k_perm: Option<Vec<usize>>,
    v: ValueId,
    mask: Option<Mask>,
    scale: f64,
    zero_nan: bool,
    rank: usize,
    inside: Vec<NodeId>,
}

#[derive(Clone, Copy)]
enum Mask {
    /// Added to the scores.
    Added(ValueId),
    /// A choice between the scores (where `cond` is `keep`) and a number that leaves nothing of them; `number` is absent
    /// if that is −∞.
    Chosen { cond: ValueId, keep: bool, number: Option<ValueId> },
}

impl Mask {
    fn value(self) -> ValueId {
        match self {
            Mask::Added(v) | Mask::Chosen { cond: v, .. } => v,
        }
    }

    /// The mask as `attention` takes it.
    fn write(self, w: &mut Writer<'_>, dtype: DType) -> Result<ValueId, IrError> {
        match self {
            Mask::Added(v) | Mask::Chosen { cond: v, keep: true, number: None } => Ok(v),
            Mask::Chosen { cond, number: None, .. } => w.op("not", Attrs::new(), &[cond]),
            Mask::Chosen { cond, keep, number: Some(number) } => {
                let zero = w.scalar(0.0, dtype)?;
                let (yes, no) = if keep { (zero, number) } else { (number, zero) };
                w.op("select", Attrs::new(), &[cond, yes, no])
            }
        }
    }
}

impl Rule for Attention {
    const NAME: &'static str = "attention";

    fn find(view: &View<'_>, root: NodeId) -> Option<Attention> {
        let last = view.g.get(root).and_then(|n| product(n, false))?;
        let mut inside = vec![root];
        let (zero_nan, weights) = guarded(view, last.a, &mut inside);
        let (id, softmax) = view.made_by(weights, "softmax")?;
        let rank = view.g.ty(weights).rank();
        let axis = softmax.op.attrs().int("axis").ok()?;
        if last.trans_b || !(axis == -1 || axis == rank as i64 - 1) || !(rank == 3 || rank == 4) {
            return None;
        }
        inside.push(id);
        let (mask, scores) = masked(view, input(softmax, 0)?, &mut inside)?;
        let (after, qk) = peel(view, scores, &mut inside);
        let (id, first) = view.g.producer(qk)?;
        let first = product(first, false)?;
        inside.push(id);
        let (before_q, q) = peel(view, first.a, &mut inside);
        let (k, k_perm, before_k) = keys(view, &first, &mut inside)?;
        let scale = after * before_q * before_k;
        let found = Attention { q, k, k_perm, v: last.b, mask, scale, zero_nan, rank, inside };
        (scale.is_finite() && scale != 0.0 && found.fits(view.g, qk)).then_some(found)
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let k = match &self.k_perm {
            Some(perm) => w.transpose(self.k, perm)?,
            None => self.k,
        };
        let dtype = w.g.ty(self.q).dtype;
        let mask = match self.mask {
            Some(m) => Some(m.write(&mut w, dtype)?),
            None => None,
        };
        // Three dimensions are [batch, length, heads·size]; a mask of three then belongs to the batch, not to heads.
        let mask = match mask {
            Some(m) if self.rank == 3 && w.g.ty(m).rank() == 3 => {
                let axes = w.ints(&[1])?;
                Some(w.op("unsqueeze", Attrs::new(), &[m, axes])?)
            }
            m => m,
        };
        let mut attrs = Attrs::new().with("scale", self.scale);
        if self.zero_nan {
            attrs = attrs.with("zero_nan", true);
        }
        if self.rank == 3 {
            attrs = attrs.with("q_heads", 1i64).with("kv_heads", 1i64);
        }
        let mut inputs = vec![Some(self.q), Some(k), Some(self.v)];
        inputs.extend(mask.map(Some));
        let y = w.node("attention", attrs, &inputs)?;
        Ok(w.replace(root, y))
    }
}

impl Attention {
    /// Do types and dimensions say the same to `attention` as to the products, which broadcast otherwise?
    fn fits(&self, g: &Graph, scores: ValueId) -> bool {
        let key_dims: Vec<Dim> = match &self.k_perm {
            Some(p) => p.iter().map(|&i| g.ty(self.k).dims[i].clone()).collect(),
            None => g.ty(self.k).dims.clone(),
        };
        let (q, v, all) = (&g.ty(self.q).dims, &g.ty(self.v).dims, &g.ty(scores).dims);
        if [q.len(), key_dims.len(), v.len(), all.len()].iter().any(|&n| n != self.rank) {
            return false;
        }
        let dtype = g.ty(self.q).dtype;
        let types = dtype.is_float() && g.ty(self.k).dtype == dtype && g.ty(self.v).dtype == dtype;
        let batch = self.rank - 2;
        let equal = |a: &[Dim], b: &[Dim]| a[..batch] == b[..batch];
        // Keys and values of one head serve all heads.
        let one_head =
            batch == 2 && q[0] == key_dims[0] && q[0] == v[0] && key_dims[1] == v[1] && key_dims[1].is(1);
        let shared = one_head || (equal(q, &key_dims) && equal(q, v));
        let lengths = key_dims[batch] == v[batch] && q[batch + 1] == key_dims[batch + 1];
        types && shared && lengths && self.mask_fits(g, all)
    }

    fn mask_fits(&self, g: &Graph, scores: &[Dim]) -> bool {
        let Some(mask) = self.mask else { return true };
        let dims = &g.ty(mask.value()).dims;
        let small = match mask {
            Mask::Chosen { number: Some(n), .. } => g.ty(n).rank() <= dims.len(),
            _ => true,
        };
        small && broadcasts(dims, scores)
    }
}

/// Does a mask stretch to the scores in all dimensions but the last, which must be theirs?
fn broadcasts(mask: &[Dim], scores: &[Dim]) -> bool {
    let Some(lead) = scores.len().checked_sub(mask.len()) else { return false };
    let pairs = || mask.iter().zip(&scores[lead..]);
    !mask.is_empty()
        && pairs().all(|(m, s)| m.is(1) || m == s)
        && pairs().next_back().is_some_and(|(m, s)| m == s)
}

pub struct Product {
    pub a: ValueId,
    pub b: ValueId,
    pub trans_b: bool,
}

/// A matrix product whose first operand is transposed as given.
pub fn product(n: &Node, trans_a: bool) -> Option<Product> {
    let attrs = n.op.attrs();
    let own = n.op.is("matmul") && attrs.bool("trans_a").ok()? == trans_a;
    own.then_some(Product { a: input(n, 0)?, b: input(n, 1)?, trans_b: attrs.bool("trans_b").ok()? })
}

/// Probabilities without the guard that puts 0 for NaN; whether there was one.
fn guarded(view: &View<'_>, p: ValueId, inside: &mut Vec<NodeId>) -> (bool, ValueId) {
    let guard = || {
        let (id, n) = view.made_by(p, "select")?;
        let (cond, zero, own) = (input(n, 0)?, input(n, 1)?, input(n, 2)?);
        let (test, isnan) = view.made_by(cond, "isnan")?;
        let fits = input(isnan, 0)? == own && view.scalar(zero) == Some(0.0);
        (fits && view.g.ty(own).dims == view.g.ty(p).dims).then_some(([id, test], own))
    };
    match guard() {
        Some((nodes, own)) => {
            inside.extend(nodes);
            (true, own)
        }
        None => (false, p),
    }
}

/// Scores with what is added to them or hides them.
fn masked(view: &View<'_>, s: ValueId, inside: &mut Vec<NodeId>) -> Option<(Option<Mask>, ValueId)> {
    let (id, node) = view.g.producer(s)?;
    let of_scores = |v: ValueId| is_scores(view, v);
    match node.op.name() {
        "add" => {
            let (a, b) = (input(node, 0)?, input(node, 1)?);
            let (scores, mask) = if of_scores(a) { (a, b) } else { (b, a) };
            inside.push(id);
            Some((Some(Mask::Added(mask)), scores))
        }
        "select" => {
            let (cond, a, b) = (input(node, 0)?, input(node, 1)?, input(node, 2)?);
            let keep = of_scores(a);
            let (scores, number) = if keep { (a, b) } else { (b, a) };
            inside.push(id);
            let number = match view.scalar(number)? {
                f64::NEG_INFINITY => None,
                x if x <= HIDES => Some(number),
                _ => return None,
            };
            Some((Some(Mask::Chosen { cond, keep, number }), scores))
        }
        _ => Some((None, s)),
    }
}

/// Is it a product, perhaps scaled?
fn is_scores(view: &View<'_>, v: ValueId) -> bool {
    let (_, v) = peel(view, v, &mut Vec::new());
    view.made_by(v, "matmul").is_some()
}

/// Takes a constant factor off a value that is read once: the factor, and what is scaled.
fn peel(view: &View<'_>, v: ValueId, inside: &mut Vec<NodeId>) -> (f64, ValueId) {
    let scaled = || {
        let (id, n) = view.g.producer(v).filter(|_| view.read_once(v))?;
        let (a, b) = (input(n, 0)?, input(n, 1)?);
        let (factor, x) = match n.op.name() {
            "mul" => match view.scalar(b) {
                Some(s) => (s, a),
                None => (view.scalar(a)?, b),
            },
            "div" => (1.0 / view.scalar(b)?, a),
            _ => return None,
        };
        (view.g.ty(x).rank() == view.g.ty(v).rank()).then_some((id, factor, x))
    };
    match scaled() {
        Some((id, factor, x)) => {
            inside.push(id);
            (factor, x)
        }
        None => (1.0, v),
    }
}

/// Keys as [.., keys, size]: a value with the transpose that it needs, and a factor of it.
fn keys(
    view: &View<'_>,
    p: &Product,
    inside: &mut Vec<NodeId>,
) -> Option<(ValueId, Option<Vec<usize>>, f64)> {
    let (factor, kt) = peel(view, p.b, inside);
    if p.trans_b {
        return Some((kt, None, factor));
    }
    let (_, t) = view.made_by(kt, "transpose")?;
    let (perm, x) = (view.perm(t)?, input(t, 0)?);
    // Scaled before the transpose, perhaps.
    let (more, x) = if view.read_once(kt) { peel(view, x, inside) } else { (1.0, x) };
    let n = perm.len().checked_sub(2)?;
    let mut perm_of_keys = perm.clone();
    perm_of_keys.swap(n, n + 1);
    let none = swaps_last(&perm);
    Some((x, (!none).then_some(perm_of_keys), factor * more))
}
