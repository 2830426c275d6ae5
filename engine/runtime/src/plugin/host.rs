//! The functions that the host offers to libraries. None lets a panic out.

use super::call::{ByteSink, ErrorSink, TensorSink, lossy};
use super::host_layers;
use super::outgoing::Owner;
use ::kiln_backend::{BackendError, stop, view};
use kiln_abi::*;
use std::alloc::Layout;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Instant;

static TABLE: kiln_host = kiln_host {
    struct_size: size_of::<kiln_host>() as u32,
    abi_major: KILN_ABI_MAJOR,
    abi_minor: KILN_ABI_MINOR,
    reserved: 0,
    ctx: std::ptr::null_mut(),
    log: Some(log),
    error_set: Some(error_set),
    error_detail: Some(error_detail),
    alloc: Some(alloc),
    free: Some(free),
    sink_write: Some(sink_write),
    tensor_write: Some(tensor_write),
    retain: Some(retain),
    release: Some(release),
    now_ns: Some(now_ns),
    is_cancelled: Some(is_cancelled),
    get_interface: Some(get_interface),
};

/// The table that is passed to `init`.
pub(super) fn table() -> &'static kiln_host {
    &TABLE
}

/// Runs the body of a callback; returns `or` on a panic (of a log subscriber, say).
fn fence<T>(or: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(or)
}

fn code(r: Result<(), BackendError>) -> i32 {
    r.map_or_else(|e| e.code(), |()| KILN_OK)
}

unsafe extern "C" fn log(
    _: *mut kiln_host_ctx,
    level: u32,
    target: kiln_str,
    message: kiln_str,
    file: kiln_str,
    line: u32,
) {
    fence((), || {
        // SAFETY: the library passes views that are valid for the call.
        let [plugin, message, file] = unsafe { [lossy(target), lossy(message), lossy(file)] };
        let at = if file.is_empty() { String::new() } else { format!("{file}:{line}") };
        match level {
            KILN_LOG_ERROR => tracing::error!(plugin, at, "{message}"),
            KILN_LOG_WARN => tracing::warn!(plugin, at, "{message}"),
            KILN_LOG_INFO => tracing::info!(plugin, at, "{message}"),
            KILN_LOG_DEBUG => tracing::debug!(plugin, at, "{message}"),
            _ => tracing::trace!(plugin, at, "{message}"),
        }
    });
}

unsafe extern "C" fn error_set(err: *mut kiln_error, _: i32, message: kiln_str) {
    fence((), || {
        // SAFETY: the library passes back the sink of the present call, and a view that is valid for the call.
        if let Some(sink) = unsafe { err.cast::<ErrorSink>().as_mut() } {
            // SAFETY: as above.
            sink.message = unsafe { lossy(message) };
            sink.details.clear();
        }
    });
}

unsafe extern "C" fn error_detail(err: *mut kiln_error, key: kiln_str, value: kiln_str) {
    /// Further ones are dropped.
    const MOST: usize = 16;
    fence((), || {
        // SAFETY: the library passes back the sink of the present call, and views that are valid for the call.
        if let Some(sink) = unsafe { err.cast::<ErrorSink>().as_mut() }.filter(|s| s.details.len() < MOST) {
            // SAFETY: as above.
            sink.details.push(unsafe { (lossy(key), lossy(value)) });
        }
    });
}

fn layout(size: u64, align: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(size).ok()?.max(1), usize::try_from(align).ok()?).ok()
}

unsafe extern "C" fn alloc(_: *mut kiln_host_ctx, size: u64, align: u64) -> *mut c_void {
    match layout(size, align) {
        // SAFETY: the layout has at least one byte.
        Some(layout) => unsafe { std::alloc::alloc(layout) }.cast(),
        None => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn free(_: *mut kiln_host_ctx, ptr: *mut c_void, size: u64, align: u64) {
    if let Some(layout) = layout(size, align).filter(|_| !ptr.is_null()) {
        // SAFETY: the library gives back what `alloc` gave for the same numbers.
        unsafe { std::alloc::dealloc(ptr.cast(), layout) }
    }
}

unsafe extern "C" fn sink_write(sink: *mut kiln_sink, data: *const u8, len: u64) -> i32 {
    fence(KILN_INTERNAL, || {
        // SAFETY: the library passes back the sink of the present call.
        let Some(sink) = (unsafe { sink.cast::<ByteSink>().as_mut() }) else { return KILN_INVALID_ARGUMENT };
        // SAFETY: the library passes bytes that are valid for the call.
        code(unsafe { view::bytes(data, len) }.and_then(|b| sink.write(b)))
    })
}

unsafe extern "C" fn tensor_write(sink: *mut kiln_tensor_sink, tensor: *const kiln_tensor) -> i32 {
    fence(KILN_INTERNAL, || {
        // SAFETY: the library passes back the sink of the present call, and a view that is valid for the call.
        match unsafe { (sink.cast::<TensorSink>().as_mut(), tensor.as_ref()) } {
            (Some(sink), Some(tensor)) => code(sink.write(tensor)),
            _ => KILN_INVALID_ARGUMENT,
        }
    })
}

unsafe extern "C" fn retain(owner: *mut kiln_owner) {
    // SAFETY: the library passes the owner of a view of the present call, or one that it has retained.
    unsafe { Owner::retain(owner) }
}

unsafe extern "C" fn release(owner: *mut kiln_owner) {
    // SAFETY: the library passes an owner that it has retained.
    fence((), || unsafe { Owner::release(owner) });
}

unsafe extern "C" fn now_ns(_: *mut kiln_host_ctx) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

unsafe extern "C" fn is_cancelled(_: *mut kiln_host_ctx) -> u32 {
    fence(0, || stop::asked().into())
}

unsafe extern "C" fn get_interface(_: *mut kiln_host_ctx, id: kiln_str) -> *const c_void {
    // SAFETY: the library passes a view that is valid for the call.
    fence(std::ptr::null(), || unsafe { host_layers::interface(id) })
}
