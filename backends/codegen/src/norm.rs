//! Norms by channels: with given statistics, and over neighbouring channels.

use crate::long::{continued, long_sum};
use crate::site::{Cx, op_error};
use crate::{Body, Kernel, Launch};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::layout::Layout;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of(
        "batch_norm",
        &["batch_norm"],
        |_, _| Ok(Body::element("norm/batch_norm", "batch_norm")),
        batch,
    ),
    Kernel::of("lrn", &["lrn"], |s, _| Ok(long_sum(s, "norm/lrn", ("lrn", "lrn_sum"), DType::F32)), lrn),
];

crate::params! {
    /// Batch normalization.
    struct BatchNormParams {
        /// Elements from one channel to the next.
        inner: u32,
        /// How many channels.
        channels: u32,
        /// What is added to the variance.
        epsilon: f32,
    }
}

crate::params! {
    /// Local response normalization.
    struct LrnParams {
        /// Elements from one channel to the next.
        inner: u32,
        /// How many channels.
        channels: u32,
        /// Channels before an element's own that count.
        before: u32,
        /// Channels behind it.
        after: u32,
        /// What the sum of squares is multiplied by.
        scale: f32,
        /// The power.
        beta: f32,
        /// What is added to the scaled sum.
        bias: f32,
    }
}

/// The shape of the first input with channels second, and how far the elements of a channel are apart: elements of
/// one channel in a row, or 1 with channels last.
pub fn channels(cx: &Cx<'_>) -> Result<(Vec<usize>, usize), BackendError> {
    let layout = Layout::of(cx.op()?.attrs());
    let x = layout.to_linear(&cx.shape(0)?);
    let inner = if layout == Layout::Linear { x.iter().skip(2).product() } else { 1 };
    Ok((x, inner))
}

fn float(cx: &Cx<'_>, name: &str) -> Result<f32, BackendError> {
    Ok(cx.op()?.attrs().float(name).map_err(op_error)? as f32)
}

fn batch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let channels = x.get(1).copied().unwrap_or(1);
    let params = BatchNormParams { inner, channels, epsilon: float(cx, "epsilon")? };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn lrn(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let channels = x.get(1).copied().unwrap_or(1);
    let a = cx.op()?.attrs();
    let size = a.int("size").map_err(op_error)?.clamp(1, 1 << 30);
    let params = LrnParams {
        inner,
        channels,
        before: ((size - 1) / 2) as usize,
        after: (size / 2) as usize,
        scale: (a.float("alpha").map_err(op_error)? / size as f64) as f32,
        beta: float(cx, "beta")?,
        bias: float(cx, "bias")?,
    };
    continued(cx, params.words()?, channels.min(size as usize), 1)
}
