//! Errors: code, message and causes. A panic becomes an error, and never leaves a function.

use crate::raw;
use kiln::{ErrorCode, PlanError, RuntimeError};
use std::any::Any;
use std::error::Error as StdError;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error, owned by whoever got it: `kiln_error_destroy` frees it.
pub struct kiln_error_t {
    code: ErrorCode,
    cancelled: bool,
    /// The message, then its causes, each with a NUL at its end.
    texts: Vec<String>,
}

/// Error of a function, before it is handed to C.
pub struct Fail(Box<kiln_error_t>);

impl Fail {
    /// An error without causes.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Fail {
        Fail(Box::new(kiln_error_t { code, cancelled: false, texts: vec![terminated(message.into())] }))
    }

    /// An error of the caller's arguments.
    pub fn argument(message: impl Into<String>) -> Fail {
        Fail::new(ErrorCode::InvalidArgument, message)
    }

    /// An error with its causes.
    pub fn of(code: ErrorCode, error: &(dyn StdError + 'static)) -> Fail {
        let mut texts = vec![terminated(error.to_string())];
        let mut cancelled = is_cancelled(error);
        let mut next = error.source();
        while let Some(cause) = next {
            texts.push(terminated(cause.to_string()));
            cancelled |= is_cancelled(cause);
            next = cause.source();
        }
        Fail(Box::new(kiln_error_t { code, cancelled, texts }))
    }

    /// Notes that the caller itself stopped what failed.
    pub fn cancelled(mut self) -> Fail {
        self.0.cancelled = true;
        self
    }

    fn panicked(payload: &(dyn Any + Send)) -> Fail {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("without a text");
        Fail::new(
            ErrorCode::Internal,
            format!(
                "a defect of Kiln or of a plug-in (panic: {text}); do not use the objects of this call again, and report it"
            ),
        )
    }
}

/// Whether an error says that the caller stopped a run.
fn is_cancelled(error: &(dyn StdError + 'static)) -> bool {
    matches!(error.downcast_ref::<RuntimeError>(), Some(RuntimeError::Cancelled { .. }))
}

fn terminated(mut text: String) -> String {
    text.push('\0');
    text
}

impl From<kiln::Error> for Fail {
    fn from(e: kiln::Error) -> Fail {
        Fail::of(e.code(), &e)
    }
}

macro_rules! from {
    ($($error:ty),*) => {$(
        impl From<$error> for Fail {
            fn from(e: $error) -> Fail {
                Fail::of(e.code(), &e)
            }
        }
    )*};
}
from!(RuntimeError, PlanError, kiln::OpError);

impl From<kiln::plugin::PluginError> for Fail {
    fn from(e: kiln::plugin::PluginError) -> Fail {
        kiln::Error::from(e).into()
    }
}

/// Runs the body of a function: NULL if it is done, otherwise its error. A panic of it is an error, too.
pub fn guard(body: impl FnOnce() -> Result<(), Fail>) -> *mut kiln_error_t {
    let fail = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(fail)) => fail,
        Err(payload) => {
            let fail = Fail::panicked(&*payload);
            // Dropping it may panic again.
            std::mem::forget(payload);
            fail
        }
    };
    Box::into_raw(fail.0)
}

/// Runs the body of a function that returns no error, such as one that frees an object.
pub fn quietly(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        tracing::error!("a defect of Kiln or of a plug-in: a panic while an object was freed");
        std::mem::forget(payload);
    }
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_destroy(error: *mut kiln_error_t) {
    // SAFETY: an error of this library that nobody else frees, or NULL.
    quietly(|| unsafe { raw::free(error) });
}

/// The code of an error: KILN_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_code(error: *const kiln_error_t) -> i32 {
    // SAFETY: an error of this library, or NULL.
    unsafe { error.as_ref() }.map_or(ErrorCode::Success, |e| e.code).number()
}

/// Whether the caller stopped what failed: a callback that returned false, or a canceller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_is_cancelled(error: *const kiln_error_t) -> bool {
    // SAFETY: an error of this library, or NULL.
    unsafe { error.as_ref() }.is_some_and(|e| e.cancelled)
}

/// The message of an error, in UTF-8 with a NUL behind it, as long as the error lives. `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_message(error: *const kiln_error_t, length: *mut usize) -> *const c_char {
    // SAFETY: an error of this library or NULL; a place for a number or NULL.
    unsafe { text_of(error, 0, length) }
}

