//! Convolution whose taps are moved by data.

use crate::long::{continued, summed};
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section};
use crate::window::{axis_words, shared};
use crate::{Body, Kernel, Launch, plain, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::conv::{self, window};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "deform_conv",
    ops: &["deform_conv"],
    epilogue: true,
    tactics: |_| plain("deform_conv"),
    source,
    launch,
}];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let bias = if site.dtype(3).is_some() { "x3(ch)" } else { "0.0f" };
    let mask = if site.dtype(4).is_some() { "x4(slot * out_volume() + flat)" } else { "1.0f" };
    let text = shared(site).to_owned() + section(site.text("deform"), "deform_conv");
    Ok(summed(site, fill(&text, &[("BIAS", bias), ("MASK", mask)]), DType::F32))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, k, a) = (cx.shape(0)?, cx.shape(1)?, cx.op()?.attrs());
    let count = |name| a.int(name).map(|n| n.max(1) as usize).map_err(op_error);
    let (groups, moved) = (count("groups")?, count("offset_groups")?);
    let axes = conv::geometry(a, &window::dims(&x), &window::dims(&k)).map_err(op_error)?;
    let mut w = axis_words(&axes)?;
    let per_group = x[1].div_ceil(moved).max(1);
    w.extend(words([x[1], k[0], k[1], (k[0] / groups).max(1), moved, per_group, x.len() - 2])?);
    // A tap takes loops over the dimensions, and over the corners of a cell and their dimensions.
    continued(cx, w, k[1..].iter().product(), 1 + 4 + 1 + 8 * 5)
}
