//! Sorting.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[Operator::new("TopK", &[1, 10, 11, 24], topk)];

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
