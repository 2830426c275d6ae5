//! The shared library `libkiln`: builds engines, and has all functions of `kiln-c-core`, which load and run them.
//! `capi/include/kiln.h` is generated from it.

#![allow(non_camel_case_types, reason = "types have the names that C programs see")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header states the rules for pointers and threads once, for all functions"
)]
#![deny(missing_docs)]

pub mod build;
pub mod builder;
pub mod calibration;
pub mod compare;
pub mod model;
pub mod network;
pub mod precision;
pub mod progress;
pub mod selector;
pub mod settings;
pub mod support;
pub mod wishes;

pub use kiln_c_core::*;
