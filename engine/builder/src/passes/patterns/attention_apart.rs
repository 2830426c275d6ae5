//! Attention as two products and a softmax: its definition. It serves heads that are too long for the registers of a fused kernel, and
//! targets whose fused kernels keep scores in memory anyway.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_backend::Target;
use kiln_ir::{Attrs, DType, Dim, Elems, Graph, IrError, NodeId, Tensor, ValueId};
use kiln_ops::attention::ATTENTION;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::{ADD, DIV, MUL};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::pointwise::unary::TANH;
use kiln_ops::softmax::SOFTMAX;
use kiln_ops::transpose::TRANSPOSE;

/// Feature of targets whose fused kernels store scores.
const SCORES_IN_MEMORY: &str = "scores_in_memory";
/// Elements of a head up to which fused kernels have it in registers.
const SHORT: i64 = 128;
/// Most elements of the scores, which a fused kernel never stores.
const SCORES: i64 = 1 << 27;
/// Most pairs of a query and a key that a constant says of whether the query sees the key.
const PAIRS: i64 = 1 << 22;

pub struct AttentionApart {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    mask: Option<ValueId>,
    scale: f64,
    /// The bound of scores by tanh; 0 for none.
    softcap: f64,
    seen: Seen,
    softmax_f32: bool,
    sizes: Sizes,
}

/// The keys that a query sees by its position.
struct Seen {
    causal: bool,
    /// Keys before and after its own position; -1 for all.
    window: [i64; 2],
}

impl Seen {
    /// Whether queries see all keys.
    fn all(&self) -> bool {
        !self.causal && self.window == [-1, -1]
    }

    /// Whether each query sees each key, [queries, keys].
    fn table(&self, queries: i64, keys: i64) -> Option<Tensor> {
        let [left, right] = self.window;
        let sees = |i: i64, j: i64| {
            let hidden = self.causal && j > i || left >= 0 && i - j > left || right >= 0 && j - i > right;
            !hidden
        };
        let all = (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
        let shape = [usize::try_from(queries).ok()?, usize::try_from(keys).ok()?];
        Tensor::from_elems(DType::Bool, &shape, &Elems::I(all.map(|(i, j)| i64::from(sees(i, j))).collect()))
    }
}

/// Dimensions, all known.
struct Sizes {
    /// Whether operands are [batch, length, heads·size].
    flat: bool,
    batch: i64,
    q_heads: i64,
    kv_heads: i64,
    queries: i64,
    keys: i64,
    size: i64,
    v_size: i64,
}

impl Sizes {
    fn of(view: &View<'_>, q: ValueId, k: ValueId, v: ValueId, heads: [i64; 2]) -> Option<Sizes> {
        let known = |v: ValueId| view.dims(v).iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        let flat = view.g.ty(q).rank() == 3;
        let split = |v: ValueId, heads: i64| match (&known(v)?[..], heads) {
            (&[b, h, s, d], _) => Some([b, h, s, d]),
            (&[b, s, hidden], h) if h > 0 => Some([b, h, s, hidden / h]),
            _ => None,
        };
        let [batch, q_heads, queries, size] = split(q, heads[0])?;
        let [_, kv_heads, keys, _] = split(k, heads[1])?;
        let [_, _, _, v_size] = split(v, heads[1])?;
        let all = [batch, q_heads, kv_heads, queries, keys, size, v_size];
        let scores = [batch, q_heads, queries, keys].iter().try_fold(1i64, |n, &d| n.checked_mul(d))?;
        let fits = all.iter().all(|&n| n > 0) && scores <= SCORES && q_heads % kv_heads == 0;
        fits.then_some(Sizes { flat, batch, q_heads, kv_heads, queries, keys, size, v_size })
    }

    fn groups(&self) -> i64 {
        self.q_heads / self.kv_heads
    }
}

impl Rule for AttentionApart {
    const NAME: &'static str = "attention-by-products";
    // Scores go through memory.
    const ALWAYS: bool = false;

