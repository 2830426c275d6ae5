//! Errors in words, with the class that ONNX Runtime has for them.

use ort_sys::OrtErrorCode;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error in words, with the class that ONNX Runtime has for it.
#[derive(Debug)]
pub struct Fail {
    pub code: OrtErrorCode,
    pub text: String,
}

impl Fail {
    pub fn new(text: impl Into<String>) -> Fail {
        Fail { code: OrtErrorCode::ORT_EP_FAIL, text: text.into() }
    }

    pub fn argument(text: impl Into<String>) -> Fail {
        Fail { code: OrtErrorCode::ORT_INVALID_ARGUMENT, text: text.into() }
    }
}

/// An error with its causes.
pub fn described(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl From<kiln::Error> for Fail {
    fn from(e: kiln::Error) -> Fail {
        Fail::new(described(&e))
    }
}

impl From<kiln::RuntimeError> for Fail {
    fn from(e: kiln::RuntimeError) -> Fail {
        Fail::new(described(&e))
    }
}

impl From<kiln::PlanError> for Fail {
    fn from(e: kiln::PlanError) -> Fail {
        Fail::new(described(&e))
    }
}

/// Runs the body of a function that returns no status.
pub fn quietly(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(payload);
    }
}
