//! Writing by index.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Scatter", &[9], scatter_elements),
    Operator::new("ScatterElements", &[11, 13, 16, 18], scatter_elements),
    Operator::new("ScatterND", &[11, 13, 16, 18], scatter_nd),
    Operator::new("TensorScatter", &[24], tensor_scatter),
];

fn scatter_elements(cx: &mut Cx<'_>) -> Outs {
    let attrs =
        Attrs::new().with("axis", cx.int("axis", 0)?).with("reduction", cx.text("reduction", "none")?);
    Ok(vec![cx.layer("scatter_elements", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}

fn scatter_nd(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("reduction", cx.text("reduction", "none")?);
    Ok(vec![cx.layer("scatter_nd", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}

/// The update of a key/value cache.
fn tensor_scatter(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("axis", cx.int("axis", -2)?).with("mode", cx.text("mode", "linear")?);
    Ok(vec![cx.layer("kv_cache_update", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}