    fn wanted(target: &Target, g: &Graph, root: NodeId) -> bool {
        let view = View::new(g);
        let long = |a: AttentionApart| a.sizes.size.max(a.sizes.v_size) > SHORT;
        target.has(SCORES_IN_MEMORY) || AttentionApart::find(&view, root).is_some_and(long)
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<AttentionApart> {
        let node = view.g.get(root).filter(|n| n.op.is(ATTENTION))?;
        let a = node.op.attrs();
        let others = node.outputs.iter().skip(1).any(|&v| view.is_read(v));
        let flags = ["zero_nan", "zero_empty"].iter().any(|name| a.bool(name) != Ok(false));
        if others || flags || (4..node.inputs.len()).any(|i| input(node, i).is_some()) {
            return None;
        }
        let (q, k, v, mask) = (input(node, 0)?, input(node, 1)?, input(node, 2)?, input(node, 3));
        let alike = [k, v].iter().all(|&x| view.g.ty(x).dtype == view.g.ty(q).dtype);
        let sizes = Sizes::of(view, q, k, v, [a.int("q_heads").ok()?, a.int("kv_heads").ok()?])?;
        let hides = a.float("hidden_score").ok()? == f64::NEG_INFINITY;
        let masked = mask.is_none_or(|m| {
            let t = view.g.ty(m);
            let whole = t.dims.last().and_then(Dim::as_const) == Some(sizes.keys);
            (t.dtype.is_float() || t.dtype == DType::Bool && hides) && whole && t.rank() <= 4
        });
        let seen = Seen {
            causal: a.bool("causal").ok()?,
            window: [a.int("window_left").ok()?, a.int("window_right").ok()?],
        };
        let countable = seen.all() || sizes.queries.checked_mul(sizes.keys)? <= PAIRS;
        let softcap = a.float("softcap").ok()?;
        let scale = match a.float("scale").ok()? {
            0.0 => 1.0 / (sizes.size as f64).sqrt(),
            s => s,
        };
        let softmax_f32 =
            a.bool("softmax_f32").ok()? || mask.is_some_and(|m| view.g.ty(m).dtype == DType::F32);
        let found = AttentionApart { q, k, v, mask, scale, softcap, seen, softmax_f32, sizes };
        (alike && masked && countable).then_some(found)
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let s = &self.sizes;
        let dtype = w.g.ty(self.q).dtype;
        let scale = w.scalar(self.scale, dtype)?;
        // Queries are scaled in front of the product, as scores may leave the range of narrow types.
        let q = w.op(MUL, Attrs::new(), &[self.q, scale])?;
        let mut q = heads_first(&mut w, q, s.flat, [s.batch, s.queries, s.q_heads, s.size])?;
        let k = heads_first(&mut w, self.k, s.flat, [s.batch, s.keys, s.kv_heads, s.size])?;
        let v = heads_first(&mut w, self.v, s.flat, [s.batch, s.keys, s.kv_heads, s.v_size])?;
        if s.groups() > 1 {
            q = w.reshape(q, &[s.batch, s.kv_heads, s.groups() * s.queries, s.size])?;
        }
        let mut scores = w.op(MATMUL, Attrs::new().with("trans_b", true), &[q, k])?;
        let of_softmax = if self.softmax_f32 { DType::F32 } else { dtype };
        scores = w.in_type(scores, of_softmax)?;
        if self.softcap != 0.0 {
            let cap = w.scalar(self.softcap, of_softmax)?;
            let bounded = w.op(DIV, Attrs::new(), &[scores, cap])?;
            let bounded = w.op(TANH, Attrs::new(), &[bounded])?;
            scores = w.op(MUL, Attrs::new(), &[bounded, cap])?;
        }
        // Masks are of the heads of queries.
        let apart = s.groups() > 1 && (self.mask.is_some() || !self.seen.all());
        if apart {
            scores = w.reshape(scores, &[s.batch, s.q_heads, s.queries, s.keys])?;
        }
        if let Some(mask) = self.mask {
            scores = match w.g.ty(mask).dtype {
                DType::Bool => hidden(&mut w, mask, scores)?,
                _ => {
                    let mask = w.in_type(mask, of_softmax)?;
                    w.op(ADD, Attrs::new(), &[scores, mask])?
                }
            };
        }
        if !self.seen.all() {
            let table = self.seen.table(s.queries, s.keys);
            let table = table.ok_or_else(|| IrError::Structure("a mask could not be made".into()))?;
            let table = w.constant(table);
            scores = hidden(&mut w, table, scores)?;
        }
        if apart {
            scores = w.reshape(scores, &[s.batch, s.kv_heads, s.groups() * s.queries, s.keys])?;
        }
        let weights = w.op(SOFTMAX, Attrs::new().with("axis", -1i64), &[scores])?;
        let weights = w.in_type(weights, dtype)?;
        let mut y = w.op(MATMUL, Attrs::new(), &[weights, v])?;
        if s.groups() > 1 {
            y = w.reshape(y, &[s.batch, s.q_heads, s.queries, s.v_size])?;
        }
        if s.flat {
            if s.q_heads > 1 {
                y = w.op(TRANSPOSE, Attrs::new().with("perm", vec![0i64, 2, 1, 3]), &[y])?;
            }
            y = w.reshape(y, &[s.batch, s.queries, s.q_heads * s.v_size])?;
        }
        Ok(w.replace(root, y))
    }
}

/// Scores of keys that take part, and of the others that of none.
fn hidden(w: &mut Writer<'_>, part: ValueId, scores: ValueId) -> Result<ValueId, IrError> {
    let none = w.scalar(f64::NEG_INFINITY, w.g.ty(scores).dtype)?;
    w.op(SELECT, Attrs::new(), &[part, scores, none])
}

/// An operand as [batch, heads, length, size]; one head needs no transposition.
fn heads_first(w: &mut Writer<'_>, x: ValueId, flat: bool, of: [i64; 4]) -> Result<ValueId, IrError> {
    let [batch, length, heads, size] = of;
    match (flat, heads) {
        (false, _) => Ok(x),
        (true, 1) => w.reshape(x, &[batch, 1, length, size]),
        (true, _) => {
            let x = w.reshape(x, &[batch, length, heads, size])?;
            w.op(TRANSPOSE, Attrs::new().with("perm", vec![0i64, 2, 1, 3]), &[x])
        }
    }
}
