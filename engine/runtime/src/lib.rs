//! Plans, engines and execution contexts of Kiln.
//!
//! An [`Engine`] is a program loaded on a device; any number of [`ExecutionContext`]s run it, each with memory of its
//! own. [`Profile`]s say for which input shapes it was built.

mod backends;
mod cancel;
mod context;
mod engine;
mod error;
mod forked;
mod inspect;
mod io;
pub mod plan;
pub mod plugin;
mod profile;
mod refit;
mod shapes;
mod timer;

pub use backends::Backends;
pub use cancel::Canceller;
pub use context::{ExecutionContext, HostLayer, LayerTime, RunCounters};
pub use engine::Engine;
pub use error::RuntimeError;
pub use forked::check_process;
pub use inspect::{Layer, LayerInfo, LayerTable, TensorInfo, WeightInfo};
pub use io::{IoMode, IoTensor, graph_io, io_tensors};
pub use profile::{Given, MAX_SHAPE_VALUES, Profile, Range, select};
pub use refit::{NamedWeight, RecipeReport, Refitter, verify_recipes};
