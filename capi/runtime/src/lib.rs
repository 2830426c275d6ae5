//! The shared library `libkiln_runtime`: all functions of `kiln-c-core`, which load and run engines.

pub use kiln_c_core::*;
