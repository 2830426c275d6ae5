//! Kiln: compile neural networks into engines and run them.
//!
//! [`Engine::open`] makes an engine of an ONNX model, of a stored plan, or of a network that was written with
//! the API ([`network`]). It runs on the best backend that has a device: CUDA, then wgpu, then the reference
//! on the CPU.
//!
//! ```
//! # fn main() -> Result<(), kiln::Error> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
//! let engine = kiln::Engine::open(model)?;
//! let image = kiln::Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784])?;
//! let outputs = engine.run([("input", image)])?;
//! println!("{}: {:?}", engine.backend(), outputs.get("logits")?.to_vec::<f32>()?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Engine::builder`] says more: the backend, shapes of dynamic inputs, precision, a timing cache. A plan is written to a file
//! once and loaded wherever the same kind of device is:
//!
//! ```
//! # fn main() -> Result<(), kiln::Error> {
//! # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let file = folder.path().join("lenet.kiln");
//! use kiln::{Engine, Tensor};
//!
//! let builder = Engine::builder().backend("cpu").shapes("input", &[1, 1, 28, 28], &[4, 1, 28, 28], &[8, 1, 28, 28]);
//! builder.build_plan(model)?.plan.write_file(&file)?;
//!
//! let engine = Engine::open(&file)?;
//! let mut context = engine.create_context()?;
//! for images in 1..=8 {
//!     let outputs = context.run(&[("input", Tensor::zeros(kiln::DType::F32, &[images, 1, 28, 28])?)])?;
//!     assert_eq!(outputs.get("logits")?.shape(), [images, 10]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `build` (default): models, networks and the builder. Without it a program loads and runs plans, and links neither importer nor
//!   builder: `kiln = { version = "0.1", default-features = false }`.
//! * `half`: tensors from and to elements of `half::f16` and `half::bf16`.
//! * `ndarray`: tensors from and to arrays of `ndarray`, by `TryFrom`.
//!
//! ```
//! use kiln::Tensor;
//! use ndarray::{ArrayD, arr2};
//!
//! let tensor = Tensor::try_from(arr2(&[[1.0f32, 2.0], [3.0, 4.0]]))?;
//! let array: ArrayD<f32> = (&tensor).try_into()?;
//! assert_eq!(array[[1, 0]], 3.0);
//! let half = Tensor::from_slice(&[2], &[half::f16::ONE, half::f16::ZERO])?;
//! assert_eq!(half.to_f64(), [1.0, 0.0]);
//! # Ok::<(), kiln::Error>(())
//! ```

#![deny(missing_docs)]

pub mod arrays;
mod backends;
#[cfg(feature = "build")]
pub mod bisect;
#[cfg(feature = "build")]
mod build;
#[cfg(feature = "build")]
mod building;
#[cfg(feature = "build")]
pub mod calibration;
#[cfg(feature = "build")]
mod calibration_table;
mod codes;
#[cfg(feature = "build")]
pub mod compare;
mod engine;
mod error;
#[cfg(feature = "build")]
mod implicit;
#[cfg(feature = "build")]
mod import;
mod model;
#[cfg(feature = "build")]
mod networks;
#[cfg(feature = "build")]
mod plan_options;
#[cfg(feature = "build")]
mod report_json;
#[cfg(feature = "build")]
mod shapes;
#[cfg(feature = "build")]
mod support;
pub mod weights;

pub use backends::{CPU, DiscoverOptions, REFERENCE, backends, best, is_linked};
#[cfg(feature = "build")]
pub use build::{BuildOptions, BuildReport, Built, HardwareCompatibility};
pub use engine::{Engine, EngineBuilder};
pub use error::Error;
pub use model::Model;
#[cfg(feature = "build")]
pub use shapes::{ShapeRequest, Shaped};
#[cfg(feature = "build")]
pub use support::{LayerSupport, NetworkSupport};

