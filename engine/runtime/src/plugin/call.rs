//! Calls into a library: where errors and results are written to.

use super::contained::contained;
use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ir::{Bytes, Tensor};

/// Longer messages are cut.
const MAX_MESSAGE: usize = 1 << 20;

/// Receiver of the error of a call.
#[derive(Default)]
pub(super) struct ErrorSink {
    pub(super) message: String,
    pub(super) details: Vec<(String, String)>,
}

/// Receiver of the bytes that a call writes.
#[derive(Default)]
pub(super) struct ByteSink {
    bytes: Vec<u8>,
}

/// Receiver of the tensors that a call writes.
pub(super) struct TensorSink {
    tensors: Vec<Tensor>,
    most: usize,
}

impl ByteSink {
    /// Appends, if the memory can be had.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let what = || "the bytes of a result".to_owned();
        self.bytes
            .try_reserve(bytes.len())
            .map_err(|_| BackendError::OutOfMemory { what: what(), bytes: bytes.len() as u64 })?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl TensorSink {
    /// Appends, unless there are as many as expected.
    pub(super) fn write(&mut self, view: &kiln_tensor) -> Result<(), BackendError> {
        if self.tensors.len() == self.most {
            return Err(BackendError::InvalidArgument(format!("more than {} tensors", self.most)));
        }
        // SAFETY: the library passes a view that is valid for the call.
        let t = unsafe { view::tensor(view, |data| Bytes::from(data.to_vec())) }?;
        self.tensors.push(t);
        Ok(())
    }
}

/// Text that a library passes, what is not UTF-8 replaced, cut where it is too long.
///
/// # Safety
/// The view is valid for the call.
pub(super) unsafe fn lossy(s: kiln_str) -> String {
    let len = s.len.min(MAX_MESSAGE as u64);
    // SAFETY: as this function's contract says.
    let bytes = unsafe { view::bytes(s.ptr.cast(), len) }.unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Calls a function that returns a status.
pub(super) fn status(f: impl FnOnce(*mut kiln_error) -> i32) -> Result<(), BackendError> {
    let mut sink = ErrorSink::default();
    match contained(|| f((&raw mut sink).cast()))? {
        KILN_OK => Ok(()),
        code => {
            let ErrorSink { mut message, details } = sink;
            if message.is_empty() && code != KILN_CANCELLED {
                message = "the library gives no reason".into();
            }
            let detail = |key: &str| details.iter().find(|d| d.0 == key).map(|d| d.1.clone());
            Err(BackendError::from_parts(code, message, detail))
        }
    }
}

/// Calls a function that writes bytes.
pub(super) fn bytes(f: impl FnOnce(*mut kiln_sink, *mut kiln_error) -> i32) -> Result<Vec<u8>, BackendError> {
    let mut sink = ByteSink::default();
    status(|err| f((&raw mut sink).cast(), err))?;
    Ok(sink.bytes)
}

/// Calls a function that writes this many tensors.
pub(super) fn tensors(
    count: usize,
    f: impl FnOnce(*mut kiln_tensor_sink, *mut kiln_error) -> i32,
) -> Result<Vec<Tensor>, BackendError> {
    let mut sink = TensorSink { tensors: Vec::new(), most: count };
    status(|err| f((&raw mut sink).cast(), err))?;
    match sink.tensors.len() {
        n if n == count => Ok(sink.tensors),
        n => Err(BackendError::Internal(format!("the backend wrote {n} tensors, wanted {count}"))),
    }
}

/// Calls a function that makes an object.
pub(super) fn object<O>(
    f: impl FnOnce(*mut *mut O, *mut kiln_error) -> i32,
) -> Result<std::ptr::NonNull<O>, BackendError> {
    let mut out: *mut O = std::ptr::null_mut();
    status(|err| f(&mut out, err))?;
    std::ptr::NonNull::new(out)
        .ok_or_else(|| BackendError::Internal("the backend reports success but made no object".into()))
}
