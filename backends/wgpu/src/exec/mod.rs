//! Running programs: a device of the shared executor ([`kiln_gpu`]).

mod batch;
mod commands;
mod context;
mod device;
mod dispatch;
mod kernel;
mod memory;
mod native;
mod native_stream;
mod pieces;
mod queue;
mod rearrange;
mod stamps;
#[cfg(test)]
mod tests;
mod write;

pub use device::WgpuDevice;
pub use memory::Buffer;
