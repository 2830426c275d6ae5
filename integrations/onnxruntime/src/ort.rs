//! The tables of functions that ONNX Runtime hands over; errors as its statuses, panics contained.

use crate::abi::{ApiBase, EpApi, VERSION};
use crate::error::Fail;
use ort_sys::{OrtApi, OrtLogger, OrtLoggingLevel, OrtStatusPtr};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The tables. They live as long as the process.
#[derive(Clone, Copy)]
pub struct Ort {
    pub api: &'static OrtApi,
    pub ep: &'static EpApi,
}

impl Ort {
    /// The tables; `None` if the ONNX Runtime is older than this library wants.
    ///
    /// # Safety
    /// The base is what ONNX Runtime handed over.
    pub unsafe fn new(base: *const ApiBase) -> Option<Ort> {
        // SAFETY: as the caller vouches; the tables are constants of ONNX Runtime.
        unsafe {
            let api = ((*base).GetApi)(VERSION).as_ref()?;
            let ep = (api.GetEpApi)().cast::<EpApi>().as_ref()?;
            Some(Ort { api, ep })
        }
    }

    /// A status as a result; it is freed.
    pub fn check(&self, status: OrtStatusPtr) -> Result<(), Fail> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: a status that was just returned, which is freed once its text is copied.
        unsafe {
            let text = text((self.api.GetErrorMessage)(status.0));
            (self.api.ReleaseStatus)(status.0);
            Err(Fail::new(format!("ONNX Runtime: {text}")))
        }
    }

    /// Writes a line to a log of ONNX Runtime.
    pub fn log(&self, logger: *const OrtLogger, level: OrtLoggingLevel, line: &str) {
        let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
        let file = c"kiln".as_ptr();
        // SAFETY: the session's logger, and texts that end with a NUL.
        let status =
            unsafe { (self.api.Logger_LogMessage)(logger, level, line.as_ptr(), file.cast(), 0, file) };
        let _ = self.check(status);
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

/// A text of ONNX Runtime; empty for NULL.
///
/// # Safety
/// NULL, or a text that ends with a NUL and lives as long as the call.
pub unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: as the caller vouches.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
