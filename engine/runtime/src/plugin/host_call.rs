//! Calls of libraries to this host: operators that they pass, and errors that they get.

use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ir::{Op, OpError};
use std::ffi::c_void;

/// Receiver of an error.
pub(super) type Error = Option<unsafe extern "C" fn(*mut c_void, i32, kiln_str)>;

/// Passes an error to a library, and returns its code.
///
/// # Safety
/// `user` is what the library wants back.
pub(super) unsafe fn refuse(e: BackendError, user: *mut c_void, error: Error) -> i32 {
    if let Some(error) = error {
        // SAFETY: the view lives for the call; otherwise as this function's contract says.
        unsafe { error(user, e.code(), kiln_str::new(&e.parts().0)) }
    }
    e.code()
}

/// The operator of a payload.
///
/// # Safety
/// The view is valid for the call.
pub(super) unsafe fn op(op: kiln_bytes) -> Result<Op, BackendError> {
    // SAFETY: as this function's contract says.
    let op = unsafe { view::bytes(op.ptr, op.len) }?;
    minicbor::decode(op).map_err(|e| BackendError::Incompatible(e.to_string()))
}

/// The error of a layer, as a backend takes it.
pub(super) fn of_layer(e: OpError) -> BackendError {
    match e {
        OpError::Unsupported(why) => BackendError::Unsupported(why),
        e => BackendError::InvalidArgument(e.to_string()),
    }
}
