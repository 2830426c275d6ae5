//! Reductions over axes, running sums, and pooling over all of space.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;
use crate::ops::shape::list;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("GlobalAveragePool", &[1, 22], |cx| global(cx, "mean")),
    Operator::new("GlobalLpPool", &[1, 2, 22], global_lp),
    Operator::new("GlobalMaxPool", &[1, 22], |cx| global(cx, "max")),
    Operator::new("ReduceL1", &[1, 11, 13, 18], |cx| reduce(cx, "l1", 18)),
    Operator::new("ReduceL2", &[1, 11, 13, 18], |cx| reduce(cx, "l2", 18)),
    Operator::new("ReduceLogSum", &[1, 11, 13, 18, 28], |cx| reduce(cx, "log_sum", 18)),
    Operator::new("ReduceLogSumExp", &[1, 11, 13, 18, 28], |cx| reduce(cx, "log_sum_exp", 18)),
    Operator::new("ReduceMax", &[1, 11, 12, 13, 18, 20], |cx| reduce(cx, "max", 18)),
    Operator::new("ReduceMean", &[1, 11, 13, 18], |cx| reduce(cx, "mean", 18)),
    Operator::new("ReduceMin", &[1, 11, 12, 13, 18, 20], |cx| reduce(cx, "min", 18)),
    Operator::new("ReduceProd", &[1, 11, 13, 18], |cx| reduce(cx, "prod", 18)),
    Operator::new("ReduceSum", &[1, 11, 13], |cx| reduce(cx, "sum", 13)),
    Operator::new("ReduceSumSquare", &[1, 11, 13, 18], |cx| reduce(cx, "sum_square", 18)),
    Operator::new("ArgMax", &[1, 11, 12, 13], |cx| arg(cx, "argmax")),
    Operator::new("ArgMin", &[1, 11, 12, 13], |cx| arg(cx, "argmin")),
    Operator::new("CumProd", &[26], |cx| cumulative(cx, "prod")),
    Operator::new("CumSum", &[11, 14], |cx| cumulative(cx, "sum")),
];

/// Axes are an attribute before version `from`, then an input.
fn reduce(cx: &mut Cx<'_>, op: &str, from: i64) -> Outs {
    let axes = list(cx, "axes", 1, from)?;
    let attrs = Attrs::new()
        .with("op", op)
        .with("keep_dims", cx.flag("keepdims", true)?)
        .with("noop_with_empty_axes", cx.flag("noop_with_empty_axes", false)?);
    Ok(vec![cx.layer("reduce", attrs, &[cx.opt(0), axes])?])
}

/// A reduction over constant axes that keeps them as 1.
pub(crate) fn over(cx: &mut Cx<'_>, op: &str, x: TensorId, axes: &[i64]) -> Result<TensorId, Refusal> {
    let axes = cx.i64s(axes)?;
    cx.layer("reduce", Attrs::new().with("op", op).with("keep_dims", true), &[Some(x), Some(axes)])
}

/// The axes behind batch and channel.
pub(crate) fn spatial(cx: &Cx<'_>, x: TensorId) -> Vec<i64> {
    (2..cx.rank(x) as i64).collect()
}

fn global(cx: &mut Cx<'_>, op: &str) -> Outs {
    let x = cx.input(0)?;
    let axes = spatial(cx, x);
    if axes.is_empty() {
        return Ok(vec![cx.identity(x)?]);
    }
    Ok(vec![over(cx, op, x, &axes)?])
}

/// `p` was a float in version 1.
fn global_lp(cx: &mut Cx<'_>) -> Outs {
    let p = if cx.version() < 2 { cx.float("p", 2.0)? } else { cx.int("p", 2)? as f64 };
    if p == 1.0 || p == 2.0 {
        return global(cx, if p == 1.0 { "l1" } else { "l2" });
    }
    let x = cx.input(0)?;
    let axes = spatial(cx, x);
    let size = cx.un("abs", x)?;
    let power = cx.bin_num("pow", size, p)?;
    let sum = over(cx, "sum", power, &axes)?;
    Ok(vec![cx.bin_num("pow", sum, 1.0 / p)?])
}

fn arg(cx: &mut Cx<'_>, op: &str) -> Outs {
    let attrs = Attrs::new()
        .with("axis", cx.int("axis", 0)?)
        .with("keep_dims", cx.flag("keepdims", true)?)
        .with("select_last", cx.flag("select_last_index", false)?);
    Ok(vec![cx.layer(op, attrs, &[cx.opt(0)])?])
}

fn cumulative(cx: &mut Cx<'_>, op: &str) -> Outs {
    let (x, axis) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.as_scalar(axis)?;
    let attrs = Attrs::new()
        .with("op", op)
        .with("exclusive", cx.flag("exclusive", false)?)
        .with("reverse", cx.flag("reverse", false)?);
    Ok(vec![cx.layer("cumulative", attrs, &[Some(x), Some(axis)])?])
}
