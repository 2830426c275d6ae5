//! Selection: operators whose results are as large as their data decide.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Unique", &[11, 28], unique),
    Operator::new("Compress", &[9, 11, 28], compress),
    Operator::new("NonZero", &[9, 13], |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("nonzero", x)?])
    }),
    Operator::new("NonMaxSuppression", &[10, 11], nms),
];

/// Converts Unique. Without an axis the input is taken as flat.
fn unique(cx: &mut Cx<'_>) -> Outs {
    let axis = cx.attr::<i64>("axis")?;
    let attrs = Attrs::new()
        .with("axis", axis.unwrap_or(0))
        .with("flatten", axis.is_none())
        .with("sorted", cx.flag("sorted", true)?);
    cx.layers("unique", attrs, &[cx.opt(0)])
}

/// Converts Compress. Without an axis the input is taken as flat.
fn compress(cx: &mut Cx<'_>) -> Outs {
    let axis = cx.attr::<i64>("axis")?;
    let attrs = Attrs::new().with("axis", axis.unwrap_or(0)).with("flatten", axis.is_none());
    Ok(vec![cx.layer("compress", attrs, &[cx.opt(0), cx.opt(1)])?])
}

/// An absent limit of boxes is 0: none are kept.
fn nms(cx: &mut Cx<'_>) -> Outs {
    let limit = match cx.opt(2) {
        Some(limit) => limit,
        None => cx.i64(0)?,
    };
    let attrs = Attrs::new().with("center_box", cx.flag("center_point_box", false)?);
    Ok(vec![cx.layer("nms", attrs, &[cx.opt(0), cx.opt(1), Some(limit), cx.opt(3), cx.opt(4)])?])
}
