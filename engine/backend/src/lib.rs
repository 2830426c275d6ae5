//! The contract between Kiln's engine and its backends, and the SDK for writing one.
//!
//! A backend implements [`Backend`], [`Device`], [`Executable`] and [`Context`]. Linked-in backends are used as they
//! are; shared libraries export the same through the C ABI of `kiln-abi`.

pub mod assisted;
mod by_case;
mod capability;
mod cases;
mod codes;
pub mod compare;
mod compiled;
mod contract;
mod dynamic_range;
mod error;
mod field;
pub mod flow;
pub mod host_layer;
pub mod launch;
pub mod limits;
mod native;
pub mod native_call;
pub mod order;
pub mod process;
mod program;
mod recent;
mod region;
mod resolve;
pub mod sdk;
pub mod stop;
mod stores;
mod stream;
mod tactic;
mod target;
pub mod threads;
mod unplanned;
pub mod view;
pub mod watchdog;
pub mod wire;

pub use assisted::HostStep;
pub use capability::{Capability, capabilities, capability};
pub use cases::{Alternative, Case};
pub use compiled::{Binding, CompiledKernel, EntryPoint, Parameter};
pub use contract::{Backend, Context, Counters, Device, Executable, LoadedProgram, StepTime, TimeRequest};
pub use dynamic_range::{range_name, ranged_tensor};
pub use error::BackendError;
#[doc(hidden)]
pub use linkme;
pub use native::{Bound, NativeContext, TemporaryAllocator};
pub use order::{MAX_STREAMS, Order};
pub use program::{MemoryPlan, Place, Program, Step, is_view_op, shape_inputs};
pub use recent::Recent;
pub use region::{Region, ShapeRange, is_shape_data};
pub use resolve::Shapes;
pub use stores::Stores;
pub use stream::{Slot, StreamPlan};
pub use tactic::Tactic;
pub use target::{
    DeviceChoice, MemoryRules, SPARSE_WEIGHTS, Target, offer_feature, sm_number, source_feature,
};
