//! The host that this library was initialized by.

use crate::BackendError;
use kiln_abi::*;
use kiln_ir::Tensor;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

struct Host {
    table: kiln_host,
    name: &'static str,
}

static HOST: OnceLock<Host> = OnceLock::new();
static GONE: AtomicBool = AtomicBool::new(false);

/// Keeps a copy of the table; slots that an older host lacks are absent.
///
/// # Safety
/// `table` is null or valid for as many bytes as its `struct_size` says.
pub(super) unsafe fn remember(table: *const kiln_host, name: &'static str) -> Result<(), i32> {
    if table.is_null() {
        return Err(KILN_INVALID_ARGUMENT);
    }
    let mut copy = std::mem::MaybeUninit::<kiln_host>::zeroed();
    // SAFETY: the table is valid for `struct_size` bytes, the copy for its own size; all-zero bytes are a valid
    // `kiln_host`, its pointers being null.
    let table = unsafe {
        let size = (*table).struct_size as usize;
        let len = size.min(size_of::<kiln_host>());
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), len);
        copy.assume_init()
    };
    HOST.set(Host { table, name }).map_err(|_| KILN_INVALID_ARGUMENT)?;
    Ok(())
}

/// The table of an interface of the host; null where it has none.
pub(super) fn interface(id: &str) -> (*mut kiln_host_ctx, *const std::ffi::c_void) {
    match host().and_then(|h| Some((h.table.ctx, h.table.get_interface?))) {
        // SAFETY: a host's `get_interface` takes a view for the call, from any thread.
        Some((ctx, get)) => (ctx, unsafe { get(ctx, kiln_str::new(id)) }),
        None => (std::ptr::null_mut(), std::ptr::null()),
    }
}

pub(super) fn forget() {
    GONE.store(true, Ordering::Release);
}

fn host() -> Option<&'static Host> {
    HOST.get().filter(|_| !GONE.load(Ordering::Acquire))
}

/// Writes to the log of the host, if there is one. `level` is one of the `KILN_LOG_` constants.
pub fn log(level: u32, message: &str) {
    log_at(level, message, "", 0);
}

pub(super) fn log_at(level: u32, message: &str, file: &str, line: u32) {
    if let Some(Host { table, name }) = host()
        && let Some(log) = table.log
    {
        let text = kiln_str::new;
        // SAFETY: a host's `log` takes these views for the call, from any thread.
        unsafe { log(table.ctx, level, text(name), text(message), text(file), line) }
    }
}

/// Whether the call in progress on this thread must stop early, with [`BackendError::Cancelled`].
pub fn is_cancelled() -> bool {
    // SAFETY: a host's `is_cancelled` may be called from any thread.
    host().and_then(|h| h.table.is_cancelled.map(|f| unsafe { f(h.table.ctx) } != 0)).unwrap_or(false)
}

/// Records an error and returns its code.
pub(super) fn report(err: *mut kiln_error, e: &BackendError) -> i32 {
    let (message, details) = e.parts();
    if let Some(Host { table, .. }) = host().filter(|_| !err.is_null()) {
        // SAFETY: `err` is the error sink of the present call; the views live for the call.
        unsafe {
            if let Some(set) = table.error_set {
                set(err, e.code(), kiln_str::new(&message));
            }
            if let Some(detail) = table.error_detail {
                details.iter().for_each(|(k, v)| detail(err, kiln_str::new(k), kiln_str::new(v)));
            }
        }
    }
    e.code()
}

fn status(code: i32, what: &str) -> Result<(), BackendError> {
    match code {
        KILN_OK => Ok(()),
        code => Err(BackendError::from_parts(code, format!("the host refuses {what}"), |_| None)),
    }
}

fn absent(slot: &str) -> BackendError {
    BackendError::Incompatible(format!("the host has no {slot}"))
}

/// Appends to a sink of the present call.
///
/// # Safety
/// `sink` is a sink that the host handed to the present call.
pub(super) unsafe fn write(sink: *mut kiln_sink, bytes: &[u8]) -> Result<(), BackendError> {
    let write = host().and_then(|h| h.table.sink_write).ok_or_else(|| absent("sink_write"))?;
    // SAFETY: as this function's contract says; the bytes are copied.
    status(unsafe { write(sink, bytes.as_ptr(), bytes.len() as u64) }, "the bytes of a result")
}

/// Appends to a tensor sink of the present call.
///
/// # Safety
/// `sink` is a tensor sink that the host handed to the present call.
pub(super) unsafe fn write_tensor(sink: *mut kiln_tensor_sink, t: &Tensor) -> Result<(), BackendError> {
    let write = host().and_then(|h| h.table.tensor_write).ok_or_else(|| absent("tensor_write"))?;
    let dims: Vec<i64> = t.shape().iter().map(|&d| d as i64).collect();
    let view = kiln_tensor {
        dtype: t.dtype().code().into(),
        ndim: dims.len() as u32,
        dims: dims.as_ptr(),
        data: t.bytes().as_ptr().cast(),
        len: t.bytes().len() as u64,
        owner: std::ptr::null_mut(),
    };
    // SAFETY: as this function's contract says; dimensions and elements are copied.
    status(unsafe { write(sink, &view) }, "a tensor")
}

/// Owner that keeps the data of a tensor view alive until it is dropped.
pub(super) struct Retained(*mut kiln_owner);

// SAFETY: `retain` and `release` may be called from any thread.
unsafe impl Send for Retained {}
// SAFETY: it is not used through shared references.
unsafe impl Sync for Retained {}

impl Retained {
    /// Retains an owner; `None` where the view has none or the host can't.
    ///
    /// # Safety
    /// `owner` is null or belongs to a view of the present call.
    pub(super) unsafe fn new(owner: *mut kiln_owner) -> Option<Retained> {
        let table = &host().filter(|_| !owner.is_null())?.table;
        let (retain, _) = (table.retain?, table.release?);
        // SAFETY: as this function's contract says.
        unsafe { retain(owner) };
        Some(Retained(owner))
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        if let Some(release) = host().and_then(|h| h.table.release) {
            // SAFETY: balances the `retain` of `new`.
            unsafe { release(self.0) }
        }
    }
}
