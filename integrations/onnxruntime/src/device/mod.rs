//! Values in the memory of NVIDIA's GPUs: a provider whose inputs and outputs stay there.
//!
//! It is a provider of its own ([`NAME`]), as ONNX Runtime knows where the values of a provider are before it asks for options.

mod driver;
mod memory;
mod run;
mod transfer;

pub use driver::{Device, device, devices};
pub use memory::{describe, make_allocator, release_allocator};
pub use run::run;
pub use transfer::make_transfer;

use std::ffi::CStr;

/// Name of the provider.
pub const NAME: &CStr = c"KilnCudaExecutionProvider";

/// Start of the names of its options in sessions.
pub const PREFIX: &str = "ep.kilncudaexecutionprovider.";

/// The backend that it runs on.
pub const BACKEND: &CStr = c"cuda";

/// Name of the fact about a device that has its number.
pub const NUMBER: &CStr = c"cuda_device";

/// Vendor of the memory.
pub const NVIDIA: u32 = 0x10DE;
