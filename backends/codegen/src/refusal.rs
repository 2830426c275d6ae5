//! Errors of families of kernels.

use kiln_backend::BackendError;

/// A refusal: the backend has no kernel for this.
pub fn unsupported<T>(why: impl Into<String>) -> Result<T, BackendError> {
    Err(BackendError::Unsupported(why.into()))
}

/// An operator's complaint as a backend's error.
pub fn op_error(e: kiln_ir::OpError) -> BackendError {
    BackendError::InvalidArgument(e.to_string())
}
