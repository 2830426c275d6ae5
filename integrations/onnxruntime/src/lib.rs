//! Kiln as a plug-in execution provider of ONNX Runtime (`docs/onnxruntime.md`).
//!
//! ONNX Runtime loads the library, which exports two functions, and calls what they return. Nothing is linked: all calls go through
//! tables of functions that it hands over.

mod abi;
mod claim;
mod compatibility;
mod compiled;
mod context_node;
mod device;
mod ep;
mod error;
mod factory;
mod model;
mod option_table;
mod options;
mod ort;
mod run;
mod values;

pub use factory::{CreateEpFactories, ReleaseEpFactory};
