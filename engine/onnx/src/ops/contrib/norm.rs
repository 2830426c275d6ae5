//! Normalization of sums and of embeddings.

use kiln_ir::{Attrs, DType, Elems};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::contrib::unwanted;
use crate::ops::reduce::over;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("SimplifiedLayerNormalization", &[], simplified),
    Operator::new("com.microsoft.EmbedLayerNormalization", &[1], embed),
    Operator::new("com.microsoft.GroupNorm", &[1], |cx| {
        let x = cx.input(0)?;
        Ok(vec![group_norm(cx, x)?])
    }),
    Operator::new("com.microsoft.SimplifiedLayerNormalization", &[1], simplified),
    Operator::new("com.microsoft.SkipGroupNorm", &[1], skip_group_norm),
    Operator::new("com.microsoft.SkipLayerNormalization", &[1], skip_layer_norm),
    Operator::new("com.microsoft.SkipSimplifiedLayerNormalization", &[1], skip_simplified),
];

fn epsilon(cx: &Cx<'_>, default: f32) -> Result<Attrs, Refusal> {
    Ok(Attrs::new().with("axis", -1).with("epsilon", cx.float("epsilon", default)?))
}

/// input + skip + bias, as far as they are there.
fn sum(cx: &mut Cx<'_>, bias: usize) -> Result<TensorId, Refusal> {
    let (x, skip) = (cx.input(0)?, cx.input(1)?);
    let sum = cx.bin("add", x, skip)?;
    match cx.opt(bias) {
        Some(bias) => cx.bin("add", sum, bias),
        None => Ok(sum),
    }
}

/// Outputs are the result, mean, inverse deviation, and the sum that was normalized.
fn skip_layer_norm(cx: &mut Cx<'_>) -> Outs {
    let sum = sum(cx, 4)?;
    let attrs = epsilon(cx, 1e-12)?;
    let mut outs = cx.layers("layer_norm", attrs, &[Some(sum), cx.opt(2), cx.opt(3)])?;
    outs.truncate(3);
    outs.push(sum);
    Ok(outs)
}

fn skip_simplified(cx: &mut Cx<'_>) -> Outs {
    unwanted(cx, 1, "mean")?;
    unwanted(cx, 2, "inv_std_var")?;
    let sum = sum(cx, 3)?;
    let attrs = epsilon(cx, 1e-12)?;
    let y = cx.layer("rms_norm", attrs, &[Some(sum), cx.opt(2)])?;
    Ok(vec![y, y, y, sum])
}

/// RMS normalization under its older name; the result has the type of the scale.
fn simplified(cx: &mut Cx<'_>) -> Outs {
    unwanted(cx, 1, "inv_std_var")?;
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let stash = cx.int("stash_type", 1)?;
    if stash != 1 {
        return unsupported(format!("attribute 'stash_type' = {stash} (1, FLOAT, is)"));
    }
    let attrs = Attrs::new().with("axis", cx.int("axis", -1)?).with("epsilon", cx.float("epsilon", 1e-5)?);
    let to = cx.dtype(scale);
    if cx.dtype(x) == to {
        return Ok(vec![cx.layer("rms_norm", attrs, &[Some(x), Some(scale)])?]);
    }
    let (x, scale) = (cx.cast(x, DType::F32)?, cx.cast(scale, DType::F32)?);
    let y = cx.layer("rms_norm", attrs, &[Some(x), Some(scale)])?;
    Ok(vec![cx.cast(y, to)?])
}

/// Rows of the word, position and segment tables, summed and normalized.
fn embed(cx: &mut Cx<'_>) -> Outs {
    let (ids, words, positions) = (cx.input(0)?, cx.input(2)?, cx.input(3)?);
    let rows = |cx: &mut Cx<'_>, table: TensorId, ids: TensorId| {
        cx.layer("gather", Attrs::new().with("axis", 0), &[Some(table), Some(ids)])
    };
    let mut sum = rows(cx, words, ids)?;
    let position = match cx.opt(8) {
        Some(own) => rows(cx, positions, own)?,
        None => {
            let (start, length) = (cx.i64s(&[0])?, cx.dims(ids, 1..2)?);
            cx.slice_to(positions, 0, start, length)?
        }
    };
    sum = cx.bin("add", sum, position)?;
    match (cx.opt(1), cx.opt(4)) {
        (Some(segments), Some(table)) => {
            let segment = rows(cx, table, segments)?;
            sum = cx.bin("add", sum, segment)?;
        }
        (None, None) => {}
        _ => return unsupported("one of segment_ids and segment_embedding without the other"),
    }
    let attrs = epsilon(cx, 1e-12)?;
    // A hint for the shapes of outputs.
    cx.skip("mask_index_type");
    let y = cx.layer("layer_norm", attrs, &[Some(sum), cx.opt(5), cx.opt(6)])?;
    let lengths = if cx.wants(1) { lengths(cx, ids)? } else { y };
    Ok(vec![y, lengths, sum])
}

