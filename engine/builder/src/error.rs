//! Errors of a build.

use crate::{MemoryPool, Reformat};
use kiln_backend::{BackendError, Region};
use kiln_ir::{DType, ErrorCode, Graph, IrError};
use kiln_plan::HostLayer;
use thiserror::Error;

/// An error of a build.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The network definition is wrong.
    #[error(transparent)]
    Network(#[from] kiln_network::NetworkError),
    /// A graph of the build is wrong.
    #[error(transparent)]
    Graph(#[from] IrError),
    /// A pass broke the graph: a defect of Kiln.
    #[error("pass {pass} left a broken graph: {source}")]
    Pass {
        /// The pass.
        pass: &'static str,
        /// Error of the verifier.
        #[source]
        source: IrError,
    },
    /// No plug-in layer with a pattern has a name.
    #[error(
        "replace_by_plugins names \"{name}\", and no plug-in layer with a pattern has this name; there are: {known}; load its \
         library (--plugin, KILN_PLUGIN_PATH)"
    )]
    NoPattern {
        /// The name.
        name: String,
        /// Names of layers with patterns.
        known: String,
    },
    /// Layer that no tactic of the backend runs.
    #[error("backend {backend} can't run layer \"{layer}\" ({op}) with inputs {inputs}: {reasons}")]
    NoTactic {
        /// The backend.
        backend: String,
        /// The layer.
        layer: String,
        /// Operator of the layer.
        op: String,
        /// Types of its inputs.
        inputs: String,
        /// Reasons why the tactics were refused.
        reasons: String,
    },
    /// More auxiliary streams than a program can have.
    #[error(
        "{wanted} auxiliary streams are permitted, and a program has {most} at most; permit fewer (--max-aux-streams)"
    )]
    AuxStreams {
        /// The number that was asked for.
        wanted: usize,
        /// The greatest number.
        most: usize,
    },
    /// The backend can't take tactics from a library.
    #[error("backend {backend} has no tactic source \"{name}\"; there are: {offers}")]
    TacticSource {
        /// The backend.
        backend: String,
        /// The source that was asked for.
        name: String,
        /// The names that it has.
        offers: String,
    },
    /// A version-compatible build with tactics of a library, which another version may not have.
    #[error(
        "a version-compatible plan cannot take tactics of the library \"{name}\": build it without this tactic source, or not \
         version-compatible"
    )]
    VersionCompatibleLibrary {
        /// The tactic source.
        name: String,
    },
    /// A layer whose launches a plan cannot hold.
    #[error(
        "layer \"{layer}\" (tactic \"{tactic}\") cannot be part of a version-compatible plan: {why}; change the layer or the \
         profiles, or build the plan for this version of the backend only"
    )]
    VersionCompatible {
        /// The layer.
        layer: String,
        /// The tactic.
        tactic: String,
        /// Reason of the backend.
        why: String,
    },
    /// A profile is missing or does not fit the network.
    #[error("{0}")]
    Profile(String),
    /// The backend failed.
    #[error("backend {backend}: {source}")]
    Backend {
        /// The backend.
        backend: String,
        /// Error of the backend.
        #[source]
        source: BackendError,
    },
    /// A locked build needs a timing that the cache lacks.
    #[error(
        "the timing cache has no entry for layer \"{layer}\" ({key}), and the build is locked to it; build once without --locked, or, for recorded tactics, with the network and settings that were recorded"
    )]
    CacheMiss {
        /// The layer.
        layer: String,
        /// The key.
        key: String,
    },
    /// A strict build of a network whose runs would need the host.
    #[error("backend {backend} needs the host at {}", list(.layers))]
    NeedsHost {
        /// The backend.
        backend: String,
        /// The layers, with reasons.
        layers: Vec<HostLayer>,
    },
    /// A constraint on types can't be met.
    #[error("layer \"{layer}\": {message}")]
    Precision {
        /// The layer.
        layer: String,
        /// Type that is wanted, and why it can't be.
        message: String,
    },
    /// A setting for an input or output that the network does not have.
    #[error("there is no input or output \"{name}\"; the inputs are {inputs}, the outputs {outputs}")]
    UnknownIo {
        /// The name.
        name: String,
        /// Names of the inputs.
        inputs: String,
        /// Names of the outputs.
        outputs: String,
    },
    /// A type that an input or output cannot have at the border.
    #[error("\"{tensor}\" is {found} in the network and cannot be {wanted} at its border: {why}")]
    IoType {
        /// The input or output.
        tensor: String,
        /// Type in the network.
        found: DType,
        /// Type that was asked for.
        wanted: DType,
        /// Reason, and what to do.
        why: String,
    },
    /// Formats of which an input or output can have none.
    #[error("\"{tensor}\" ({ty}) can have none of the formats allowed: {why}")]
    Format {
        /// The input or output.
        tensor: String,
        /// Its type and dimensions.
        ty: String,
        /// Reason for each format.
        why: String,
    },
    /// Direct I/O of inputs or outputs that need a kernel of their own.
    #[error(
        "direct I/O on backend {backend}: {}; allow the type and format that the layer has, or build without direct I/O",
        .reformats.iter().map(Reformat::to_string).collect::<Vec<_>>().join("; ")
    )]
    DirectIo {
        /// The backend.
        backend: String,
        /// Inputs and outputs with the kernels that they need.
        reformats: Vec<Reformat>,
    },
    /// A timing cache of other devices, or of other settings.
    #[error(
        "the timing cache has no times of \"{wanted}\" with this backend's version and these settings; it has times of \"{found}\": \
         give another one, or permit the mismatch"
    )]
    OtherCache {
        /// Device of one of its entries.
        found: String,
        /// Device of the build.
        wanted: String,
    },
    /// Recorded tactics of another backend.
    #[error("the recorded tactics are of backend {found}, the build is for {wanted}: record them with it")]
    OtherRecord {
        /// The record's backend.
        found: String,
        /// Backend of the build.
        wanted: String,
    },
    /// Recorded tactics are to be replayed, and a selector is to choose.
    #[error(
        "recorded tactics are replayed, and a selector is set: both choose all tactics; leave one of them out"
    )]
    ReplayAndSelector,
    /// The selector of algorithms refused, or chose what is not there.
    #[error("layer \"{layer}\": {message}")]
    Selection {
        /// The layer.
        layer: String,
        /// Reason.
        message: String,
    },
    /// A weight that is to be refittable does not exist.
    #[error("no weight is named \"{name}\", so that it cannot be refittable; there are {known}, …")]
    UnknownWeights {
        /// The name asked for.
        name: String,
        /// Some names of weights.
        known: String,
    },
    /// A limit of a pool of memory that is not allowed.
    #[error("the pool \"{pool}\" cannot have {limit} bytes: {message}")]
    Pool {
        /// The pool.
        pool: MemoryPool,
        /// The limit that was asked for.
        limit: u64,
        /// Reason, and what is allowed.
        message: String,
        /// Class of the error: too small, or too large.
        code: ErrorCode,
    },
    /// A limit of the device that is not allowed, or that the plan does not fit in.
    #[error("the limit {what}={limit} cannot be kept: {message}")]
    Limit {
        /// The limit: "sms", or "memory" in bytes.
        what: &'static str,
        /// The number that was asked for.
        limit: u64,
        /// Reason, and what is possible.
        message: String,
        /// Class of the error.
        code: ErrorCode,
    },
    /// A tensor that is to be debugged does not exist.
    #[error(
        "no tensor outside of loops and conditionals is named \"{name}\", so that it cannot be debugged; there are {known}, …"
    )]
    UnknownTensor {
        /// The name asked for.
        name: String,
        /// Some names of tensors.
        known: String,
    },
    /// The progress callback asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The process was forked after it had used Kiln.
    #[error(transparent)]
    Process(kiln_backend::process::Forked),
}

