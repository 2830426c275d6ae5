//! Strings and memory of callers: a pointer and a length.

use crate::error::Fail;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

/// Length of a string that ends with a NUL.
pub const KILN_CSTR: usize = usize::MAX;

/// The bytes of a string, or of memory. NULL is allowed for none.
///
/// # Safety
/// The pointer is NULL, or of so many bytes that live as long as the call. With the length [`KILN_CSTR`] they end with a NUL.
pub unsafe fn blob<'a>(data: *const c_void, length: usize, what: &str) -> Result<&'a [u8], Fail> {
    if data.is_null() {
        return match length {
            0 => Ok(&[]),
            _ => Err(Fail::argument(format!("{what} is NULL"))),
        };
    }
    if length > isize::MAX as usize {
        return Err(Fail::argument(format!("{what} has a length of {length}, more than memory can hold")));
    }
    // SAFETY: not NULL, and of a size that memory can have; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

unsafe fn characters<'a>(data: *const c_char, length: usize, what: &str) -> Result<&'a [u8], Fail> {
    if length == KILN_CSTR && !data.is_null() {
        // SAFETY: the caller vouches for the NUL.
        return Ok(unsafe { CStr::from_ptr(data) }.to_bytes());
    }
    // SAFETY: as the caller vouches.
    unsafe { blob(data.cast(), length, what) }
}

/// A string in UTF-8.
///
/// # Safety
/// As [`blob`].
pub unsafe fn string<'a>(data: *const c_char, length: usize, what: &str) -> Result<&'a str, Fail> {
    // SAFETY: as the caller vouches.
    let bytes = unsafe { characters(data, length, what) }?;
    let wrong =
        |e: std::str::Utf8Error| Fail::argument(format!("{what} is not UTF-8: byte {}", e.valid_up_to()));
    std::str::from_utf8(bytes).map_err(wrong)
}

/// The path of a file.
///
/// # Safety
/// As [`blob`].
pub unsafe fn path(data: *const c_char, length: usize, what: &str) -> Result<PathBuf, Fail> {
    // SAFETY: as the caller vouches.
    let bytes = unsafe { characters(data, length, what) }?;
    if bytes.is_empty() {
        return Err(Fail::argument(format!("{what} is empty")));
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned())
    }
    #[cfg(not(unix))]
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Path::new(text).to_owned()),
        Err(e) => Err(Fail::argument(format!("{what} is not UTF-8: byte {}", e.valid_up_to()))),
    }
}
