//! Attention with its projections, masks and caches.

mod cached;
mod mask;

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::contrib::attention::mask::Keys;
use crate::ops::contrib::{absent, unset, unwanted};
use crate::ops::matmul::integer::factors;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("com.microsoft.Attention", &[1], attention),
    Operator::new("com.microsoft.MultiHeadAttention", &[1], multi_head),
    Operator::new("com.microsoft.QAttention", &[1], quantized),
    Operator::new("com.microsoft.RotaryEmbedding", &[1], rotary),
];

/// Heads of queries, keys and values.
struct Heads {
    q: TensorId,
    k: TensorId,
    v: TensorId,
    /// Keys and values of before, [B, N, P, D].
    past: Option<[TensorId; 2]>,
    heads: i64,
}

/// Indices of the inputs that hold the masks.
struct Masks {
    padding: Option<TensorId>,
    bias: Option<TensorId>,
}

/// [B, S, N·D] as [B, N, S, D].
pub(crate) fn split_heads(cx: &mut Cx<'_>, x: TensorId, heads: i64) -> Result<TensorId, Refusal> {
    let width = cx.dim(x, 2).and_then(|d| d.as_const());
    let Some(size) = width.filter(|w| w % heads == 0).map(|w| w / heads) else {
        return unsupported(format!("{} for {heads} heads: its last dimension has to be known", cx.ty(x)));
    };
    let (lead, tail) = (cx.dims(x, 0..2)?, cx.i64s(&[heads, size])?);
    let shape = cx.join(&[lead, tail])?;
    let split = cx.reshape_to(x, shape)?;
    cx.transpose(split, vec![0, 2, 1, 3])
}

/// [B, N, S, D] as [B, S, N·D].
pub(crate) fn join_heads(cx: &mut Cx<'_>, x: TensorId) -> Result<TensorId, Refusal> {
    let x = cx.transpose(x, vec![0, 2, 1, 3])?;
    let sizes = [2, 3].map(|axis| cx.dim(x, axis).and_then(|d| d.as_const()));
    let [Some(heads), Some(size)] = sizes else {
        return unsupported(format!("heads of unknown size ({})", cx.ty(x)));
    };
    let (lead, tail) = (cx.dims(x, 0..2)?, cx.i64s(&[heads * size])?);
    let shape = cx.join(&[lead, tail])?;
    cx.reshape_to(x, shape)
}

fn heads_attr(cx: &Cx<'_>) -> Result<i64, Refusal> {
    let heads = cx.require_attr::<i64>("num_heads")?;
    match (1..=1 << 20).contains(&heads) {
        true => Ok(heads),
        false => Err(cx.bad_attr("num_heads", &format!("is {heads}: wanted 1 to 2^20"))),
    }
}

/// The output as [B, S, N·D], and all keys and values as [B, N, T, D].
fn attend(cx: &mut Cx<'_>, given: &Heads, masks: &Masks) -> Result<[TensorId; 3], Refusal> {
    let four = |cx: &mut Cx<'_>, x: TensorId| {
        if cx.rank(x) == 3 { split_heads(cx, x, given.heads) } else { Ok(x) }
    };
    let (q, k, v) = (four(cx, given.q)?, four(cx, given.k)?, four(cx, given.v)?);
    let mut length = cx.dims(k, 2..3)?;
    let mut past_length = cx.i64s(&[0])?;
    if let Some([past, _]) = given.past {
        past_length = cx.dims(past, 2..3)?;
        length = cx.bin("add", past_length, length)?;
    }
    let batch = cx.dim(q, 0).and_then(|d| d.as_const());
    let keys = Keys { batch, total: length, past: past_length };
    let to = cx.dtype(q);
    let mut mask = None;
    let filter = cx.float("mask_filter_value", -10000.0)?;
    if let Some(padding) = masks.padding {
        mask = Some(mask::padding(cx, padding, &keys, filter, to)?);
    }
    if let Some(bias) = masks.bias {
        mask = Some(match mask {
            Some(mask) => cx.bin("add", mask, bias)?,
            None => bias,
        });
    }
    let attrs =
        Attrs::new().with("scale", cx.float("scale", 0.0)?).with("causal", cx.flag("unidirectional", false)?);
    let (past_k, past_v) = given.past.map_or((None, None), |[k, v]| (Some(k), Some(v)));
    let outs = cx.layers("attention", attrs, &[Some(q), Some(k), Some(v), mask, past_k, past_v])?;
    let [y, keys, values, ..] = outs[..] else {
        return unsupported("attention without its outputs");
    };
    Ok([join_heads(cx, y)?, keys, values])
}

