//! The executor that GPU backends share.
//!
//! A backend implements [`Device`], [`Kernels`], [`Launches`] and [`Executor`]: its memory and queue, loaded
//! code, launches, and the execution of batches. The rest is shared: memory, launch plans, runs that wait for
//! the device, read-back, records of faults, times of steps. So are loops and conditionals that the host
//! walks. `docs/design/gpu.md` has the contract.

mod checks;
mod context;
mod device;
mod extent;
mod extras;
mod guards;
mod launches;
mod loaded;
mod memory;
pub mod native;
mod plan;
mod record;
mod run;
mod shared;
mod slots;
mod step;
mod value;
mod walk;
mod weights;

pub use context::GpuContext;
pub use device::{Buffer, Device, Queue, Range, Rearrange};
pub use extent::{Extent, Open, WORD};
pub use launches::{Key, Launches as KeptLaunches, Prepared};
pub use loaded::Loaded;
pub use memory::{Bound, Memory, RECORD_BYTES, SIZES_BYTES};
pub use plan::{Launches, Operands, Planner, Work, lost};
pub use run::{Bodies, Body, Executor, PREPARED_BODIES, Run, Times};
pub use shared::SharedBuffers;
pub use slots::{Elements, Stack};
pub use step::{Compiled, Kernels, StepKernel};
pub use value::{Pool, Value, bytes_of, tensor};
pub use weights::{Residency, Weights};
