//! Softmax and its relatives.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Hardmax", &[1, 11, 13], |cx| softmax(cx, "hardmax")),
    Operator::new("LogSoftmax", &[1, 11, 13], |cx| softmax(cx, "log_softmax")),
    Operator::new("Softmax", &[1, 11, 13], |cx| softmax(cx, "softmax")),
];

/// Converts Softmax and its relatives: from version 13 on over one axis; before, over everything from the
/// axis on, as if the input were a matrix.
fn softmax(cx: &mut Cx<'_>, op: &str) -> Outs {
    let x = cx.input(0)?;
    let rank = cx.rank(x);
    let flat = cx.version() < 13;
    let axis = cx.int("axis", if flat { 1 } else { -1 })?;
    if !flat {
        return Ok(vec![cx.layer(op, Attrs::new().with("axis", axis), &[Some(x)])?]);
    }
    let axis = if axis == rank as i64 { rank } else { cx.axis(axis, rank)? };
    let last = Attrs::new().with("axis", -1);
    if axis + 1 == rank {
        return Ok(vec![cx.layer(op, last, &[Some(x)])?]);
    }
    let rows = cx.flatten(x, axis)?;
    let y = cx.layer(op, last, &[Some(rows)])?;
    Ok(vec![cx.reshape_like(y, x)?])
}