/// The parts of the last dimension of x.
fn cut(cx: &mut Cx<'_>, x: TensorId, sizes: &[i64]) -> Result<Vec<TensorId>, Refusal> {
    let last = cx.rank(x) as i64 - 1;
    let mut start = 0i64;
    let part = |size: &i64| {
        let from = start;
        start = start.saturating_add(*size);
        cx.slice(x, last, from, start)
    };
    sizes.iter().map(part).collect()
}

/// Queries, keys and values of a merged projection.
fn merged(cx: &mut Cx<'_>, all: TensorId) -> Result<[TensorId; 3], Refusal> {
    let Some(width) = cx.dim(all, 2).and_then(|d| d.as_const()) else {
        return unsupported("weights of unknown width");
    };
    let sizes = cx.ints("qkv_hidden_sizes")?.filter(|s| !s.is_empty());
    let sizes = sizes.unwrap_or_else(|| vec![width / 3; 3]);
    if sizes.len() != 3 || sizes.iter().any(|s| *s < 1) || sizes.iter().sum::<i64>() != width {
        let found = format!("is {sizes:?}: wanted three sizes of {width} in all");
        return Err(cx.bad_attr("qkv_hidden_sizes", &found));
    }
    match cut(cx, all, &sizes)?[..] {
        [q, k, v] => Ok([q, k, v]),
        _ => unsupported("a projection of other than three parts"),
    }
}

/// Keys or values of a cache [2, B, N, P, D].
fn half(cx: &mut Cx<'_>, cache: TensorId, i: i64) -> Result<TensorId, Refusal> {
    let part = cx.slice(cache, 0, i, i + 1)?;
    cx.squeeze(part, &[0])
}

/// Attention over a projection of all three; the second output stacks keys and values.
fn projected(cx: &mut Cx<'_>, all: TensorId, masks: &Masks, past: Option<TensorId>) -> Outs {
    unset(cx, "do_rotary")?;
    unset(cx, "past_present_share_buffer")?;
    if cx.int("rotary_embedding_dim", 0)? != 0 {
        return unsupported("attribute 'rotary_embedding_dim'");
    }
    let [q, k, v] = merged(cx, all)?;
    let past = match past {
        Some(cache) => Some([half(cx, cache, 0)?, half(cx, cache, 1)?]),
        None => None,
    };
    let [y, keys, values] = attend(cx, &Heads { q, k, v, past, heads: heads_attr(cx)? }, masks)?;
    if !cx.wants(1) {
        return Ok(vec![y]);
    }
    let (keys, values) = (cx.unsqueeze(keys, &[0])?, cx.unsqueeze(values, &[0])?);
    Ok(vec![y, cx.concat(&[keys, values], 0)?])
}

fn attention(cx: &mut Cx<'_>) -> Outs {
    absent(cx, 6, "past_sequence_length")?;
    let (x, weights) = (cx.input(0)?, cx.input(1)?);
    let mut all = cx.bin("matmul", x, weights)?;
    if let Some(bias) = cx.opt(2) {
        all = cx.bin("add", all, bias)?;
    }
    projected(cx, all, &Masks { padding: cx.opt(3), bias: cx.opt(5) }, cx.opt(4))
}

/// Attention with a quantized projection.
fn quantized(cx: &mut Cx<'_>) -> Outs {
    let (x, weights, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (a, b) = factors(cx, (x, cx.opt(6)), (weights, cx.opt(7)))?;
    let sums = cx.bin("matmul", a, b)?;
    let sums = cx.cast(sums, DType::F32)?;
    let (x_scale, w_scale) = (cx.input(3)?, cx.input(4)?);
    let scale = cx.bin("mul", x_scale, w_scale)?;
    let reals = cx.bin("mul", sums, scale)?;
    let all = cx.bin("add", reals, bias)?;
    projected(cx, all, &Masks { padding: cx.opt(5), bias: None }, cx.opt(8))
}

/// One of the parts that are stacked along axis 3 of [B, S, N, parts, D], as [B, N, S, D].
fn unpacked(cx: &mut Cx<'_>, x: TensorId, i: i64) -> Result<TensorId, Refusal> {
    let part = cx.slice(x, 3, i, i + 1)?;
    let part = cx.squeeze(part, &[3])?;
    cx.transpose(part, vec![0, 2, 1, 3])
}

/// Queries, keys and values in any of their packings; keys and values of four dimensions are [B, N, L, D] already.
fn operands(cx: &mut Cx<'_>, heads: i64) -> Result<[TensorId; 3], Refusal> {
    let query = cx.input(0)?;
    Ok(match (cx.opt(1), cx.opt(2)) {
        (None, None) if cx.rank(query) == 5 => {
            [unpacked(cx, query, 0)?, unpacked(cx, query, 1)?, unpacked(cx, query, 2)?]
        }
        (Some(key), None) if cx.rank(key) == 5 => {
            [split_heads(cx, query, heads)?, unpacked(cx, key, 0)?, unpacked(cx, key, 1)?]
        }
        (Some(key), Some(value)) => {
            let four = |cx: &mut Cx<'_>, x: TensorId| {
                if cx.rank(x) == 3 { split_heads(cx, x, heads) } else { Ok(x) }
            };
            [four(cx, query)?, four(cx, key)?, four(cx, value)?]
        }
        _ => return unsupported("this combination of query, key and value"),
    })
}

