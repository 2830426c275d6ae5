//! Kiln: compile neural networks into engines and run them.
//!
//! A network comes from ONNX or from the network API ([`ir::Network`]), [`build`] makes a plan of it for one device of
//! one backend, and an [`Engine`] made from the plan runs it in any number of [`ExecutionContext`]s.
//!
//! ```
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
//! # let folder = tempfile::tempdir()?;
//! # let plan_file = folder.path().join("lenet.kiln");
//! use kiln::{BuildOptions, DiscoverOptions, Tensor};
//! use std::path::Path;
//!
//! // The reference backend, and none of the plug-ins that may be installed.
//! let (backends, _) = kiln::backends(&DiscoverOptions::linked());
//!
//! // ONNX file → plan → file. The batch of this model is dynamic: give its least, usual and greatest shape.
//! let mut options = BuildOptions { backend: Some("reference".into()), ..BuildOptions::default() };
//! options.shapes.min("input", &[1, 1, 28, 28]).opt("input", &[4, 1, 28, 28]).max("input", &[8, 1, 28, 28]);
//! let built = kiln::build(Path::new(model), &options, &backends)?;
//! built.plan.write_file(&plan_file)?;
//!
//! // File → engine → run.
//! let engine = kiln::load(&plan_file, &backends)?;
//! let mut context = engine.create_context()?;
//! let image = Tensor::f32(&[1, 1, 28, 28], &[0.5; 28 * 28]).ok_or("784 elements")?;
//! let outputs = context.run(&[("input", image)])?;
//! assert_eq!((outputs[0].0.as_str(), outputs[0].1.shape()), ("logits", &[1, 10][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that only runs engines links `kiln-runtime` alone.

mod backends;
mod build;
mod error;
mod shapes;

pub use kiln_backend as backend;
pub use kiln_builder as builder;
pub use kiln_ir as ir;
pub use kiln_network as network;
pub use kiln_onnx as onnx;
pub use kiln_plan as plan;
pub use kiln_runtime as runtime;

pub use backends::{DiscoverOptions, REFERENCE, backends, best};
pub use build::{BuildOptions, BuildReport, Built, Source, build, build_with_progress};
pub use error::Error;
pub use kiln_builder::BuildConfig;
pub use kiln_builder::cache::TimingCache;
pub use kiln_ir::{DType, Tensor};
pub use kiln_network::Network;
pub use kiln_plan::{Plan, PlanHeader, Verbosity};
pub use kiln_runtime::plugin::{Found, PluginError};
pub use kiln_runtime::{
    Backends, Canceller, Engine, ExecutionContext, HostLayer, IoMode, IoTensor, Profile, RuntimeError,
    verify_recipes,
};
pub use shapes::{ShapeRequest, Shaped};

/// Reads a plan file and loads it on the backend that it names.
pub fn load(path: &std::path::Path, backends: &Backends) -> Result<Engine, Error> {
    Ok(Engine::load(path, backends)?)
}
