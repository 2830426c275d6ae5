//! Sorting, uniqueness, running sums, triangles.

use kiln_ir::Attrs;

use super::Operator;
use crate::convert::{Cx, Outs};

/// The operators of this family.
pub(super) const OPS: &[Operator] = &[
    Operator::new("ArgMax", &[1, 11, 12, 13], |cx| arg(cx, "argmax")),
    Operator::new("ArgMin", &[1, 11, 12, 13], |cx| arg(cx, "argmin")),
    Operator::new("CumProd", &[26], |cx| cumulative(cx, "prod")),
    Operator::new("CumSum", &[11, 14], |cx| cumulative(cx, "sum")),
    Operator::new("TopK", &[1, 10, 11, 24], topk),
    Operator::new("Trilu", &[14], trilu),
    Operator::new("Unique", &[11, 28], unique),
];

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

/// `k` is an attribute before version 10.
fn topk(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let k = if cx.version() < 10 {
        let k = cx.require_attr::<i64>("k")?;
        cx.i64(k)?
    } else {
        let k = cx.input(1)?;
        cx.as_scalar(k)?
    };
    let attrs = Attrs::new()
        .with("axis", cx.int("axis", -1)?)
        .with("largest", cx.flag("largest", true)?)
        .with("sorted", cx.flag("sorted", true)?);
    cx.layers("topk", attrs, &[Some(x), Some(k)])
}

fn trilu(cx: &mut Cx<'_>) -> Outs {
    let k = match cx.opt(1) {
        Some(k) => Some(cx.as_scalar(k)?),
        None => None,
    };
    let attrs = Attrs::new().with("upper", cx.flag("upper", true)?);
    Ok(vec![cx.layer("trilu", attrs, &[cx.opt(0), k])?])
}

/// Without an axis the input is taken as flat.
fn unique(cx: &mut Cx<'_>) -> Outs {
    let axis = cx.attr::<i64>("axis")?;
    let attrs = Attrs::new()
        .with("axis", axis.unwrap_or(0))
        .with("flatten", axis.is_none())
        .with("sorted", cx.flag("sorted", true)?);
    cx.layers("unique", attrs, &[cx.opt(0)])
}