impl BuildError {
    /// Class of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            BuildError::Network(e) => e.code(),
            BuildError::Graph(e) => e.code(),
            BuildError::Pass { .. } => ErrorCode::Internal,
            BuildError::NoTactic { .. }
            | BuildError::NeedsHost { .. }
            | BuildError::VersionCompatible { .. }
            | BuildError::DirectIo { .. } => ErrorCode::UnsupportedState,
            BuildError::TacticSource { .. }
            | BuildError::VersionCompatibleLibrary { .. }
            | BuildError::Profile(_)
            | BuildError::AuxStreams { .. }
            | BuildError::Precision { .. }
            | BuildError::NoPattern { .. }
            | BuildError::ReplayAndSelector
            | BuildError::Selection { .. } => ErrorCode::InvalidConfig,
            BuildError::Backend { source, .. } => source.class(),
            BuildError::CacheMiss { .. } | BuildError::Process(_) => ErrorCode::InvalidState,
            BuildError::OtherCache { .. }
            | BuildError::OtherRecord { .. }
            | BuildError::UnknownTensor { .. }
            | BuildError::UnknownIo { .. }
            | BuildError::IoType { .. }
            | BuildError::Format { .. }
            | BuildError::UnknownWeights { .. } => ErrorCode::InvalidArgument,
            BuildError::Pool { code, .. } | BuildError::Limit { code, .. } => *code,
            BuildError::Cancelled => ErrorCode::Unspecified,
        }
    }

    /// The error with names of a region's inputs, which the backend does not see.
    pub(crate) fn with_names(mut self, g: &Graph, region: &Region) -> BuildError {
        if let BuildError::NoTactic { inputs, .. } = &mut self {
            let types = region.graph.inputs.iter().map(|&v| region.graph.ty(v));
            let named = region.inputs.iter().zip(types);
            let all = named.map(|(&v, ty)| format!("\"{}\" {ty}", g.value(v).name));
            *inputs = all.collect::<Vec<_>>().join(", ");
        }
        self
    }
}

/// Layers that are written out in an error; further ones are counted.
const LISTED: usize = 8;

/// Layers with their reasons, as the end of a sentence.
fn list(layers: &[HostLayer]) -> String {
    let one = |l: &HostLayer| match l.advice.as_str() {
        "" => format!("layer \"{}\": {}", l.name, l.why),
        advice => format!("layer \"{}\": {} ({advice})", l.name, l.why),
    };
    let named: Vec<String> = layers.iter().take(LISTED).map(one).collect();
    let rest = layers.len().saturating_sub(LISTED);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    format!("{}{more}. A build that is not strict runs it", named.join("; "))
}
