//! Allocators of the host's, as contexts see them.

use super::context::ContextHandle;
use crate::{BackendError, TemporaryAllocator, view};
use kiln_abi::*;
use std::ffi::c_void;
use std::sync::Arc;

/// An allocator behind functions of the host.
struct HostAllocator(kiln_allocator);

// SAFETY: the slot's contract lets its functions be called from any thread.
unsafe impl Send for HostAllocator {}
// SAFETY: as above.
unsafe impl Sync for HostAllocator {}

impl TemporaryAllocator for HostAllocator {
    fn allocate(&self, bytes: u64, alignment: u64, stream: *mut c_void) -> *mut c_void {
        // SAFETY: the host passed the function with this `ctx`, for calls until the context is destroyed.
        self.0.allocate.map_or(std::ptr::null_mut(), |f| unsafe { f(self.0.ctx, bytes, alignment, stream) })
    }

    fn free(&self, address: *mut c_void, bytes: u64, stream: *mut c_void) {
        if let Some(f) = self.0.free {
            // SAFETY: as above; the memory is what `allocate` returned.
            unsafe { f(self.0.ctx, address, bytes, stream) }
        }
    }
}

pub(super) unsafe extern "C" fn set(
    context: *mut kiln_context,
    allocator: *const kiln_allocator,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and null or a view of the present call.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            let given =
                (!allocator.is_null()).then(|| view::sized(allocator, "the allocator")).transpose()?;
            if given.is_some_and(|a| a.allocate.is_none() || a.free.is_none()) {
                return Err(BackendError::InvalidArgument("an allocator lacks a function".into()));
            }
            let given = given.map(|a| Arc::new(HostAllocator(a)) as Arc<dyn TemporaryAllocator>);
            c.lock()?.require_native()?.set_allocator(given)
        })
    }
}
