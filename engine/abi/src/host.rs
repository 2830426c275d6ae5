//! Functions and data that the host offers to a plug-in.

use crate::{kiln_error, kiln_host_ctx, kiln_owner, kiln_sink, kiln_str, kiln_tensor, kiln_tensor_sink};
use core::ffi::c_void;

/// Level of a log message: something failed.
pub const KILN_LOG_ERROR: u32 = 1;
/// Level of a log message: something is not as it should be.
pub const KILN_LOG_WARN: u32 = 2;
/// Level of a log message: progress.
pub const KILN_LOG_INFO: u32 = 3;
/// Level of a log message: for those who look for a fault.
pub const KILN_LOG_DEBUG: u32 = 4;
/// Level of a log message: everything.
pub const KILN_LOG_TRACE: u32 = 5;

/// Functions of the host. All slots are filled by a host of the version that added them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_host {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// `KILN_ABI_MAJOR` of the host.
    pub abi_major: u32,
    /// `KILN_ABI_MINOR` of the host.
    pub abi_minor: u32,
    /// Zero.
    pub reserved: u32,
    /// Passed to those functions that ask for it.
    pub ctx: *mut kiln_host_ctx,
    /// Logs a message; `target` is the part of the plug-in that speaks, `file` may be empty. `[any-thread]`
    pub log: Option<
        unsafe extern "C" fn(
            ctx: *mut kiln_host_ctx,
            level: u32,
            target: kiln_str,
            message: kiln_str,
            file: kiln_str,
            line: u32,
        ),
    >,
    /// Records why the present call fails; the text is copied. `code` should be what the call returns.
    /// `[serial-per-object]`
    pub error_set: Option<unsafe extern "C" fn(err: *mut kiln_error, code: i32, message: kiln_str)>,
    /// Adds a detail to the recorded error; keys are listed at the codes. `[serial-per-object]`
    pub error_detail: Option<unsafe extern "C" fn(err: *mut kiln_error, key: kiln_str, value: kiln_str)>,
    /// Memory of `size` bytes at a multiple of `align`, a power of two; null where it can't be had. `[any-thread]`
    pub alloc: Option<unsafe extern "C" fn(ctx: *mut kiln_host_ctx, size: u64, align: u64) -> *mut c_void>,
    /// Frees memory of `alloc`; size and alignment are those of the allocation. `[any-thread]`
    pub free: Option<unsafe extern "C" fn(ctx: *mut kiln_host_ctx, ptr: *mut c_void, size: u64, align: u64)>,
    /// Appends bytes to a sink; they are copied. Returns a status. `[serial-per-object]`
    pub sink_write: Option<unsafe extern "C" fn(sink: *mut kiln_sink, data: *const u8, len: u64) -> i32>,
    /// Appends a tensor to a sink; its dimensions and elements are copied. Returns a status. `[serial-per-object]`
    pub tensor_write:
        Option<unsafe extern "C" fn(sink: *mut kiln_tensor_sink, tensor: *const kiln_tensor) -> i32>,
    /// Keeps the data of a tensor view alive after the call, until as many `release`. Both before `deinit` returns.
    /// `[any-thread]`
    pub retain: Option<unsafe extern "C" fn(owner: *mut kiln_owner)>,
    /// Ends one `retain`. `[any-thread]`
    pub release: Option<unsafe extern "C" fn(owner: *mut kiln_owner)>,
    /// Nanoseconds of a clock that never goes back. `[any-thread]`
    pub now_ns: Option<unsafe extern "C" fn(ctx: *mut kiln_host_ctx) -> u64>,
    /// 1 if the call in progress on this thread is to stop early and return `KILN_CANCELLED`, else 0. `[any-thread]`
    pub is_cancelled: Option<unsafe extern "C" fn(ctx: *mut kiln_host_ctx) -> u32>,
    /// The table of a further interface of the host, null for an unknown one. `[any-thread]`
    pub get_interface: Option<unsafe extern "C" fn(ctx: *mut kiln_host_ctx, id: kiln_str) -> *const c_void>,
}

// SAFETY: the table is constant and its functions may be called from any thread.
unsafe impl Sync for kiln_host {}
// SAFETY: as above.
unsafe impl Send for kiln_host {}