/// Number of entries of each row of the mask that are 1; zeros without a mask.
fn lengths(cx: &mut Cx<'_>, ids: TensorId) -> Result<TensorId, Refusal> {
    let Some(mask) = cx.opt(7) else {
        let zero = cx.elems(DType::I32, &[1], Elems::I(vec![0]))?;
        let batch = cx.dims(ids, 0..1)?;
        return cx.bin("expand", zero, batch);
    };
    let one = cx.num_like(mask, 1.0)?;
    let ones = cx.bin("equal", mask, one)?;
    let ones = cx.cast(ones, DType::I32)?;
    let count = over(cx, "sum", ones, &[1])?;
    cx.squeeze(count, &[1])
}

/// Normalization of groups of channels, with the layout and activation of the attributes.
fn group_norm(cx: &mut Cx<'_>, x: TensorId) -> Result<TensorId, Refusal> {
    let groups = cx.require_attr::<i64>("groups")?;
    if groups < 1 {
        return Err(cx.bad_attr("groups", &format!("is {groups}: wanted 1 or more")));
    }
    let silu = match cx.require_attr::<i64>("activation")? {
        0 => false,
        1 => true,
        other => return Err(cx.bad_attr("activation", &format!("is {other}: wanted 0 or 1 (SiLU)"))),
    };
    let (gamma, beta, to) = (cx.input(1)?, cx.input(2)?, cx.dtype(x));
    let (gamma, beta) = (cx.cast(gamma, to)?, cx.cast(beta, to)?);
    let rank = cx.rank(x) as i64;
    let last = cx.flag("channels_last", true)? && rank > 2;
    let first: Vec<i64> = [vec![0, rank - 1], (1..rank - 1).collect()].concat();
    let x = if last { cx.transpose(x, first)? } else { x };
    let attrs = Attrs::new().with("groups", groups).with("epsilon", cx.float("epsilon", 1e-5)?);
    let mut y = cx.layer("group_norm", attrs, &[Some(x), Some(gamma), Some(beta)])?;
    if silu {
        let gate = cx.un("sigmoid", y)?;
        y = cx.bin("mul", y, gate)?;
    }
    let back: Vec<i64> = [vec![0], (2..rank).collect(), vec![1]].concat();
    if last { cx.transpose(y, back) } else { Ok(y) }
}

/// The image plus skip and bias, which may be a value a channel, before the normalization; that sum is an output, too.
fn skip_group_norm(cx: &mut Cx<'_>) -> Outs {
    let (x, skip) = (cx.input(0)?, cx.input(3)?);
    let (rank, last) = (cx.rank(x), cx.flag("channels_last", true)?);
    let placed = |cx: &mut Cx<'_>, v: TensorId| match cx.rank(v) {
        own if own == rank => Ok(v),
        1 => cx.along(v, if last { rank - 1 } else { 1 }, rank),
        // A value a channel of each image.
        2 if rank > 2 => {
            let spatial: Vec<i64> =
                if last { (1..rank as i64 - 1).collect() } else { (2..rank as i64).collect() };
            cx.unsqueeze(v, &spatial)
        }
        own => unsupported(format!("a skip or bias of {own} dimensions for an image of {rank}")),
    };
    let skip = placed(cx, skip)?;
    let mut sum = cx.bin("add", x, skip)?;
    if let Some(bias) = cx.opt(4) {
        let bias = placed(cx, bias)?;
        sum = cx.bin("add", sum, bias)?;
    }
    Ok(vec![group_norm(cx, sum)?, sum])
}
