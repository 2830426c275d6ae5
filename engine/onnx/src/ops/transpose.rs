//! Transposition and other reorderings of elements.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Trilu", &[14], trilu),
    Operator::new("ReverseSequence", &[10, 28], reverse_sequence),
    Operator::new("DepthToSpace", &[1, 11, 13, 28], depth_to_space),
    Operator::new("SpaceToDepth", &[1, 13, 28], space_to_depth),
    Operator::new("Transpose", &[1, 13, 21, 23, 24, 25], transpose),
];

fn trilu(cx: &mut Cx<'_>) -> Outs {
    let k = match cx.opt(1) {
        Some(k) => Some(cx.as_scalar(k)?),
        None => None,
    };
    let attrs = Attrs::new().with("upper", cx.flag("upper", true)?);
    Ok(vec![cx.layer("trilu", attrs, &[cx.opt(0), k])?])
}

fn reverse_sequence(cx: &mut Cx<'_>) -> Outs {
    let attrs =
        Attrs::new().with("batch_axis", cx.int("batch_axis", 1)?).with("time_axis", cx.int("time_axis", 0)?);
    Ok(vec![cx.layer("reverse_sequence", attrs, &[cx.opt(0), cx.opt(1)])?])
}

fn depth_to_space(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new()
        .with("block", cx.require_attr::<i64>("blocksize")?)
        .with("mode", cx.text("mode", "DCR")?);
    Ok(vec![cx.layer("depth_to_space", attrs, &[cx.opt(0)])?])
}

fn space_to_depth(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new()
        .with("block", cx.require_attr::<i64>("blocksize")?)
        .with("mode", cx.text("mode", "DCR")?);
    Ok(vec![cx.layer("space_to_depth", attrs, &[cx.opt(0)])?])
}

fn transpose(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let perm = cx.ints("perm")?.unwrap_or_else(|| (0..cx.rank(x) as i64).rev().collect());
    Ok(vec![cx.transpose(x, perm)?])
}
