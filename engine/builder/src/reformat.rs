//! Kernels that direct I/O refuses, as errors name them.

use kiln_plan::IoMode;
use std::fmt;

/// Kernels that only reformat an input or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reformat {
    /// The input or output.
    pub tensor: String,
    /// Input or output.
    pub mode: IoMode,
    /// Type and format that it has, in words.
    pub found: String,
    /// The layer that reads or makes it.
    pub layer: String,
    /// Type and dimensions, row-major, in which that layer has it.
    pub wanted: String,
    /// Operators of the kernels.
    pub kernels: Vec<String>,
}

impl fmt::Display for Reformat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reformat { tensor, found, layer, wanted, kernels, .. } = self;
        let (mode, does) = match self.mode {
            IoMode::Input => ("input", "reads"),
            IoMode::Output => ("output", "makes"),
        };
        let kernels = kernels.join(", ");
        write!(
            f,
            "{mode} \"{tensor}\" ({found}) needs a reformat ({kernels}): layer \"{layer}\" {does} {wanted}"
        )
    }
}
