//! Error recorders: functions of the caller that are told of every error of several objects.

use crate::callback::{Callback, kiln_destroy_fn};
use kiln::{ErrorCode, ErrorRecorder};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Takes an error: its code, and its message with all causes, which lives for the call. Called by any thread.
pub type kiln_error_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, code: i32, message: *const c_char, length: usize)>;

type Function = unsafe extern "C" fn(*mut c_void, i32, *const c_char, usize);

struct Recorder(Callback<Function>);

impl ErrorRecorder for Recorder {
    fn report(&self, code: ErrorCode, description: &str) {
        let Callback { function, user, .. } = &self.0;
        // SAFETY: the caller's function for its pointer.
        unsafe { function(*user, code.number(), description.as_ptr().cast(), description.len()) };
    }
}

/// A recorder that calls a function; none for NULL.
pub fn recorder(
    function: kiln_error_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> Option<Arc<dyn ErrorRecorder>> {
    let callback = Callback::new(function, user, destroy)?;
    Some(Arc::new(Recorder(callback)))
}
