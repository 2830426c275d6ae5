//! Attention and rotary position embedding.

use kiln_ir::Attrs;

use super::Handler;
use crate::convert::{Cx, Outs};

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] = &[("Attention", attention), ("RotaryEmbedding", rotary)];

/// The number of FLOAT among element types.
const FLOAT: i64 = 1;

fn attention(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new()
        .with("q_heads", cx.int("q_num_heads", 0)?)
        .with("kv_heads", cx.int("kv_num_heads", 0)?)
        .with("scale", cx.float("scale", 0.0)?)
        .with("causal", cx.flag("is_causal", false)?)
        .with("softcap", cx.float("softcap", 0.0)?)
        .with("qk_output", cx.int("qk_matmul_output_mode", 0)?)
        .with("softmax_f32", cx.int("softmax_precision", 0)? == FLOAT);
    let inputs = cx.all();
    cx.layers("attention", attrs, &inputs)
}

fn rotary(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new()
        .with("interleaved", cx.flag("interleaved", false)?)
        .with("num_heads", cx.int("num_heads", 0)?)
        .with("rotary_dim", cx.int("rotary_embedding_dim", 0)?);
    let inputs = cx.all();
    Ok(vec![cx.layer("rotary_embedding", attrs, &inputs)?])
}
