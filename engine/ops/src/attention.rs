//! `attention`: scaled dot-product attention with masks, grouped heads and a cache that grows.

pub mod kv_cache;
pub mod linear;
pub mod rotary;

mod eval;
mod problems;

use crate::util::{PLAIN, REAL, is_real};
use kiln_ir::attr::Attr;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::{Fact, InferCx, differ, unify};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::ty::{TensorType, dims_text};
use kiln_ir::work::Shapes;

kiln_ir::op_names! {
    ATTENTION = "attention",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: ATTENTION,
    doc: "y = softmax(cap(scale·Q·Kᵀ) + bias)·V for every head. Inputs are q [B, Hq, Sq, D], k [B, Hk, Sk, D] and v \
          [B, Hk, Sk, Dv], or all 3-D, [B, S, H·D], with `q_heads` and `kv_heads` given (0 for 4-D inputs). Hq is a \
          multiple of Hk: query head h reads key head h·Hk/Hq. past_key [B, Hk, P, D] and past_value [B, Hk, P, Dv] go \
          before k and v; T = P + Sk keys in all. The mask broadcasts to [B, Hq, Sq, T]: bool (true takes part) or \
          float (added, in the type of q or f32); its last dimension never stretches, keys beyond it take no part. nonpad_kv_seqlen [B]: keys from \
          there on take no part. Query i has the position p = i + P, or i + nonpad_kv_seqlen − Sq where that is given. \
          `causal`: it sees keys up to p; `window_left` and `window_right`, unless −1: keys from p − window_left on, and up to \
          p + window_right. The score of a key that takes no part is −∞, whatever its product; a row without any key \
          gives NaN, or zeros with `zero_empty`; `zero_nan` takes all probabilities that are NaN as 0. \
          With `hidden_score` the score of a key that a bool mask hides is this number in place of −∞. cap(s) = \
          softcap·tanh(s/softcap), none for 0. `scale` 0 means 1/√D. Outputs: y in the layout of q, present_key \
          [B, Hk, T, D], present_value [B, Hk, T, Dv], and qk [B, Hq, Sq, T] after the product (`qk_output` 0), the cap (1), \
          the bias (2) or the softmax (3). `softmax_f32` asks for a softmax in f32 where inputs are narrower.",
    inputs: &[
        input("q"),
        input("k"),
        input("v"),
        optional("mask"),
        optional("past_key"),
        optional("past_value"),
        optional("nonpad_kv_seqlen"),
    ],
    outputs: &["y", "present_key", "present_value", "qk"],
    attrs: &[
        attr("q_heads", || Attr::Int(0)),
        attr("kv_heads", || Attr::Int(0)),
        attr("scale", || Attr::Float(0.0)),
        attr("causal", || Attr::Bool(false)),
        attr("softcap", || Attr::Float(0.0)),
        attr("qk_output", || Attr::Int(0)),
        attr("softmax_f32", || Attr::Bool(false)),
        attr("zero_nan", || Attr::Bool(false)),
        attr("zero_empty", || Attr::Bool(false)),
        attr("hidden_score", || Attr::Float(f64::NEG_INFINITY)),
        attr("window_left", || Attr::Int(-1)),
        attr("window_right", || Attr::Int(-1)),
    ],
    infer,
    eval: eval::eval,
    tolerance: Tolerance::Narrow,
    problems: problems::problems,
    traits: Traits::heavy(scores),
    roles: Roles { absorbs_pointwise: true, reads_through_movement: true, ..Roles::NONE },
    ..PLAIN
}];

/// Products of queries with keys, and of probabilities with values: each key is as deep as a head of the query.
fn scores(s: &Shapes<'_>) -> u64 {
    let past = if s.dims(PAST_KEY).is_empty() { 0 } else { s.from_last(PAST_KEY, 1) };
    let keys = s.from_last(1, 1).saturating_add(past);
    s.volume(0).saturating_add(s.made(0)).saturating_mul(keys)
}

const MASK: usize = 3;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
const NONPAD: usize = 6;

/// Dimensions of the computation.
struct Sizes {
    batch: Dim,
    q_heads: Dim,
    kv_heads: Dim,
    q_len: Dim,
    total: Dim,
    size: Dim,
    v_size: Dim,
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, is_real, REAL)?;
    cx.same_dtype(0, 1)?;
    let v_dtype = cx.check_dtype(2, is_real, REAL)?;
    let mode = cx.attrs.int("qk_output")?;
    if !(0..=3).contains(&mode) {
        let found = mode.to_string();
        return Err(OpError::Attr { name: "qk_output".into(), found, wanted: "0, 1, 2 or 3".into() });
    }
    for name in ["window_left", "window_right"] {
        let window = cx.attrs.int(name)?;
        if window < -1 {
            let wanted = "-1 (no bound), or 0 and more".into();
            return Err(OpError::Attr { name: name.into(), found: window.to_string(), wanted });
        }
    }
    let s = sizes(cx)?;
    check_mask(cx, &s, dtype)?;
    if cx.has(NONPAD) {
        cx.check_dtype(NONPAD, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        let wanted = format!("[{}], one length for each batch entry", s.batch);
        cx.check_shape(NONPAD, |d| d.len() == 1 && !differ(&d[0], &s.batch), &wanted)?;
        if cx.has(PAST_KEY) {
            return Err(OpError::Unsupported(
                "nonpad_kv_seqlen together with past_key: give one of them".into(),
            ));
        }
    }
    let y = match cx.dims(0)?.len() {
        3 => vec![s.batch.clone(), s.q_len.clone(), s.q_heads.clone() * s.v_size.clone()],
        _ => vec![s.batch.clone(), s.q_heads.clone(), s.q_len.clone(), s.v_size.clone()],
    };
    let present = |size: &Dim| vec![s.batch.clone(), s.kv_heads.clone(), s.total.clone(), size.clone()];
    let qk = vec![s.batch.clone(), s.q_heads.clone(), s.q_len.clone(), s.total.clone()];
    let fact = |dtype, dims| Fact::of(TensorType { dtype, dims });
    Ok(vec![
        fact(dtype, y),
        fact(dtype, present(&s.size)),
        fact(v_dtype, present(&s.v_size)),
        fact(dtype, qk),
    ])
}

