//! Running programs: a device of the shared executor ([`kiln_gpu`]), and control flow that stays on the device.

mod batch;
mod branches;
mod condition;
mod conditional;
mod consumed;
mod context;
mod device;
mod executor;
mod fallback;
mod flow;
mod flow_memory;
mod kernel;
mod launch;
mod loops;
mod memory;
mod moves;
mod parts;
mod planning;
mod queue;
mod reasons;
mod stamps;

pub use device::CudaDevice;
pub(crate) use loops::choices;
pub use loops::copied_in_a_trip;
