//! Operators of the domain com.microsoft, as ONNX Runtime's quantizer and optimizer write them.

mod attention;
mod matmul;
mod norm;
mod pointwise;
mod pool;
mod quantize;

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
