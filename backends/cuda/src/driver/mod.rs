//! The driver: devices, streams, events, memory, modules, graphs. All `unsafe` code of runs is here.

mod branch;
mod copy;
mod device;
mod fault;
mod graph;
mod lanes;
mod library;
mod map;
mod memory;
mod module;
mod stream;
mod word;

pub use branch::{Branch, Kind};
pub use copy::Rows;
pub use device::{Attribute, Gpu, devices};
pub use fault::at_layer;
pub use graph::{Failed, Graph};
pub use lanes::{Lanes, Marks, Recorder, run_lanes};
pub use library::{Conditional, DriverError};
pub use map::{MAP_ALIGNMENT, MAP_BYTES, encode};
pub use memory::{Buffer, Pinned};
pub use module::{Call, Command, Function, Launch, Module, Upload, run_all};
pub use stream::{Event, Stream};
pub use word::Word;
