//! Memory of the caller's on the device: weights of a refit, and temporary memory of a context.

use crate::bytes::kiln_bytes_t;
use crate::callback::{Callback, kiln_destroy_fn};
use crate::context::{kiln_context_t, with as with_context};
use crate::error::{Fail, guard, kiln_error_t};
use crate::handle::{self, Out};
use crate::refit::{self, kiln_refitter_t};
use crate::text;
use kiln_runtime::TemporaryAllocator;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Sets the least and the greatest value of a tensor whose 8-bit codes follow from its range. Nothing changes before
/// kiln_refitter_refit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set_dynamic_range(
    refitter: *mut kiln_refitter_t,
    tensor: *const c_char,
    tensor_length: usize,
    least: f32,
    greatest: f32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(tensor, tensor_length, "tensor")?;
            refit::with(refitter, |r| Ok(r.set_dynamic_range(name, least, greatest)?))
        }
    })
}

/// Sets new elements of a weight that are on the engine's device (of CUDA a device pointer), dense, in its type and shape. The refit reads
/// them, behind the work that is in the stream of kiln_refitter_set_stream then. They stay until the refit is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set_on_device(
    refitter: *mut kiln_refitter_t,
    weight: *const c_char,
    weight_length: usize,
    address: *const c_void,
    bytes: u64,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(weight, weight_length, "weight")?;
            refit::with(refitter, |r| Ok(r.set_on_device(name, address, bytes)?))
        }
    })
}

/// Sets the stream of the caller's (of CUDA a CUstream) behind whose work weights on the device are read. NULL, as at first: no stream. It
/// stays until the refit is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set_stream(
    refitter: *mut kiln_refitter_t,
    stream: *mut c_void,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            refit::with(refitter, |r| {
                r.set_stream(stream);
                Ok(())
            })
        }
    })
}

/// Starts kiln_refitter_refit on a thread of its own and returns at once. Runs that begin before it is done take the old weights. Until
/// kiln_refitter_wait nothing else can be done with the refitter but to free it, which lets the refit go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_start(refitter: *mut kiln_refitter_t) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { handle::shared(refitter, "refitter")?.start() })
}

/// Waits for the refit that kiln_refitter_start began. `json`, which may be NULL, is as kiln_refitter_refit has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_wait(
    refitter: *mut kiln_refitter_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = if json.is_null() { None } else { Some(Out::new(json, "json")?) };
            let report = handle::shared(refitter, "refitter")?.wait()?;
            if let Some(out) = out {
                out.put(refit::report(&report).into());
            }
        }
        Ok(())
    })
}

/// Returns so many bytes of device memory at a multiple of `alignment`, for work that is put into the stream from now on (of CUDA a
/// CUstream). NULL where there is none: the run fails.
pub type kiln_temporary_allocate_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, bytes: u64, alignment: u64, stream: *mut c_void) -> *mut c_void,
>;

/// Takes memory back, once the work that is in the stream is done.
pub type kiln_temporary_free_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, address: *mut c_void, bytes: u64, stream: *mut c_void)>;

type Allocate = unsafe extern "C" fn(*mut c_void, u64, u64, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut c_void);

struct Allocator {
    allocate: Callback<Allocate>,
    free: Free,
}

impl TemporaryAllocator for Allocator {
    fn allocate(&self, bytes: u64, alignment: u64, stream: *mut c_void) -> *mut c_void {
        // SAFETY: the caller's function for its pointer.
        unsafe { (self.allocate.function)(self.allocate.user, bytes, alignment, stream) }
    }

    fn free(&self, address: *mut c_void, bytes: u64, stream: *mut c_void) {
        // SAFETY: as above.
        unsafe { (self.free)(self.allocate.user, address, bytes, stream) }
    }
}

/// Takes device memory that a context needs from now on, its arena aside, from functions of the caller: scratch memory, inputs and outputs
/// that are not bound. `allocate` of NULL ends it. Both are called from any thread, until the context is gone. Backends without device
/// memory refuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_temporary_allocator(
    context: *mut kiln_context_t,
    allocate: kiln_temporary_allocate_fn,
    free: kiln_temporary_free_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let allocator = match Callback::new(allocate, user, destroy) {
            None => None,
            Some(allocate) => {
                let free =
                    free.ok_or_else(|| Fail::argument("free is NULL, and allocate is not".to_owned()))?;
                Some(Arc::new(Allocator { allocate, free }) as Arc<dyn TemporaryAllocator>)
            }
        };
        // SAFETY: pointers as the header wants them; the caller vouches for the memory.
        unsafe { with_context(context, |run| Ok(run.context.set_temporary_allocator(allocator)?)) }
    })
}
