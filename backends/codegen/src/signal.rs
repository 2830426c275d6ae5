//! Fourier transforms: by passes, and by their definition.

pub mod fft;
mod sizes;

use crate::long::{continued, long_sum};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::signal::dft::to_real;
use sizes::{dft_sizes, stft_sizes, weight};

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    fft::DFT,
    fft::STFT,
    Kernel { tactics: |_| plain("dft"), ..Kernel::of("dft", &["dft"], dft_source, dft) },
    Kernel { tactics: |_| plain("stft"), ..Kernel::of("stft", &["stft"], stft_source, stft) },
];

const FILE: &str = "signal/fourier";

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

fn dft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let params = dft_sizes(cx)?;
    continued(cx, params.words()?, params.counted, turn(params.length))
}

fn stft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(long_sum(site, FILE, ("stft", "stft_sum"), DType::F32).with(weight(site)))
}

fn stft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let params = stft_sizes(cx)?;
    continued(cx, params.words()?, params.length, turn(params.length))
}
