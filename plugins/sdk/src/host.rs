//! The host that this library was initialized by.

use kiln_abi::*;
use std::sync::OnceLock;

/// A copy of the host's table; slots that an older host lacks are absent.
static HOST: OnceLock<kiln_host> = OnceLock::new();

/// Keeps the host's table.
///
/// # Safety
/// `table` is null or valid for as many bytes as its `struct_size` says.
pub(crate) unsafe fn remember(table: *const kiln_host) -> i32 {
    if table.is_null() {
        return KILN_INVALID_ARGUMENT;
    }
    let mut copy = std::mem::MaybeUninit::<kiln_host>::zeroed();
    // SAFETY: the table is valid for `struct_size` bytes, the copy for its own size; all-zero bytes are a valid table.
    let table = unsafe {
        let len = ((*table).struct_size as usize).min(size_of::<kiln_host>());
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), len);
        copy.assume_init()
    };
    match HOST.set(table) {
        Ok(()) => KILN_OK,
        Err(_) => KILN_INVALID_ARGUMENT,
    }
}

/// Records why the present call fails and returns the code.
pub(crate) fn report(err: *mut kiln_error, code: i32, message: &str) -> i32 {
    if let Some(set) = HOST.get().and_then(|h| h.error_set) {
        // SAFETY: `err` is the sink of the present call; the view lives for the call.
        unsafe { set(err, code, kiln_str::new(message)) }
    }
    code
}

/// Writes text to a sink of the present call.
pub(crate) fn write(sink: *mut kiln_sink, text: &str) -> i32 {
    match HOST.get().and_then(|h| h.sink_write) {
        // SAFETY: the sink is that of the present call; the bytes are copied.
        Some(write) => unsafe { write(sink, text.as_ptr(), text.len() as u64) },
        None => KILN_INCOMPATIBLE,
    }
}
