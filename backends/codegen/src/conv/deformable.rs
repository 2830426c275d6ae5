//! Convolutions whose taps are moved by data.

use super::WINDOWS;
use crate::long::{continued, long_sum};
use crate::site::{Cx, Site, op_error};
use crate::window::conv_params;
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of("deform_conv", &["deform_conv"], source, launch)];

const FILE: &str = "conv/deformable";

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let groups = site.op()?.attrs().int("offset_groups").map_err(op_error)?.max(1);
    let number = |name: &str, n: i64| site.constant(name, "u32", format!("{n}u"));
    let bias = if site.dtype(3).is_some() { "x3(channel)" } else { "0.0f" };
    let mask = if site.dtype(4).is_some() { "x4(at)" } else { "1.0f" };
    let code = number("OFFSET_GROUPS", groups)
        + &number("RANK", site.rank(0).map_or(0, |r| r as i64 - 2))
        + &site.function("bias", &[("channel", "u32")], "f32", bias)
        + &site.function("mask", &[("at", "u32")], "f32", mask);
    let sum = long_sum(site, FILE, ("deform_conv", "deform_conv_sum"), DType::F32);
    Ok(Body { files: vec![WINDOWS, FILE], ..sum.with(code) })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let taps = cx.shape(1)?[1..].iter().product();
    // A tap takes loops over the dimensions, and over the corners of a cell and their dimensions.
    continued(cx, conv_params(cx)?.words()?, taps, 1 + 4 + 1 + 8 * 5)
}
