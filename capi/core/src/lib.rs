//! The part of Kiln's C API that loads and runs engines. `capi/include/kiln_runtime.h` is generated from it.
//!
//! Two shared libraries export these functions: `libkiln_runtime` these alone, `libkiln` those that build as well.

#![allow(non_camel_case_types, reason = "types have the names that C programs see")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header states the rules for pointers and threads once, for all functions"
)]
#![deny(missing_docs)]

pub mod backends;
pub mod bytes;
pub mod callback;
pub mod context;
pub mod debug;
pub mod dlpack;
pub mod engine;
pub mod error;
pub mod handle;
pub mod header;
pub mod io;
pub mod json;
pub mod log;
pub mod on_device;
pub mod options;
pub mod output;
pub mod raw;
pub mod recorder;
pub mod refit;
pub mod run;
pub mod shape;
pub mod tensor;
pub mod text;
pub mod version;
