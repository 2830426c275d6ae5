//! Fourier transforms: by passes, and by their definition.

pub mod fft;

use crate::long::{continued, long_sum};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::signal::dft::to_real;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    fft::DFT,
    fft::STFT,
    Kernel { tactics: |_| plain("dft"), ..Kernel::of("dft", &["dft"], dft_source, dft) },
    Kernel { tactics: |_| plain("stft"), ..Kernel::of("stft", &["stft"], stft_source, stft) },
];

const FILE: &str = "signal/fourier";

crate::params! {
    /// Transforms along an axis.
    struct DftParams {
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
    struct StftParams {
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

fn dft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let attrs = site.op()?.attrs();
    if to_real(attrs).map_err(op_error)? {
        return Ok(long_sum(site, FILE, ("dft_real", "dft_real_sum"), DType::F32));
    }
    let inverse = site.constant("INVERSE", "bool", attrs.bool("inverse").map_err(op_error)?);
    Ok(long_sum(site, FILE, ("dft", "dft_sum"), DType::F32).with(inverse))
}

/// Iterations for an element of a transform of length `n`: products of large numbers modulo n take a loop.
fn turn(n: usize) -> usize {
    if n <= 1 << 16 { 1 } else { 34 }
}

fn dft_sizes(cx: &Cx<'_>) -> Result<DftParams, BackendError> {
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

fn dft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let params = dft_sizes(cx)?;
    continued(cx, params.words()?, params.counted, turn(params.length))
}

/// The function `weight(t, n)`: what element `t` of a frame is multiplied with.
fn weight(site: &Site<'_>) -> String {
    let weight = if site.dtype(2).is_some() { "select(0.0f, x2(t), t < n)" } else { "1.0f" };
    site.function("weight", &[("t", "u32"), ("n", "u32")], "f32", weight)
}

fn stft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(long_sum(site, FILE, ("stft", "stft_sum"), DType::F32).with(weight(site)))
}

fn stft_sizes(cx: &Cx<'_>) -> Result<StftParams, BackendError> {
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

fn stft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let params = stft_sizes(cx)?;
    continued(cx, params.words()?, params.length, turn(params.length))
}
