//! Running programs: loading, memory, launches, reading back.

mod asked;
mod branches;
mod consumed;
mod context;
mod device;
mod flow;
mod inside;
mod kernel;
mod loops;
mod memory;
mod moves;
mod plan;
mod replay;
mod run;
mod steps;
mod times;
mod values;

pub use device::CudaDevice;
