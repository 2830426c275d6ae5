//! Versions of the interface and of the library.

use crate::handle;
use std::ffi::c_char;

/// Major version of this interface. Another one breaks programs, and has another soname.
pub const KILN_API_MAJOR: u32 = 0;

/// Minor version of this interface. A greater one has more functions, and more fields at the end of option structs.
pub const KILN_API_MINOR: u32 = 1;

/// The version of the interface that the library has: the major version in the upper 16 bits, the minor one in the lower 16.
/// A program compares it with KILN_API_MAJOR and KILN_API_MINOR, which it was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_api_version() -> u32 {
    KILN_API_MAJOR << 16 | KILN_API_MINOR
}

/// The version of Kiln, as text that lives as long as the program. `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_version(length: *mut usize) -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    // SAFETY: the caller's pointer is NULL or a place for a number.
    unsafe { handle::put(length, TEXT.len() - 1) };
    TEXT.as_ptr().cast()
}
