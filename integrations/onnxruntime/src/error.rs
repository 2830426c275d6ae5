//! Errors as statuses of ONNX Runtime; panics are contained.

use crate::ort::Ort;
use ort_sys::{OrtErrorCode, OrtStatusPtr};
use std::error::Error as StdError;
use std::ffi::CString;
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

/// Runs the body of a function that ONNX Runtime called.
pub fn guard(ort: &Ort, body: impl FnOnce() -> Result<(), Fail>) -> OrtStatusPtr {
    let fail = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OrtStatusPtr::default(),
        Ok(Err(fail)) => fail,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|t| (*t).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            std::mem::forget(payload);
            Fail::new(format!("a defect of Kiln or of a plug-in (panic: {text})"))
        }
    };
    let text = CString::new(fail.text.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the table's function, with a text that it copies.
    unsafe { (ort.api.CreateStatus)(fail.code, text.as_ptr()) }
}

/// Runs the body of a function that returns no status.
pub fn quietly(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(payload);
    }
}
