//! Running programs: loading, memory, launches, reading back.

mod asked;
mod branches;
mod conditional;
mod consumed;
mod context;
mod contract;
mod device;
mod extent;
mod flow;
mod inputs;
mod inside;
mod kernel;
mod loops;
mod memory;
mod moves;
mod parts;
mod plan;
mod reasons;
mod replay;
mod results;
mod run;
mod stage;
mod steps;
mod stop;
mod times;
mod values;

pub use device::CudaDevice;
pub(crate) use loops::choices;
pub use loops::copied_in_a_trip;
