//! Gathering by index.

use kiln_ir::{Attrs, DType};

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Gather", &[1, 11, 13], |cx| along_axis(cx, "gather", 0)),
    Operator::new("GatherElements", &[11, 13], |cx| along_axis(cx, "gather_elements", 0)),
    Operator::new("GatherND", &[11, 12, 13], gather_nd),
    Operator::new("OneHot", &[9, 11, 28], one_hot),
];

fn along_axis(cx: &mut Cx<'_>, op: &str, default: i64) -> Outs {
    let attrs = Attrs::new().with("axis", cx.int("axis", default)?);
    Ok(vec![cx.layer(op, attrs, &[cx.opt(0), cx.opt(1)])?])
}

fn gather_nd(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("batch_dims", cx.int("batch_dims", 0)?);
    Ok(vec![cx.layer("gather_nd", attrs, &[cx.opt(0), cx.opt(1)])?])
}

/// Indices and depth may be of any number type, and the depth a scalar or [1].
fn one_hot(cx: &mut Cx<'_>) -> Outs {
    let (mut indices, depth, values) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    if !matches!(cx.dtype(indices), DType::I32 | DType::I64) {
        indices = cx.cast(indices, DType::I64)?;
    }
    let depth = cx.cast(depth, DType::I64)?;
    let depth = cx.as_scalar(depth)?;
    let attrs = Attrs::new().with("axis", cx.int("axis", -1)?);
    Ok(vec![cx.layer("one_hot", attrs, &[Some(indices), Some(depth), Some(values)])?])
}
