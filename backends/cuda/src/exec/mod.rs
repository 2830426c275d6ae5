//! Running programs: loading, memory, launches, reading back.

mod context;
mod device;
mod flow;
mod kernel;
mod memory;
mod plan;
mod run;
mod steps;
mod values;

pub use device::CudaDevice;
