//! Engines and execution contexts of Kiln.
//!
//! An [`Engine`] is a program loaded on a device; any number of [`ExecutionContext`]s run it, each with memory of its
//! own. [`Profile`]s say for which input shapes it was built.

mod automatic_budget;
mod backends;
mod cancel;
mod context;
mod engine;
mod error;
mod formats;
mod outputs;
pub mod plugin;
mod plugin_check;
mod recording;
mod refit;
mod selection;
mod shapes;
mod timer;
mod weights;
mod weights_size;

pub use backends::Backends;
pub use cancel::Canceller;
pub use context::cost::LayerCost;
pub use context::debug::DebugListener;
pub use context::layers::LayerTime;
pub use context::output_allocator::OutputAllocator;
pub use context::{ExecutionContext, RunCounters};
pub use engine::{Engine, LoadOptions};
pub use error::RuntimeError;
pub use kiln_backend::TemporaryAllocator;
pub use kiln_plan::{
    HostLayer, IoMode, IoTensor, Layer, LayerInfo, LayerTable, MAX_SHAPE_VALUES, Profile, ProfileError,
    Range, TensorInfo, WeightInfo, graph_io, io_tensors,
};
pub use outputs::Outputs;
pub use refit::{
    NamedWeight, RecipeReport, RefitReport, RefitTask, RefitTimes, Refitter, strip, verify_recipes,
};
pub use selection::{RuntimeInput, select};
