//! Pooling with windows.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;
use crate::ops::conv::steps;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("AveragePool", &[1, 7, 10, 11, 19, 22], average_pool),
    Operator::new("LpPool", &[1, 2, 11, 18, 22], lp_pool),
    Operator::new("MaxPool", &[1, 8, 10, 11, 12, 22], max_pool),
    Operator::new("MaxUnpool", &[9, 11, 22], max_unpool),
];

pub(crate) fn window(cx: &Cx<'_>) -> Result<Attrs, Refusal> {
    let kernel = cx.require_attr::<&[i64]>("kernel_shape")?;
    Ok(steps(cx)?.with("kernel", kernel).with("ceil_mode", cx.flag("ceil_mode", false)?))
}

fn average_pool(cx: &mut Cx<'_>) -> Outs {
    let attrs =
        window(cx)?.with("op", "average").with("count_include_pad", cx.flag("count_include_pad", false)?);
    Ok(vec![cx.layer("pool", attrs, &[cx.opt(0)])?])
}

/// `p` was a float in version 1.
fn lp_pool(cx: &mut Cx<'_>) -> Outs {
    let p = if cx.version() < 2 { cx.float("p", 2.0)? as i64 } else { cx.int("p", 2)? };
    let attrs = window(cx)?.with("op", "lp").with("p", p);
    Ok(vec![cx.layer("pool", attrs, &[cx.opt(0)])?])
}

fn max_pool(cx: &mut Cx<'_>) -> Outs {
    let attrs = window(cx)?;
    // The order of the indices.
    cx.skip("storage_order");
    if !cx.wants(1) {
        return Ok(vec![cx.layer("pool", attrs.with("op", "max"), &[cx.opt(0)])?]);
    }
    let attrs = attrs.with("storage_order", cx.int("storage_order", 0)?);
    cx.layers("max_pool_indices", attrs, &[cx.opt(0)])
}

fn max_unpool(cx: &mut Cx<'_>) -> Outs {
    let mut attrs = Attrs::new().with("kernel", cx.require_attr::<&[i64]>("kernel_shape")?);
    for name in ["strides", "pads"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    Ok(vec![cx.layer("max_unpool", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}
