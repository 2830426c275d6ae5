//! Running programs: a device of the shared executor ([`kiln_gpu`]), and control flow that stays on the device.

mod batch;
mod branches;
#[cfg(feature = "compile")]
mod choices;
mod condition;
mod conditional;
mod consumed;
mod context;
mod device;
mod executor;
mod fallback;
mod flow;
mod flow_memory;
mod host;
mod kernel;
mod lanes;
mod launch;
mod loops;
mod memory;
mod moves;
mod native;
mod parts;
mod places;
mod planning;
mod queue;
mod reasons;
mod shared;
mod staged;
mod stamps;
mod uploads;

#[cfg(feature = "compile")]
pub use choices::choices;
pub use device::CudaDevice;
#[cfg(feature = "compile")]
pub use host::{HostCode, Library, Places};
#[cfg(feature = "compile")]
pub use kernel::ROUNDS;
pub use loops::copied_an_iteration;