/// An input as [batch, heads, length, size], whatever its layout.
fn heads_first(cx: &InferCx<'_>, i: usize, heads: &str) -> Result<[Dim; 4], OpError> {
    match cx.dims(i)? {
        [b, h, s, d] => Ok([b, h, s, d].map(Dim::clone)),
        [b, s, hidden] => {
            let n = cx.attrs.int(heads)?;
            if n <= 0 {
                let wanted = "positive, as the inputs are 3-D".into();
                return Err(OpError::Attr { name: heads.into(), found: n.to_string(), wanted });
            }
            let n = Dim::new(n);
            if differ(&hidden.modulo(&n), &Dim::new(0)) {
                return Err(cx.bad_shape(i, &format!("a last dimension that is a multiple of {heads} ({n})")));
            }
            Ok([b.clone(), n.clone(), s.clone(), hidden.floor_div(&n)])
        }
        _ => Err(cx.bad_shape(i, "3 or 4 dimensions")),
    }
}

fn sizes(cx: &InferCx<'_>) -> Result<Sizes, OpError> {
    let rank = cx.dims(0)?.len();
    for i in [1, 2] {
        cx.check_shape(i, |d| d.len() == rank, &format!("{rank} dimensions, as q has"))?;
    }
    let q = heads_first(cx, 0, "q_heads")?;
    let k = heads_first(cx, 1, "kv_heads")?;
    let v = heads_first(cx, 2, "kv_heads")?;
    let join = |i: usize, a: &Dim, b: &Dim, what: &str| {
        unify(a, b).ok_or_else(|| cx.bad_shape(i, &format!("{what} of {a}, not {b}")))
    };
    let batch = join(2, &join(1, &q[0], &k[0], "a batch")?, &v[0], "a batch")?;
    let kv_heads = join(2, &k[1], &v[1], "as many heads as k: heads")?;
    let size = join(1, &q[3], &k[3], "a head size")?;
    let kv_len = join(2, &k[2], &v[2], "as many keys as k: a length")?;
    if differ(&q[1].modulo(&kv_heads), &Dim::new(0)) || (kv_heads.is(0) && !q[1].is(0)) {
        return Err(cx.bad_shape(1, &format!("a number of heads that divides {}, that of q", q[1])));
    }
    let past = past(cx, &[&batch, &kv_heads, &size, &v[3]])?;
    let [_, q_heads, q_len, _] = q;
    let [_, _, _, v_size] = v;
    Ok(Sizes { batch, q_heads, kv_heads, q_len, total: past + kv_len, size, v_size })
}

/// The length of the cache; `of` is batch, heads, key size and value size.
fn past(cx: &InferCx<'_>, of: &[&Dim; 4]) -> Result<Dim, OpError> {
    if !cx.has(PAST_KEY) && !cx.has(PAST_VALUE) {
        return Ok(Dim::new(0));
    }
    for (i, like, size) in [(PAST_KEY, 1, of[2]), (PAST_VALUE, 2, of[3])] {
        cx.ty(i)?;
        cx.same_dtype(like, i)?;
        let wanted = format!("[{},{},past length,{size}]", of[0], of[1]);
        let fits = |d: &[Dim]| {
            d.len() == 4 && !differ(&d[0], of[0]) && !differ(&d[1], of[1]) && !differ(&d[3], size)
        };
        cx.check_shape(i, fits, &wanted)?;
    }
    let (k, v) = (&cx.dims(PAST_KEY)?[2], &cx.dims(PAST_VALUE)?[2]);
    unify(k, v).ok_or_else(|| cx.bad_shape(PAST_VALUE, &format!("a past length of {k}, that of past_key")))
}

fn check_mask(cx: &InferCx<'_>, s: &Sizes, dtype: DType) -> Result<(), OpError> {
    let hidden = cx.attrs.float("hidden_score")?;
    let chooses = cx.has(MASK) && cx.ty(MASK)?.dtype == DType::Bool;
    if hidden != f64::NEG_INFINITY && !((hidden as f32).is_finite() && chooses) {
        let wanted = "-inf, or a number within f32 together with a bool mask".into();
        return Err(OpError::Attr { name: "hidden_score".into(), found: hidden.to_string(), wanted });
    }
    if !cx.has(MASK) {
        return Ok(());
    }
    let fits = |d| d == DType::Bool || d == DType::F32 || d == dtype;
    cx.check_dtype(MASK, fits, &format!("bool, f32 or {dtype}, as q is"))?;
    let to = [s.batch.clone(), s.q_heads.clone(), s.q_len.clone(), s.total.clone()];
    let fits = |d: &[Dim]| match d {
        [lead @ .., last] if lead.len() <= 3 => {
            let longer = matches!((last.as_const(), s.total.as_const()), (Some(l), Some(t)) if l > t);
            !longer && lead.iter().rev().zip(to[..3].iter().rev()).all(|(a, b)| a.is(1) || !differ(a, b))
        }
        _ => false,
    };
    let wanted = format!("a shape that broadcasts to [{}], or one with fewer keys", dims_text(&to));
    cx.check_shape(MASK, fits, &wanted)
}
