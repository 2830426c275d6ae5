//! Memory that the library owns and the caller reads.

use crate::error::quietly;
use crate::handle;
use std::ffi::c_char;

/// Bytes or text of the library's, such as a plan, a timing cache or JSON.
pub struct kiln_bytes_t {
    /// The bytes and a NUL.
    bytes: Vec<u8>,
}

impl From<Vec<u8>> for kiln_bytes_t {
    fn from(mut bytes: Vec<u8>) -> kiln_bytes_t {
        bytes.push(0);
        kiln_bytes_t { bytes }
    }
}

impl From<String> for kiln_bytes_t {
    fn from(text: String) -> kiln_bytes_t {
        text.into_bytes().into()
    }
}

impl From<serde_json::Value> for kiln_bytes_t {
    fn from(value: serde_json::Value) -> kiln_bytes_t {
        value.to_string().into()
    }
}

/// Frees the bytes. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_bytes_destroy(bytes: *mut kiln_bytes_t) {
    // SAFETY: bytes of this library that nobody else frees, or NULL.
    quietly(|| unsafe { handle::free(bytes) });
}

/// Number of bytes, without the NUL behind them; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_bytes_size(bytes: *const kiln_bytes_t) -> usize {
    // SAFETY: bytes of this library, or NULL.
    unsafe { bytes.as_ref() }.map_or(0, |b| b.bytes.len() - 1)
}

/// The bytes, with a NUL behind them, as long as the object lives; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_bytes_data(bytes: *const kiln_bytes_t) -> *const c_char {
    // SAFETY: bytes of this library, or NULL.
    unsafe { bytes.as_ref() }.map_or(std::ptr::null(), |b| b.bytes.as_ptr().cast())
}