pub use kiln_backend::{Backend, BackendError, Capability, DeviceChoice, Target, capabilities, capability};
#[cfg(feature = "build")]
pub use kiln_builder::{
    BuildConfig, Constraints, IoSpec, LayerTypes, MemoryPool, Monitor, Narrowing, Progress, ProgressMonitor,
    Refit, Sparsity,
};
pub use kiln_ir::format::{pack, unpack};
pub use kiln_ir::{
    DType, Dim, Element, ElementError, Elems, ErrorCode, ErrorLog, ErrorRecorder, FormatError, Formats,
    OpError, Tensor, TensorFormat, TensorType, WeightsRole,
};
#[cfg(feature = "build")]
pub use kiln_network::Network;
pub use kiln_plan::{
    AbsentWeight, DeviceLimit, HostLayer, IoMode, IoTensor, Plan, PlanError, PlanHeader, Profile,
    ProfileError, Range, Requirement, Verbosity,
};
pub use kiln_runtime::{
    Backends, Canceller, DebugListener, ExecutionContext, LayerCost, LayerTime, LoadOptions, NamedWeight,
    OutputAllocator, Outputs, RecipeReport, RefitReport, RefitTask, RefitTimes, Refitter, RunCounters,
    RuntimeError, TemporaryAllocator, strip, verify_recipes,
};

#[cfg(feature = "build")]
/// Layers of [`Network`]: what its methods take and return.
pub mod network {
    pub use kiln_network::{
        ActivationKind, AnyLayer, AttentionNorm, BoundingBoxFormat, CausalMask, ElementwiseOp, FillOp,
        FillValue, GatherMode, IfId, InterpolationMode, Layer, LayerId, LoopId, LoopOutputKind, MatrixOp,
        Network, NetworkError, PaddingMode, PluginSpec, PoolingKind, ReduceOp, ResizeCoordinates,
        ResizeRounding, ResizeSelector, SampleMode, ScaleMode, ScatterMode, TensorId, TopKOp, TripLimitKind,
        UnaryOp, Weights, WeightsRole,
    };
}

#[cfg(feature = "build")]
/// Details of a build, as [`BuildReport`] holds them.
pub mod report {
    pub use kiln_builder::passes::PassReport;
    pub use kiln_builder::{AlternativeReport, BuildError, Considered, Reformat, Spent, StepReport};
}

#[cfg(feature = "build")]
/// Selection of algorithms: selectors, rules by name, recorded choices.
pub mod selection {
    pub use kiln_builder::{
        Algorithm, AlgorithmSelector, LayerContext, RecordedEffort, Selector, ShapeBounds, StepReport,
        TacticChoice, TacticRecord, TacticRule, TensorLayout,
    };
}

#[cfg(feature = "build")]
/// Measured times of kernels, which builds read and add to.
pub mod cache {
    pub use kiln_builder::cache::{Candidate, Entry, TimingCache};
}

/// Layers of a plan or an engine, as its inspector describes them.
pub mod inspect {
    pub use kiln_plan::{KernelInfo, Layer, LayerInfo, LayerTable, TensorInfo, WeightInfo};
}

/// Plug-ins: where they are looked for, and which are allowed; layers that they define.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use kiln::network::PluginSpec;
/// use kiln::{DType, Network, TensorType};
///
/// kiln::plugin::load_layers("/opt/acme/libkiln_layers_acme.so", &kiln::plugin::Policy::default())?;
/// let mut network = Network::new("net");
/// let x = network.add_input("x", TensorType::new(DType::F32, [2, 8]))?;
/// let y = network.add_plugin(&[x], PluginSpec::new("acme", "Swish").field("beta", 2.0))?.output(0)?;
/// network.mark_output(y, "y")?;
/// # Ok(())
/// # }
/// ```
pub mod plugin {
    pub use crate::backends::{layers, load_layers};
    pub use kiln_runtime::plugin::{
        Arrangement, LayerRun, Packings, aliases, layer_op, layer_op_as, workspace,
    };
    pub use kiln_runtime::plugin::{
        FieldDef, Found, FoundLayers, LayerName, LayerRecord, Level, Library, Origin, PluginError,
        PluginInfo, Policy, Search, embed, load_embedded,
    };
}
