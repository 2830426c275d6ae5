//! Running programs: loading, memory, launches, reading back.

mod context;
mod device;
mod kernel;
mod memory;
mod plan;
mod run;

pub use device::CudaDevice;
