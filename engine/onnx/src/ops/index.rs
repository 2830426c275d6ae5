//! Reading by index.

use kiln_ir::{Attrs, DType};

use super::Operator;
use crate::convert::{Cx, Outs};

/// The operators of this family.
pub(super) const OPS: &[Operator] = &[
    Operator::new("Compress", &[9, 11, 28], compress),
    Operator::new("Gather", &[1, 11, 13], |cx| along_axis(cx, "gather", 0)),
    Operator::new("GatherElements", &[11, 13], |cx| along_axis(cx, "gather_elements", 0)),
    Operator::new("GatherND", &[11, 12, 13], gather_nd),
    Operator::new("NonZero", &[9, 13], |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("nonzero", x)?])
    }),
    Operator::new("OneHot", &[9, 11, 28], one_hot),
    Operator::new("ReverseSequence", &[10, 28], reverse_sequence),
];

fn along_axis(cx: &mut Cx<'_>, op: &str, default: i64) -> Outs {
    let attrs = Attrs::new().with("axis", cx.int("axis", default)?);
    Ok(vec![cx.layer(op, attrs, &[cx.opt(0), cx.opt(1)])?])
}

fn gather_nd(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("batch_dims", cx.int("batch_dims", 0)?);
    Ok(vec![cx.layer("gather_nd", attrs, &[cx.opt(0), cx.opt(1)])?])
}

/// Without an axis the input is taken as flat.
fn compress(cx: &mut Cx<'_>) -> Outs {
    let axis = cx.attr::<i64>("axis")?;
    let attrs = Attrs::new().with("axis", axis.unwrap_or(0)).with("flatten", axis.is_none());
    Ok(vec![cx.layer("compress", attrs, &[cx.opt(0), cx.opt(1)])?])
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

fn reverse_sequence(cx: &mut Cx<'_>) -> Outs {
    let attrs =
        Attrs::new().with("batch_axis", cx.int("batch_axis", 1)?).with("time_axis", cx.int("time_axis", 0)?);
    Ok(vec![cx.layer("reverse_sequence", attrs, &[cx.opt(0), cx.opt(1)])?])
}
