//! Plug-ins: shared libraries that speak the C ABI of `kiln-abi`.
//!
//! [`load`] opens one library and shakes hands with it; [`discover`] tries every library in the search path; [`find`]
//! loads the first backend of a name. [`discover_layers`] registers layers of libraries with the operator `plugin`. A loaded library stays mapped until the process ends, and its `deinit` runs then.

mod allocator;
mod call;
mod contained;
mod discover;
mod embedded;
mod error;
mod executable;
mod exit;
mod field_views;
mod handshake;
mod host;
mod host_call;
mod host_layers;
mod host_natives;
mod host_tensor;
mod layer;
mod layer_functions;
mod layers;
mod library;
mod loaded;
mod manifest;
mod memory_file;
mod native;
mod native_table;
mod objects;
mod outgoing;
mod policy;
mod search;
mod trust;

pub use discover::{Found, FoundLayers, discover, discover_layers, find};
pub use embedded::{embed, load_embedded};
pub use error::PluginError;
pub use kiln_ops::plugin::packings::Packings;
pub use kiln_ops::plugin::record::{
    Arrangement, FieldDef, LayerFunctions, LayerName, LayerRecord, LayerRun, Library,
};
pub use kiln_ops::plugin::{aliases, layer_op, layer_op_as, workspace};
pub use layer::LoadedLayer;
pub use library::{Plugin, PluginInfo, load};
pub use loaded::LoadedBackend;
pub use policy::{Level, Policy};
pub use search::{Origin, Search};
