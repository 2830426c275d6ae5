//! Errors of a backend.

use kiln_ir::ErrorCode;
use thiserror::Error;

/// An error of a backend. The codes are those of the C ABI.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend can't do this; the reason feeds the report of what runs where.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// An argument breaks the contract.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// Memory could not be had.
    #[error("out of memory: {what}{}", wants(*bytes))]
    OutOfMemory {
        /// Purpose of the memory.
        what: String,
        /// Number of bytes; 0 where it is unknown.
        bytes: u64,
    },
    /// The device is gone; the executable and its contexts are unusable.
    #[error("device lost: {0}")]
    DeviceLost(String),
    /// A payload or blob was made for something else.
    #[error("incompatible: {0}")]
    Incompatible(String),
    /// A file or library could not be read.
    #[error("i/o: {0}")]
    Io(String),
    /// The caller asked to stop.
    #[error("cancelled{}", at(.layer))]
    Cancelled {
        /// The layer that the run had come to, behind those around it (`loop / add`); empty where that is not known.
        layer: String,
    },
    /// The backend panicked; the object it happened in is unusable.
    #[error("the backend panicked: {0}")]
    Panicked(String),
    /// The contents of a tensor are illegal for a layer (an assertion that failed, a negative size).
    #[error("layer \"{layer}\": {message}")]
    Execution {
        /// The layer.
        layer: String,
        /// Description of the failure.
        message: String,
    },
    /// A defect of the backend.
    #[error("internal error: {0}")]
    Internal(String),
}

fn at(layer: &str) -> String {
    if layer.is_empty() { String::new() } else { format!(" at layer \"{layer}\"") }
}

fn wants(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(" wants {bytes} bytes") }
}

impl BackendError {
    /// Class of the error.
    pub fn class(&self) -> ErrorCode {
        match self {
            BackendError::Unsupported(_) | BackendError::Incompatible(_) => ErrorCode::UnsupportedState,
            BackendError::InvalidArgument(_) => ErrorCode::InvalidArgument,
            BackendError::OutOfMemory { .. } => ErrorCode::FailedAllocation,
            BackendError::DeviceLost(_) => ErrorCode::FailedExecution,
            BackendError::Io(_) => ErrorCode::FailedInitialization,
            BackendError::Cancelled { .. } => ErrorCode::Unspecified,
            BackendError::Execution { .. } => ErrorCode::FailedComputation,
            BackendError::Panicked(_) | BackendError::Internal(_) => ErrorCode::Internal,
        }
    }

    /// A cancelled run, at a layer that is not known yet.
    pub fn cancelled() -> BackendError {
        BackendError::Cancelled { layer: String::new() }
    }

    /// Error of a body, for the step of control flow that ran it: where it was cancelled, the step is named
    /// in front.
    pub fn inside(self, step: &str) -> BackendError {
        match self {
            BackendError::Cancelled { layer } if layer.is_empty() => {
                BackendError::Cancelled { layer: step.to_owned() }
            }
            BackendError::Cancelled { layer } => {
                BackendError::Cancelled { layer: format!("{step} / {layer}") }
            }
            e => e,
        }
    }
}

impl From<kiln_ir::IrError> for BackendError {
    fn from(e: kiln_ir::IrError) -> Self {
        match e {
            kiln_ir::IrError::Layer { layer, source: kiln_ir::OpError::Memory(e), .. } => {
                BackendError::OutOfMemory {
                    what: format!(
                        "layer \"{layer}\" (the limit is {} bytes, {} are in use; raise it with --memory-limit)",
                        e.limit, e.used
                    ),
                    bytes: e.wanted,
                }
            }
            kiln_ir::IrError::Layer { layer, source, .. } => {
                BackendError::Execution { layer, message: source.to_string() }
            }
            other => BackendError::InvalidArgument(other.to_string()),
        }
    }
}
