//! Errors of loading or running an engine.

use kiln_backend::{BackendError, DeviceChoice};
use kiln_ir::{DType, ErrorCode, FormatError, IrError};
use kiln_plan::{AbsentWeight, PlanError, ProfileError};
use std::time::Duration;
use thiserror::Error;

/// An error of the runtime. Those about a tensor name it, say what was found and what was wanted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Name that no tensor has.
    #[error("the engine has no {mode} \"{name}\"; it has {known}")]
    UnknownTensor {
        /// The name asked for.
        name: String,
        /// "input", "output" or "tensor".
        mode: &'static str,
        /// The names that exist.
        known: String,
    },
    /// An input was not given.
    #[error("input \"{name}\" is missing; it wants {wanted}")]
    MissingInput {
        /// The input.
        name: String,
        /// Type of the missing input.
        wanted: String,
    },
    /// An input was given twice.
    #[error("input \"{name}\" is given twice")]
    DuplicateInput {
        /// The input.
        name: String,
    },
    /// An input has the wrong element type.
    #[error(
        "input \"{name}\" is {found}, wants {wanted}; convert it, or build the engine for {found} inputs"
    )]
    DType {
        /// The input.
        name: String,
        /// Element type of the tensor.
        found: DType,
        /// The engine's.
        wanted: DType,
    },
    /// An input has the wrong number of dimensions.
    #[error("input \"{name}\" has shape {found:?}, wants {wanted_rank} dimensions: [{wanted}]")]
    Rank {
        /// The input.
        name: String,
        /// Shape of the tensor.
        found: Vec<usize>,
        /// Number of dimensions wanted.
        wanted_rank: usize,
        /// Dimensions of the input, as text.
        wanted: String,
    },
    /// Memory of an input has another size than its format wants.
    #[error("input \"{name}\" of shape {shape:?} ({format}) has {found} bytes, wants {wanted}")]
    Bytes {
        /// The input.
        name: String,
        /// Type and format in words.
        format: String,
        /// Dimensions of the tensor.
        shape: Vec<usize>,
        /// Bytes that were given.
        found: u64,
        /// Bytes of the tensor in its format.
        wanted: u64,
    },
    /// A tensor that cannot be brought into the format of an input or output, or out of it.
    #[error("\"{name}\": {source}")]
    Format {
        /// The input or output.
        name: String,
        /// Reason.
        #[source]
        source: FormatError,
    },
    /// A fixed dimension differs.
    #[error("input \"{name}\" has shape {found:?}: dimension {axis} must be {wanted}")]
    Dim {
        /// The input.
        name: String,
        /// Shape of the tensor.
        found: Vec<usize>,
        /// The dimension that differs.
        axis: usize,
        /// Size that is allowed.
        wanted: String,
    },
    /// One symbol would have two values.
    #[error(
        "dimension \"{symbol}\" is {a} in input \"{a_name}\" and {b} in input \"{b_name}\"; it must be the same in both"
    )]
    Symbol {
        /// The symbol.
        symbol: String,
        /// An input.
        a_name: String,
        /// Value of the symbol there.
        a: i64,
        /// Name of another input (or the same, at another dimension).
        b_name: String,
        /// Value of the symbol there.
        b: i64,
    },
    /// An input's shape is outside of the optimization profile.
    #[error(
        "input \"{name}\" has {what} {found:?}, outside profile {profile}: min {min:?}, max {max:?}; build the engine \
         with a profile that covers it"
    )]
    OutsideProfile {
        /// The input.
        name: String,
        /// "shape" or "values".
        what: &'static str,
        /// Shape or elements of the input.
        found: Vec<i64>,
        /// The profile.
        profile: usize,
        /// Least allowed value.
        min: Vec<i64>,
        /// Greatest allowed value.
        max: Vec<i64>,
    },
    /// Inputs that no optimization profile holds.
    #[error("none of the {count} profiles covers the inputs; the nearest: {nearest}")]
    NoProfile {
        /// Number of profiles of the engine.
        count: usize,
        /// Reason why the last profile tried does not.
        nearest: String,
    },
    /// An optimization profile is illegal.
    #[error("optimization profile: {0}")]
    Profile(#[from] ProfileError),
    /// Outputs were asked for before a run.
    #[error("{0}")]
    State(String),
    /// A plan wants a backend that is not there.
    #[error(
        "the plan wants the backend \"{name}\"; there is {known}. Link it in, or put its library on the plug-in path"
    )]
    NoBackend {
        /// The backend.
        name: String,
        /// The registered ones.
        known: String,
    },
    /// A backend of this name exists already.
    #[error("two backends are named \"{0}\"")]
    DuplicateBackend(String),
    /// The plan does not run on this device.
    #[error("the plan does not run here: {0}")]
    Incompatible(String),
    /// A backend has no device of this number or UUID, or several whose UUIDs begin so.
    #[error("the backend \"{backend}\" has no single device \"{wanted}\"; there is {known}")]
    NoDevice {
        /// The backend.
        backend: String,
        /// Device that was asked for.
        wanted: DeviceChoice,
        /// Number, name and UUID of each device.
        known: String,
    },
    /// A layer of a plug-in whose library is not loaded, or is another one than the plan was built with.
    #[error(
        "layer \"{label}\" is plug-in layer {layer}, from the library {wanted}; {found}: install that library and name its path \
         (--plugin, KILN_PLUGIN_PATH), or build the plan again"
    )]
    PluginLayer {
        /// The layer of the plan.
        label: String,
        /// Name and version of the plug-in's layer.
        layer: String,
        /// Name, version and hash of the library.
        wanted: String,
        /// State of this process.
        found: String,
    },
    /// A weight can't be set.
    #[error("refit: {0}")]
    Refit(String),
    /// A run of an engine whose plan was stripped of weights.
    #[error(
        "the plan was stripped of {count} weights, and no refit has supplied them: refit the engine first, or write a filled \
         one with `kiln refit`; missing are {names}"
    )]
    Stripped {
        /// Number of weights that are missing.
        count: usize,
        /// Some of their names.
        names: String,
    },
    /// The plan file is broken.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run was stopped: see `Canceller`.
    #[error("the run was cancelled{}", reached(.layer))]
    Cancelled {
        /// The layer that it had come to, behind those around it (`loop / add`); empty where that is not known.
        layer: String,
    },
    /// The run took longer than its limit, from `enqueue` until its outputs were taken.
    #[error(
        "the run was stopped at its limit of {limit:?}{}; set a longer one, or look with `kiln bench --profile` for what \
         takes so long",
        reached(.layer)
    )]
    TimedOut {
        /// The limit.
        limit: Duration,
        /// Layer, as in [`RuntimeError::Cancelled`].
        layer: String,
    },
    /// The debug listener refused a tensor.
    #[error("the debug listener refused tensor \"{tensor}\"; the run is done, and its outputs are dropped")]
    DebugListener {
        /// The tensor.
        tensor: String,
    },
    /// An output allocator returned no memory.
    #[error("the allocator of output \"{output}\" supplied no memory for its {bytes} bytes")]
    OutputAllocator {
        /// The output.
        output: String,
        /// Bytes that it was asked for.
        bytes: u64,
    },
    /// The process was forked after it had used Kiln.
    #[error(transparent)]
    Forked(#[from] kiln_backend::process::Forked),
    /// The backend failed.
    #[error("backend \"{backend}\": {source}")]
    Backend {
        /// Name of the backend.
        backend: String,
        /// Error of the backend.
        #[source]
        source: BackendError,
    },
    /// Shapes do not go together, found before anything ran.
    #[error(transparent)]
    Ir(#[from] IrError),
}

impl RuntimeError {
    /// Class of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            RuntimeError::UnknownTensor { .. }
            | RuntimeError::DuplicateInput { .. }
            | RuntimeError::DType { .. }
            | RuntimeError::Rank { .. }
            | RuntimeError::Dim { .. }
            | RuntimeError::Symbol { .. }
            | RuntimeError::OutsideProfile { .. }
            | RuntimeError::NoProfile { .. }
            | RuntimeError::Profile(_)
            | RuntimeError::DuplicateBackend(_)
            | RuntimeError::Bytes { .. }
            | RuntimeError::Format { .. }
            | RuntimeError::NoDevice { .. }
            | RuntimeError::Refit(_) => ErrorCode::InvalidArgument,
            RuntimeError::MissingInput { .. }
            | RuntimeError::State(_)
            | RuntimeError::Stripped { .. }
            | RuntimeError::Forked(_) => ErrorCode::InvalidState,
            RuntimeError::NoBackend { .. } | RuntimeError::PluginLayer { .. } => {
                ErrorCode::FailedInitialization
            }
            RuntimeError::Incompatible(_) => ErrorCode::UnsupportedState,
            RuntimeError::Cancelled { .. }
            | RuntimeError::TimedOut { .. }
            | RuntimeError::DebugListener { .. } => ErrorCode::Unspecified,
            RuntimeError::OutputAllocator { .. } => ErrorCode::FailedAllocation,
            RuntimeError::Plan(e) => e.code(),
            RuntimeError::Backend { source, .. } => source.class(),
            RuntimeError::Ir(e) => e.code(),
        }
    }

    pub(crate) fn stripped(absent: &[AbsentWeight]) -> RuntimeError {
        let names: Vec<&str> = absent.iter().map(|a| a.name.as_str()).collect();
        RuntimeError::Stripped { count: names.len(), names: listed(&names) }
    }
}

/// Names in an error: some of them, and how many there are beyond these.
pub(crate) fn listed(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().map(AsRef::as_ref).take(LISTED).collect();
    let more = names.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &rest
}

/// Names that an error lists.
const LISTED: usize = 10;

fn reached(layer: &str) -> String {
    if layer.is_empty() { String::new() } else { format!(" at layer \"{layer}\"") }
}
