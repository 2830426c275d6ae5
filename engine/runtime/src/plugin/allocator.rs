//! Allocators of the caller's behind the functions that a library calls.

use ::kiln_backend::TemporaryAllocator;
use kiln_abi::kiln_allocator;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An allocator at an address of its own, which a library is given.
pub(super) struct Hooks(Box<Arc<dyn TemporaryAllocator>>);

impl Hooks {
    pub(super) fn new(allocator: Arc<dyn TemporaryAllocator>) -> Hooks {
        Hooks(Box::new(allocator))
    }

    /// The functions that reach it, for as long as this object lives.
    pub(super) fn view(&self) -> kiln_allocator {
        kiln_allocator {
            struct_size: size_of::<kiln_allocator>() as u32,
            reserved: 0,
            ctx: std::ptr::from_ref(&*self.0).cast_mut().cast(),
            allocate: Some(allocate),
            free: Some(free),
        }
    }
}

/// The allocator at an address.
///
/// # Safety
/// The address is that of the view of hooks that live.
unsafe fn at<'a>(ctx: *mut c_void) -> Option<&'a Arc<dyn TemporaryAllocator>> {
    // SAFETY: as this function's contract says.
    unsafe { ctx.cast::<Arc<dyn TemporaryAllocator>>().as_ref() }
}

/// Asks the allocator; a panic of it is an allocation that failed.
unsafe extern "C" fn allocate(
    ctx: *mut c_void,
    bytes: u64,
    alignment: u64,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the library passes the `ctx` that it was given, as long as the context lives.
    let Some(allocator) = (unsafe { at(ctx) }) else { return std::ptr::null_mut() };
    let asked = catch_unwind(AssertUnwindSafe(|| allocator.allocate(bytes, alignment, stream)));
    asked.unwrap_or(std::ptr::null_mut())
}

unsafe extern "C" fn free(ctx: *mut c_void, address: *mut c_void, bytes: u64, stream: *mut c_void) {
    // SAFETY: as above.
    let Some(allocator) = (unsafe { at(ctx) }) else { return };
    if catch_unwind(AssertUnwindSafe(|| allocator.free(address, bytes, stream))).is_err() {
        tracing::error!("an allocator panicked as it took back memory");
    }
}
