//! GroupQueryAttention: causal attention with a cache whose entries may be filled to different lengths.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::contrib::attention::mask::count;
use crate::ops::contrib::attention::{join_heads, split_heads};
use crate::ops::contrib::{absent, unset, unwanted};

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[Operator::new("com.microsoft.GroupQueryAttention", &[1], group_query)];

/// Positions of new tokens, and lengths.
struct Places {
    /// Tokens in the cache, [B, 1].
    past: TensorId,
    /// Positions of new tokens, [B, S].
    ids: TensorId,
    /// Keys after this step, the longest entry's, as a 1-D tensor of one element.
    total: TensorId,
}

/// The entry's tokens are seqlens_k + 1 in all; a prompt (as many new tokens as there are in all) begins at 0.
fn places(cx: &mut Cx<'_>, new: TensorId) -> Result<Places, Refusal> {
    let (lengths, total) = (cx.input(5)?, cx.input(6)?);
    let (lengths, total) = (cx.cast(lengths, DType::I64)?, cx.cast(total, DType::I64)?);
    let total = cx.reshape(total, &[1])?;
    let lengths = cx.reshape(lengths, &[-1, 1])?;
    let fresh = cx.dims(new, 2..3)?;
    let all = cx.bin_num("add", lengths, 1.0)?;
    let before = cx.bin("sub", all, fresh)?;
    let prompt = cx.bin("equal", total, fresh)?;
    let zero = cx.i64s(&[0])?;
    let past = cx.layer("select", Attrs::new(), &[Some(prompt), Some(zero), Some(before)])?;
    let steps = count(cx, fresh)?;
    let ids = cx.bin("add", past, steps)?;
    Ok(Places { past, ids, total })
}

/// The cache with new rows after the old ones of each entry, then zeros: [B, N, max(P, total), D].
fn present(cx: &mut Cx<'_>, past: Option<TensorId>, new: TensorId, at: &Places) -> Result<TensorId, Refusal> {
    let Some(past) = past else { return Ok(new) };
    let capacity = cx.dims(past, 2..3)?;
    let length = cx.bin("max", capacity, at.total)?;
    let place = count(cx, length)?;
    // Row j is row j of the cache, or row j − past of what is new, which is stored after the cache.
    let old = cx.bin("less", place, at.past)?;
    let since = cx.bin("sub", place, at.past)?;
    let fresh = cx.dims(new, 2..3)?;
    let last = cx.bin_num("sub", fresh, 1.0)?;
    let within = cx.bin("min", since, last)?;
    let moved = cx.bin("add", within, capacity)?;
    let index = cx.layer("select", Attrs::new(), &[Some(old), Some(place), Some(moved)])?;
    let both = cx.concat(&[past, new], 2)?;
    let rows = [Some(both), Some(index)];
    let rows = cx.layer("gather", Attrs::new().with("axis", 2).with("batch_dims", 1), &rows)?;
    let filled = cx.bin("less_equal", since, last)?;
    let filled = cx.unsqueeze(filled, &[1, 3])?;
    let zero = cx.num_like(rows, 0.0)?;
    cx.layer("select", Attrs::new(), &[Some(filled), Some(rows), Some(zero)])
}

/// Mask of the keys that each query sees, [B, 1, S, T]: its own, and as many before it as the window has.
fn visible(cx: &mut Cx<'_>, keys: TensorId, at: &Places) -> Result<TensorId, Refusal> {
    let length = cx.dims(keys, 2..3)?;
    let place = count(cx, length)?;
    let own = cx.unsqueeze(at.ids, &[1, 3])?;
    let causal = cx.bin("less_equal", place, own)?;
    let window = cx.int("local_window_size", -1)?;
    if window < 0 {
        return Ok(causal);
    }
    let width = cx.i64(window)?;
    let first = cx.bin("sub", own, width)?;
    let near = cx.bin("greater_equal", place, first)?;
    cx.bin("and", causal, near)
}

/// Queries, keys and values as [B, N, S, D]; they may be packed along the last dimension.
fn operands(cx: &mut Cx<'_>, heads: i64, groups: i64) -> Result<[TensorId; 3], Refusal> {
    let query = cx.input(0)?;
    if let (Some(key), Some(value)) = (cx.opt(1), cx.opt(2)) {
        return Ok([
            split_heads(cx, query, heads)?,
            split_heads(cx, key, groups)?,
            split_heads(cx, value, groups)?,
        ]);
    }
    if cx.opt(1).is_some() || cx.opt(2).is_some() {
        return unsupported("one of key and value without the other");
    }
    let all = split_heads(cx, query, heads + 2 * groups)?;
    let ends = [0, heads, heads + groups, heads + 2 * groups];
    Ok([
        cx.slice(all, 1, ends[0], ends[1])?,
        cx.slice(all, 1, ends[1], ends[2])?,
        cx.slice(all, 1, ends[2], ends[3])?,
    ])
}

fn rotated(cx: &mut Cx<'_>, x: TensorId, at: &Places, interleaved: bool) -> Result<TensorId, Refusal> {
    let attrs = Attrs::new().with("interleaved", interleaved);
    let (cos, sin) = (cx.input(7)?, cx.input(8)?);
    let rotary = cx.dim(cos, 1).and_then(|d| d.as_const());
    let Some(rotary) = rotary else { return unsupported("a rotary cache of unknown width") };
    let attrs = attrs.with("rotary_dim", rotary * 2);
    cx.layer("rotary_embedding", attrs, &[Some(x), Some(cos), Some(sin), Some(at.ids)])
}

fn group_query(cx: &mut Cx<'_>) -> Outs {
    absent(cx, 9, "position_ids")?;
    absent(cx, 11, "head_sink")?;
    unset(cx, "qk_output")?;
    unset(cx, "kv_cache_bit_width")?;
    for name in ["k_quant_type", "v_quant_type"] {
        let found = cx.text(name, "NONE")?;
        if found != "NONE" {
            return unsupported(format!("attribute '{name}' = {found}"));
        }
    }
    unwanted(cx, 3, "output_qk")?;
    if cx.int("smooth_softmax", -1)? > 0 {
        return unsupported("attribute 'smooth_softmax'");
    }
    let number = |name: &str| {
        let found = cx.require_attr::<i64>(name)?;
        match (1..=1 << 20).contains(&found) {
            true => Ok(found),
            false => Err(cx.bad_attr(name, &format!("is {found}: wanted 1 to 2^20"))),
        }
    };
    let (heads, groups) = (number("num_heads")?, number("kv_num_heads")?);
    let [mut q, mut k, v] = operands(cx, heads, groups)?;
    let at = places(cx, k)?;
    let interleaved = cx.flag("rotary_interleaved", false)?;
    if cx.flag("do_rotary", false)? {
        q = rotated(cx, q, &at, interleaved)?;
        k = rotated(cx, k, &at, interleaved)?;
    }
    let (keys, values) = (present(cx, cx.opt(3), k, &at)?, present(cx, cx.opt(4), v, &at)?);
    let seen = visible(cx, keys, &at)?;
    let mask = match cx.opt(10) {
        None => seen,
        Some(bias) => {
            let out = cx.num_like(bias, f64::NEG_INFINITY)?;
            cx.layer("select", Attrs::new(), &[Some(seen), Some(bias), Some(out)])?
        }
    };
    let attrs =
        Attrs::new().with("scale", cx.float("scale", 0.0)?).with("softcap", cx.float("softcap", 0.0)?);
    let y = cx.layer("attention", attrs, &[Some(q), Some(keys), Some(values), Some(mask)])?;
    Ok(vec![join_heads(cx, y)?, keys, values])
}