fn multi_head(cx: &mut Cx<'_>) -> Outs {
    absent(cx, 8, "past_sequence_length")?;
    absent(cx, 9, "cache_indirection")?;
    unwanted(cx, 3, "qk")?;
    let heads = heads_attr(cx)?;
    let ready = cx.opt(1).is_some_and(|key| cx.rank(key) == 4);
    let [mut q, mut k, mut v] = operands(cx, heads)?;
    if let Some(bias) = cx.opt(3) {
        let size = |cx: &Cx<'_>, x: TensorId| {
            let size = cx.dim(x, 3).and_then(|d| d.as_const());
            size.map(|d| d * heads).ok_or_else(|| Refusal::Unsupported("heads of unknown size".into()))
        };
        let sizes = [size(cx, q)?, size(cx, k)?, size(cx, v)?];
        let parts = cut(cx, bias, &sizes)?;
        let added = |cx: &mut Cx<'_>, x: TensorId, i: usize| {
            let part = cx.reshape(parts[i], &[1, heads, 1, sizes[i] / heads])?;
            cx.bin("add", x, part)
        };
        q = added(cx, q, 0)?;
        // Keys and values of a cache have their bias.
        if !ready {
            k = added(cx, k, 1)?;
            v = added(cx, v, 2)?;
        }
    }
    let past = match (cx.opt(6), cx.opt(7)) {
        (Some(k), Some(v)) => Some([k, v]),
        (None, None) => None,
        _ => return unsupported("one of past_key and past_value without the other"),
    };
    let masks = Masks { padding: cx.opt(4), bias: cx.opt(5) };
    Ok(attend(cx, &Heads { q, k, v, past, heads }, &masks)?.to_vec())
}

/// Positions [1] are where the first token is.
fn rotary(cx: &mut Cx<'_>) -> Outs {
    unset(cx, "is_packed_batching")?;
    let scale = cx.float("scale", 1.0)?;
    if scale != 1.0 {
        return unsupported(format!("attribute 'scale' = {scale}"));
    }
    let (x, mut ids) = (cx.input(0)?, cx.input(1)?);
    let (cos, sin) = (cx.input(2)?, cx.input(3)?);
    let rotary = cx.int("rotary_embedding_dim", 0)?;
    let mut heads = cx.int("num_heads", 0)?;
    if heads == 0 && cx.rank(x) == 3 {
        let sizes = [cx.dim(x, 2), cx.dim(cos, 1)].map(|d| d.and_then(|d| d.as_const()));
        let [Some(width), Some(half)] = sizes else {
            return unsupported("heads of unknown size");
        };
        heads = width / (2 * half).max(1);
    }
    let length_axis = if cx.rank(x) == 4 { 2 } else { 1 };
    if cx.rank(ids) == 1 {
        let (batch, length) = (cx.dims(x, 0..1)?, cx.dims(x, length_axis..length_axis + 1)?);
        let steps = mask::count(cx, length)?;
        let first = cx.cast(ids, DType::I64)?;
        let row = cx.bin("add", first, steps)?;
        let shape = cx.join(&[batch, length])?;
        ids = cx.bin("expand", row, shape)?;
    }
    let attrs = Attrs::new()
        .with("interleaved", cx.flag("interleaved", false)?)
        .with("num_heads", if cx.rank(x) == 3 { heads } else { 0 })
        .with("rotary_dim", rotary);
    Ok(vec![cx.layer("rotary_embedding", attrs, &[Some(x), Some(cos), Some(sin), Some(ids)])?])
}
