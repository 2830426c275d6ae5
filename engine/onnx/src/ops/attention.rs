//! Attention, linear attention and rotary position embedding.

mod flex;

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Attention", &[23, 24, 25], attention),
    Operator::new("LinearAttention", &[27], linear_attention),
    Operator::new("RotaryEmbedding", &[23], rotary),
];

/// The number of FLOAT among element types.
const FLOAT: i64 = 1;

/// Every version as onnx 1.23 defines it: releases before 1.20 added the mask in front of the cap in versions 23 and 24.
fn attention(cx: &mut Cx<'_>) -> Outs {
    let precision = cx.int("softmax_precision", 0)?;
    // FLOAT, FLOAT16, DOUBLE and BFLOAT16; 0 stands for an absent attribute.
    if ![0, FLOAT, 10, 11, 16].contains(&precision) {
        return Err(cx.bad_attr("softmax_precision", &format!("is {precision}: wanted 1, 10, 11 or 16")));
    }
    let attrs = Attrs::new()
        .with("q_heads", cx.int("q_num_heads", 0)?)
        .with("kv_heads", cx.int("kv_num_heads", 0)?)
        .with("scale", cx.float("scale", 0.0)?)
        .with("causal", cx.flag("is_causal", false)?)
        .with("softcap", cx.float("softcap", 0.0)?)
        .with("qk_output", cx.int("qk_matmul_output_mode", 0)?)
        .with("softmax_f32", precision == FLOAT)
        .with("window_left", cx.int("left_window_size", -1)?)
        .with("window_right", cx.int("right_window_size", -1)?)
        .with("zero_empty", true);
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

/// `chunk_size` is advice for how to compute, and has no effect on results.
fn linear_attention(cx: &mut Cx<'_>) -> Outs {
    let chunk = cx.int("chunk_size", 64)?;
    if chunk < 1 {
        return Err(cx.bad_attr("chunk_size", &format!("is {chunk}: wanted 1 or more")));
    }
    let rule = cx.text("update_rule", "gated_delta")?;
    if !["linear", "gated", "delta", "gated_delta"].contains(&rule) {
        let reason = format!("is '{rule}': wanted linear, gated, delta or gated_delta");
        return Err(cx.bad_attr("update_rule", &reason));
    }
    let attrs = Attrs::new()
        .with("q_heads", cx.require_attr::<i64>("q_num_heads")?)
        .with("kv_heads", cx.require_attr::<i64>("kv_num_heads")?)
        .with("rule", rule)
        .with("scale", cx.float("scale", 0.0)?);
    let inputs = cx.all();
    cx.layers("linear_attention", attrs, &inputs)
}
