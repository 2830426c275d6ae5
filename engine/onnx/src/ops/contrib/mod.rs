//! Operators of the domain com.microsoft, as ONNX Runtime's quantizer and optimizer write them.

mod activation;
mod attention;
mod cached;
mod mask;
mod norm;
mod pooling;
mod product;
mod quantized;
mod weights;

pub(super) use activation::OPS as ACTIVATION;
pub(super) use attention::OPS as ATTENTION;
pub(super) use cached::OPS as CACHED;
pub(super) use norm::OPS as NORM;
pub(super) use pooling::OPS as POOLING;
pub(super) use product::OPS as PRODUCT;
pub(super) use quantized::OPS as QUANTIZED;
pub(super) use weights::OPS as WEIGHTS;

use crate::convert::{Cx, Refusal, unsupported};

/// Refuses an input that is not converted.
fn absent(cx: &Cx<'_>, input: usize, name: &str) -> Result<(), Refusal> {
    match cx.opt(input) {
        Some(_) => unsupported(format!("input {input} ({name})")),
        None => Ok(()),
    }
}

/// Refuses a flag that is set.
fn unset(cx: &Cx<'_>, name: &str) -> Result<(), Refusal> {
    match cx.int(name, 0)? {
        0 => Ok(()),
        found => unsupported(format!("attribute '{name}' = {found}")),
    }
}

/// Refuses an output that is asked for.
fn unwanted(cx: &Cx<'_>, output: usize, name: &str) -> Result<(), Refusal> {
    match cx.wants(output) {
        true => unsupported(format!("output {output} ({name})")),
        false => Ok(()),
    }
}
