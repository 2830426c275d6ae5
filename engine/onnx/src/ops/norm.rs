//! Normalization.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;
use crate::ops::reduce::over;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("BatchNormalization", &[1, 6, 7, 9, 14, 15], batch_norm),
    Operator::new("GroupNormalization", &[18, 21], group_norm),
    Operator::new("InstanceNormalization", &[1, 6, 22], instance_norm),
    Operator::new("LRN", &[1, 13], lrn),
    Operator::new("LayerNormalization", &[17], layer_norm),
    Operator::new("LpNormalization", &[1, 22], lp_norm),
    Operator::new("MeanVarianceNormalization", &[9, 13], mean_variance),
    Operator::new("RMSNormalization", &[23], rms_norm),
];

fn batch_norm(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    if cx.flag("training_mode", false)? || (1..cx.output_count()).any(|i| cx.wants(i)) {
        return unsupported("batch normalization in training mode");
    }
    // Training mode was the default before version 7.
    if cx.version() < 7 && !cx.flag("is_test", false)? {
        return unsupported("batch normalization in training mode (is_test = 0)");
    }
    cx.skip("momentum");
    if cx.version() < 9 && !cx.flag("spatial", true)? && cx.rank(x) > 2 {
        return unsupported("statistics for each element (spatial = 0)");
    }
    let attrs = Attrs::new().with("epsilon", cx.float("epsilon", 1e-5)?);
    let inputs = [Some(x), cx.opt(1), cx.opt(2), cx.opt(3), cx.opt(4)];
    Ok(vec![cx.layer("batch_norm", attrs, &inputs)?])
}

fn instance_norm(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("groups", 0).with("epsilon", cx.float("epsilon", 1e-5)?);
    Ok(vec![cx.layer("group_norm", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}

/// Scale and bias belong to groups before version 21, then to channels.
fn group_norm(cx: &mut Cx<'_>) -> Outs {
    let (x, mut scale, mut bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let groups = cx.require_attr::<i64>("num_groups")?;
    single_precision(cx)?;
    if groups < 1 {
        return Err(cx.bad_attr("num_groups", &format!("is {groups}: wanted 1 or more")));
    }
    if cx.version() < 21 {
        scale = per_channel(cx, scale, x, groups)?;
        bias = per_channel(cx, bias, x, groups)?;
    }
    let attrs = Attrs::new().with("groups", groups).with("epsilon", cx.float("epsilon", 1e-5)?);
    Ok(vec![cx.layer("group_norm", attrs, &[Some(x), Some(scale), Some(bias)])?])
}

/// A value a group as a value a channel.
fn per_channel(cx: &mut Cx<'_>, v: TensorId, x: TensorId, groups: i64) -> Result<TensorId, Refusal> {
    let channels = cx.dims(x, 1..2)?;
    let groups = cx.i64s(&[groups])?;
    let each = cx.bin("floor_div", channels, groups)?;
    let shape = cx.join(&[groups, each])?;
    let column = cx.unsqueeze(v, &[1])?;
    let spread = cx.bin("expand", column, shape)?;
    cx.reshape(spread, &[-1])
}

/// Refuses statistics in another type than f32.
fn single_precision(cx: &Cx<'_>) -> Result<(), Refusal> {
    match cx.int("stash_type", 1)? {
        1 => Ok(()),
        other => {
            unsupported(format!("statistics of element type number {other} (stash_type), wanted 1 (FLOAT)"))
        }
    }
}

/// All three outputs; mean and inverse deviation are computed in f32.
fn layer_norm(cx: &mut Cx<'_>) -> Outs {
    single_precision(cx)?;
    let attrs = Attrs::new().with("axis", cx.int("axis", -1)?).with("epsilon", cx.float("epsilon", 1e-5)?);
    cx.layers("layer_norm", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])
}

fn rms_norm(cx: &mut Cx<'_>) -> Outs {
    single_precision(cx)?;
    let attrs = Attrs::new().with("axis", cx.int("axis", -1)?).with("epsilon", cx.float("epsilon", 1e-5)?);
    Ok(vec![cx.layer("rms_norm", attrs, &[cx.opt(0), cx.opt(1)])?])
}

fn lrn(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new()
        .with("size", cx.require_attr::<i64>("size")?)
        .with("alpha", cx.float("alpha", 1e-4)?)
        .with("beta", cx.float("beta", 0.75)?)
        .with("bias", cx.float("bias", 1.0)?);
    Ok(vec![cx.layer("lrn", attrs, &[cx.opt(0)])?])
}

fn lp_norm(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("axis", cx.int("axis", -1)?).with("p", cx.int("p", 2)?);
    Ok(vec![cx.layer("lp_norm", attrs, &[cx.opt(0)])?])
}

/// (x − mean) / (deviation + 1e−9).
fn mean_variance(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let axes = cx.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let mean = over(cx, "mean", x, &axes)?;
    let centred = cx.bin("sub", x, mean)?;
    let square = cx.bin("mul", centred, centred)?;
    let variance = over(cx, "mean", square, &axes)?;
    let deviation = cx.un("sqrt", variance)?;
    let safe = cx.bin_num("add", deviation, 1e-9)?;
    Ok(vec![cx.bin("div", centred, safe)?])
}
