//! Errors of importing, building and loading.

use kiln_backend::BackendError;
#[cfg(feature = "build")]
use kiln_builder::BuildError;
use kiln_ir::{ElementError, FormatError, IrError, OpError};
#[cfg(feature = "build")]
use kiln_network::NetworkError;
#[cfg(feature = "build")]
use kiln_onnx::OnnxError;
use kiln_plan::{PlanError, ProfileError};
use kiln_runtime::RuntimeError;
use std::path::PathBuf;
use thiserror::Error;

/// An error of importing, building or loading.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    #[cfg(feature = "build")]
    /// The model was refused.
    #[error("cannot import {}", path.display())]
    Import {
        /// The model's file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: Box<OnnxError>,
    },
    #[cfg(feature = "build")]
    /// A calibration cannot be used.
    #[error(transparent)]
    Calibration(#[from] crate::calibration_table::CalibrationError),
    #[cfg(feature = "build")]
    /// The network is wrong.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A network's text is wrong.
    #[error("{} is not a network", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Reason, with the line.
        #[source]
        source: IrError,
    },
    #[cfg(feature = "build")]
    /// The build failed.
    #[error("cannot build \"{network}\" for {backend}")]
    Build {
        /// The network's name.
        network: String,
        /// The backend.
        backend: String,
        /// Reason.
        #[source]
        source: BuildError,
    },
    /// A plug-in library that a plan holds, or is to hold, is refused.
    #[error(transparent)]
    Plugin(#[from] kiln_runtime::plugin::PluginError),
    /// Shapes do not fit the network.
    #[error("input \"{name}\": {message}")]
    Shape {
        /// The input.
        name: String,
        /// Difference from what the network wants.
        message: String,
    },
    /// Error of a machine where no backend has a device.
    #[error("no backend has a device here: {reasons}")]
    NoBackend {
        /// Reason of each backend.
        reasons: String,
    },
    /// The backend asked for is not here.
    #[error(
        "there is no backend \"{name}\" here, only {known}; put its library on the plug-in path: see `kiln backends`"
    )]
    UnknownBackend {
        /// The name asked for.
        name: String,
        /// Backends that are here.
        known: String,
    },
    /// A backend cannot say what devices it has.
    #[error("the backend \"{backend}\" finds no device")]
    Devices {
        /// The backend.
        backend: String,
        /// Reason.
        #[source]
        source: BackendError,
    },
    /// A backend has no device of this number or UUID.
    #[error(
        "the backend \"{backend}\" has no single device \"{wanted}\"; it has {count}, counted from 0: see `kiln backends`"
    )]
    NoDevice {
        /// The backend.
        backend: String,
        /// Device that was asked for.
        wanted: kiln_backend::DeviceChoice,
        /// Number of devices of the backend.
        count: usize,
    },
    /// A backend cannot make code for many architectures.
    #[error(
        "the backend \"{backend}\" makes code for {arch} alone: plans for Ampere and later are built by the backend \"cuda\" for a \
         device of sm_80 or later"
    )]
    HardwareCompatibility {
        /// The backend.
        backend: String,
        /// Architecture of its device.
        arch: String,
    },
    /// The target that was given is another backend's.
    #[error(
        "the target given is of the backend \"{found}\", the build is for \"{backend}\": leave one of them out"
    )]
    OtherTarget {
        /// The backend asked for.
        backend: String,
        /// The target's.
        found: String,
    },
    /// The plan file is broken.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The model is a plan, which an option of the build cannot change.
    #[error(
        "\"{name}\" is a plan for the backend \"{backend}\": the option {option} says how to build and does not apply; leave it \
         out, or give it when the plan is built"
    )]
    Built {
        /// The network's name.
        name: String,
        /// The backend that the plan was built for.
        backend: String,
        /// The option.
        option: &'static str,
    },
    /// A plan was to be built again, and does not store its network.
    #[error(
        "the plan \"{name}\" does not store its network, so that it cannot be built again: build it from the model, or build \
         plans with the option portable"
    )]
    NotPortable {
        /// The network's name.
        name: String,
    },
    /// The file is not a plan, and the program has no builder.
    #[cfg(not(feature = "build"))]
    #[error(
        "{} is not a plan, and this program was built without the feature \"build\" of kiln, so that it loads plans only: build a \
         plan of it with `kiln build`, or build the program with the feature", path.display()
    )]
    NoPlan {
        /// The file.
        path: PathBuf,
    },
    /// An array of a file does not make a tensor.
    #[error("array \"{name}\": {message}")]
    Array {
        /// Name of the array.
        name: String,
        /// Element or shape that does not fit.
        message: String,
    },
    /// A file does not have weights for the plan.
    #[error("{} has no weights for this plan: {message}", path.display())]
    WeightsFile {
        /// The file.
        path: PathBuf,
        /// Reason.
        message: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: std::io::Error,
    },
    /// A tensor cannot have a format, or is not in it.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Elements are not a tensor, or a tensor not such elements.
    #[error(transparent)]
    Elements(#[from] ElementError),
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] OpError),
    /// The runtime refused.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl From<ProfileError> for Error {
    fn from(e: ProfileError) -> Error {
        RuntimeError::from(e).into()
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Error {
        match never {}
    }
}
