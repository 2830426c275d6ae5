//! Sizes of Fourier transforms, as both kinds of kernels read them.

use crate::site::{Cx, Site, op_error};
use kiln_backend::BackendError;
use kiln_ops::signal::dft::to_real;

crate::params! {
    /// Transforms along an axis.
    pub struct DftParams {
        /// The length of the transform.
        length: u32,
        /// Elements of x along the axis that count.
        counted: u32,
        /// Elements of x along the axis.
        given: u32,
        /// Elements of the result along the axis.
        made: u32,
        /// Pairs from one element of the axis to the next.
        inner: u32,
        /// Parts of a number of x, 1 or 2.
        parts: u32,
    }
}

crate::params! {
    /// Transforms of frames of a signal.
    pub struct StftParams {
        /// The length of a frame and of its transform.
        length: u32,
        /// Elements of the signal.
        signal: u32,
        /// Elements of a transform that the result has.
        bins: u32,
        /// Number of frames.
        frames: u32,
        /// Parts of a number of the signal, 1 or 2.
        parts: u32,
        /// Elements from one frame to the next.
        step: u32,
        /// Elements of the window.
        window: u32,
    }
}

/// The function `weight(t, n)`: what element `t` of a frame is multiplied with.
pub fn weight(site: &Site<'_>) -> String {
    let weight = if site.dtype(2).is_some() { "select(0.0f, x2(t), t < n)" } else { "1.0f" };
    site.function("weight", &[("t", "u32"), ("n", "u32")], "f32", weight)
}

/// The sizes of a `dft`.
pub fn dft_sizes(cx: &Cx<'_>) -> Result<DftParams, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let one = |v: Option<Vec<i64>>| v.and_then(|v| v.first().copied());
    let axis = one(cx.ints(2)?).unwrap_or(-2);
    let axis = kiln_ir::infer::normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let real = to_real(cx.op()?.attrs()).map_err(op_error)?;
    let length = if real { y[axis] } else { one(cx.ints(1)?).map_or(x[axis], |n| n.max(0) as usize) };
    let last = x.len() - 1;
    let counted = if real { length / 2 + 1 } else { length }.min(x[axis]);
    Ok(DftParams {
        length,
        counted,
        given: x[axis],
        made: y[axis],
        inner: x[axis + 1..last].iter().product(),
        parts: x[last],
    })
}

/// The sizes of an `stft`.
pub fn stft_sizes(cx: &Cx<'_>) -> Result<StftParams, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let one = |v: Option<Vec<i64>>| v.and_then(|v| v.first().copied()).map(|n| n.max(0) as usize);
    let window = if cx.has(2) { cx.shape(2)?[0] } else { 0 };
    let length = one(cx.ints(3)?).unwrap_or(if cx.has(2) { window } else { x[1] });
    Ok(StftParams {
        length,
        signal: x[1],
        bins: y[2],
        frames: y[1],
        parts: x[2],
        step: one(cx.ints(1)?).unwrap_or(1),
        window,
    })
}
