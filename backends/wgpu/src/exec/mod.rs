//! Running programs: loading, memory, recording, reading back.

mod context;
mod device;
mod flow;
mod inside;
mod kernel;
mod memory;
mod pieces;
mod plan;
mod record;

pub use device::WgpuDevice;
