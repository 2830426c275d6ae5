//! Losses.

use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch};
use kiln_backend::BackendError;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of(
    "nll_loss",
    &["nll_loss"],
    |site, _| {
        let element = if each(site.op()?)? { "nll_loss" } else { "nll_loss_all" };
        Ok(Body::element("loss/nll_loss", element).with(given(site)?))
    },
    |cx| Ok(vec![Launch::map(0, params(cx)?.words()?)]),
)];

crate::params! {
    /// Negative log-likelihood losses.
    pub struct NllLossParams {
        /// Number of classes.
        classes: u32,
        /// Elements from one class to the next.
        inner: u32,
        /// Number of targets.
        targets: u32,
        /// 1 if a target is ignored.
        ignores: u32,
        /// The target that is.
        ignored: i32,
    }
}

/// Whether losses are stored one by one instead of summed.
pub fn each(op: &kiln_ir::Op) -> Result<bool, BackendError> {
    Ok(op.attrs().str("reduction").map_err(op_error)? == "none")
}

/// Whether there are weights, and the function that makes the result of sums.
pub fn given(site: &Site<'_>) -> Result<String, BackendError> {
    let all = match site.op()?.attrs().str("reduction").map_err(op_error)? {
        "mean" => "select(sum / weights, cf(0x7fc00000u), weights == 0.0f)",
        _ => "sum",
    };
    Ok(site.constant("HAS_WEIGHTS", "bool", site.dtype(2).is_some())
        + &site.function("total", &[("sum", "f32"), ("weights", "f32")], "f32", all))
}

/// The parameters of a launch.
pub fn params(cx: &Cx<'_>) -> Result<NllLossParams, BackendError> {
    let (x, target) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    // A target beyond 32 bits is no class, whether ignored or not.
    let ignored = attrs.int("ignore_index").map_err(op_error)?;
    Ok(NllLossParams {
        classes: x[1],
        inner: x[2..].iter().product(),
        targets: target.iter().product(),
        ignores: usize::from(attrs.bool("use_ignore").map_err(op_error)?),
        ignored: ignored.clamp(-i64::from(i32::MAX), i64::from(i32::MAX)),
    })
}
