//! Panics end at the border of the library.

use super::host;
use crate::BackendError;
use kiln_abi::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a slot and returns its status; an error or a panic is reported to `err`.
pub(super) fn guard(err: *mut kiln_error, f: impl FnOnce() -> Result<(), BackendError>) -> i32 {
    match contain(f) {
        Ok(()) => KILN_OK,
        Err(e) => host::report(err, &e),
    }
}

/// Runs `f`; a panic becomes an error.
pub(super) fn contain<T>(f: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    // Anything that `f` leaves half done belongs to an object that is poisoned, so nobody sees it.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => Err(BackendError::Panicked(message(payload))),
    }
}

fn message(payload: Box<dyn Any + Send>) -> String {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(s), _) => (*s).to_owned(),
        (_, Some(s)) => s.clone(),
        _ => "with a value that is no text".to_owned(),
    };
    // Dropping what was panicked with may panic in turn; that one's payload is left alone.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    text
}

/// Sends messages of panics to the log of the host instead of the standard error stream.
pub(super) fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let message = info.payload_as_str().unwrap_or("a value that is no text");
        let (file, line) = info.location().map_or(("", 0), |l| (l.file(), l.line()));
        host::log_at(KILN_LOG_ERROR, &format!("panic: {message}"), file, line);
    }));
}
