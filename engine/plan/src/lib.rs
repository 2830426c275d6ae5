//! Plan files: an engine on disk, its optimization profiles and its inspector.
//!
//! All numbers are little-endian. A file is
//!
//! | offset | bytes | what |
//! |--------|-------|------|
//! | 0      | 8     | `KILNPLAN` |
//! | 8      | 4     | format version |
//! | 12     | 4     | number of sections, n |
//! | 16     | 8     | size of the file |
//! | 24     | 24    | version of the writer, text padded with zeros |
//! | 48     | 32    | BLAKE3 of bytes 0 to 47 and the section table |
//! | 80     | 48    | zeros |
//! | 128    | 64·n  | section table |
//! | …      |       | sections, each at a multiple of 64 (weights: 4096), zeros between |
//!
//! An entry of the table is kind, schema version (4 bytes each), offset, length, zero (8 bytes each) and the BLAKE3 of
//! the section. Kinds are those of [`Kind`]; kinds from 0x8000_0000 on are skipped by readers that do not know them,
//! other unknown kinds are refused. The hash of the weights section is zero: its chunks of 1 MiB have hashes in the
//! weight table, so that a weight is checked when it is taken and not before.
//!
//! Equal plans have equal bytes: nothing of the machine, the time or the path is written.

mod blobs;
mod compat;
mod error;
mod file;
mod header;
mod header_wire;
pub mod host;
mod inspect;
mod inspect_at;
mod io;
mod layout;
mod layouts;
mod libraries;
mod limit;
mod parts;
mod plugins;
pub mod profile;
pub mod shared;
mod verify;
mod weight_file;
mod weights;

pub use compat::Compatibility;
pub use error::{PlanError, ProfileError};
pub use file::Plan;
pub use header::{AbsentWeight, PlanHeader, Requirement, Verbosity};
pub use host::HostLayer;
pub use inspect::{KernelInfo, Layer, LayerInfo, LayerTable, TensorInfo, WeightInfo};
pub use io::{IoMode, IoTensor, graph_io, io_tensors};
pub use layout::{FORMAT, Kind, MAGIC, OLDEST_FORMAT};
pub use limit::{DeviceLimit, SM_COUNT};
pub use plugins::{PluginLayer, plugin_layers};
pub use profile::{MAX_SHAPE_VALUES, Profile, Range, elements};
pub use verify::verify;