/// Number of causes behind the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_cause_count(error: *const kiln_error_t) -> usize {
    // SAFETY: an error of this library, or NULL.
    unsafe { error.as_ref() }.map_or(0, |e| e.texts.len().saturating_sub(1))
}

/// A cause of an error, the nearest first; NULL if there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_error_cause(
    error: *const kiln_error_t,
    index: usize,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: an error of this library or NULL; a place for a number or NULL.
    unsafe { text_of(error, index.saturating_add(1), length) }
}

unsafe fn text_of(error: *const kiln_error_t, index: usize, length: *mut usize) -> *const c_char {
    // SAFETY: as the callers say.
    let text = unsafe { error.as_ref() }.and_then(|e| e.texts.get(index));
    // SAFETY: as the callers say.
    unsafe { raw::put(length, text.map_or(0, |t| t.len() - 1)) };
    text.map_or(std::ptr::null(), |t| t.as_ptr().cast())
}

/// No error.
pub const KILN_OK: i32 = 0;
/// An error of no other class, such as a run that was cancelled.
pub const KILN_ERROR_UNSPECIFIED: i32 = 1;
/// A defect of Kiln, of a backend or of a plug-in, such as a panic.
pub const KILN_ERROR_INTERNAL: i32 = 2;
/// An argument that is not allowed: a name, a type, a shape, a file, a NULL.
pub const KILN_ERROR_INVALID_ARGUMENT: i32 = 3;
/// A network or a setting of a build that is not allowed.
pub const KILN_ERROR_INVALID_CONFIG: i32 = 4;
/// Memory that could not be had.
pub const KILN_ERROR_FAILED_ALLOCATION: i32 = 5;
/// A device, library or backend that could not be used.
pub const KILN_ERROR_FAILED_INITIALIZATION: i32 = 6;
/// A device that failed in a run.
pub const KILN_ERROR_FAILED_EXECUTION: i32 = 7;
/// Contents of tensors that a layer cannot compute with.
pub const KILN_ERROR_FAILED_COMPUTATION: i32 = 8;
/// A call that is not allowed at this time, such as one on an object that another thread uses.
pub const KILN_ERROR_INVALID_STATE: i32 = 9;
/// A legal wish that this device, backend or version does not meet.
pub const KILN_ERROR_UNSUPPORTED_STATE: i32 = 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "the panic is what is tested")]
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_becomes_an_error_with_a_code() {
        for payload in ["text", "owned"] {
            let error = guard(|| if payload == "text" { panic!("text") } else { panic!("{payload}") });
            // SAFETY: the error of just now.
            let (code, text) = unsafe {
                (kiln_error_code(error), CStr::from_ptr(kiln_error_message(error, std::ptr::null_mut())))
            };
            assert_eq!(code, KILN_ERROR_INTERNAL);
            assert!(text.to_string_lossy().contains(payload), "{text:?}");
            // SAFETY: it is freed once.
            unsafe { kiln_error_destroy(error) };
        }
        quietly(|| panic!("nobody hears of it"));
    }

    #[test]
    fn codes_are_those_of_the_facade() {
        for (code, number) in [
            (ErrorCode::Success, KILN_OK),
            (ErrorCode::Unspecified, KILN_ERROR_UNSPECIFIED),
            (ErrorCode::Internal, KILN_ERROR_INTERNAL),
            (ErrorCode::InvalidArgument, KILN_ERROR_INVALID_ARGUMENT),
            (ErrorCode::InvalidConfig, KILN_ERROR_INVALID_CONFIG),
            (ErrorCode::FailedAllocation, KILN_ERROR_FAILED_ALLOCATION),
            (ErrorCode::FailedInitialization, KILN_ERROR_FAILED_INITIALIZATION),
            (ErrorCode::FailedExecution, KILN_ERROR_FAILED_EXECUTION),
            (ErrorCode::FailedComputation, KILN_ERROR_FAILED_COMPUTATION),
            (ErrorCode::InvalidState, KILN_ERROR_INVALID_STATE),
            (ErrorCode::UnsupportedState, KILN_ERROR_UNSUPPORTED_STATE),
        ] {
            assert_eq!(code.number(), number);
        }
    }
}
