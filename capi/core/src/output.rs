//! Outputs of a run, and allocators of their memory.

use crate::callback::{Callback, kiln_destroy_fn};
use crate::context::{Run, kiln_context_t, with};
use crate::dlpack::DLManagedTensorVersioned;
use crate::error::{Fail, guard, kiln_error_t};
use crate::handle::Out;
use crate::tensor::Exported;
use crate::{shape, text};
use kiln::{ErrorCode, IoMode, RuntimeError, Tensor};
use kiln_runtime::OutputAllocator;
use std::ffi::{c_char, c_void};

fn find<'a>(run: &'a Run, name: &str) -> Result<&'a Tensor, Fail> {
    if let Some((_, t)) = run.outputs.iter().find(|(n, _)| n == name) {
        return Ok(t);
    }
    let all: Vec<&str> = run
        .engine
        .io_tensors()
        .iter()
        .filter(|t| t.mode == IoMode::Output)
        .map(|t| t.name.as_str())
        .collect();
    let state = |text: String| Err(Fail::new(ErrorCode::InvalidState, text));
    if !all.contains(&name) {
        return Err(RuntimeError::UnknownTensor {
            name: name.to_owned(),
            mode: "output",
            known: all.join(", "),
        }
        .into());
    }
    if run.on_device.iter().any(|n| n == name) {
        return state(format!(
            "output \"{name}\" is in the memory of the device that was bound: read it there"
        ));
    }
    state(format!("there is no output \"{name}\" yet: run the context, or wait for the run"))
}

/// Returns an output of the last run, in host memory. It may be used after the context is gone, is read-only, and is freed by its
/// deleter or kiln_tensor_destroy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_output(
    context: *mut kiln_context_t,
    output: *const c_char,
    output_length: usize,
    tensor: *mut *mut DLManagedTensorVersioned,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(tensor, "tensor")?;
            let name = text::string(output, output_length, "output")?;
            let found = with(context, |run| find(run, name).cloned())?;
            out.put_pointer(Exported::export(found));
        }
        Ok(())
    })
}

/// Writes the shape of an output of the last run. `ndim` holds the room of `dims` before the call, and the number of dimensions
/// after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_output_shape(
    context: *mut kiln_context_t,
    output: *const c_char,
    output_length: usize,
    dims: *mut i64,
    ndim: *mut usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(output, output_length, "output")?;
            let found = with(context, |run| find(run, name).map(|t| t.shape().to_vec()))?;
            let numbers: Vec<i64> = found.iter().map(|&d| d as i64).collect();
            shape::write(&numbers, dims, ndim, "the shape")
        }
    })
}

/// Lets outputs of other formats than the linear one stay as they are in memory (true), or puts them in order (false, at first).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_packed_outputs(
    context: *mut kiln_context_t,
    packed: bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.packed = packed;
                Ok(())
            })
        }
    })
}

/// Returns memory for an output: `current`, which it returned before or NULL, if that has room for so many bytes, or other memory with
/// this alignment. NULL refuses, and the run fails. With the backend cuda it is memory of the device.
pub type kiln_allocate_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        output: *const c_char,
        output_length: usize,
        current: *mut c_void,
        bytes: u64,
        alignment: u64,
    ) -> *mut c_void,
>;

/// Takes the shape of an output, once it is known.
pub type kiln_shape_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        output: *const c_char,
        output_length: usize,
        dims: *const i64,
        ndim: usize,
    ),
>;

type Allocate = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut c_void, u64, u64) -> *mut c_void;
type Shape = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const i64, usize);

struct Allocator {
    allocate: Callback<Allocate>,
    shape: Option<Shape>,
}

// SAFETY: the caller vouches for what its function returns.
unsafe impl OutputAllocator for Allocator {
    fn allocate(&mut self, output: &str, current: *mut c_void, bytes: u64, alignment: u64) -> *mut c_void {
        let Callback { function, user, .. } = &self.allocate;
        // SAFETY: the caller's function for its pointer.
        unsafe { function(*user, output.as_ptr().cast(), output.len(), current, bytes, alignment) }
    }

    fn shape(&mut self, output: &str, shape: &[usize]) {
        let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        if let Some(function) = self.shape {
            let user = self.allocate.user;
            // SAFETY: the caller's function for its pointer.
            unsafe { function(user, output.as_ptr().cast(), output.len(), dims.as_ptr(), dims.len()) };
        }
    }
}

/// Lets functions supply the memory of an output for further runs, instead of memory that is bound to it. `shape` may be NULL;
/// `allocate` of NULL ends it. The memory stays valid until the function is asked again, is replaced, or the context is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_output_allocator(
    context: *mut kiln_context_t,
    output: *const c_char,
    output_length: usize,
    allocate: kiln_allocate_fn,
    shape: kiln_shape_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let allocate = Callback::new(allocate, user, destroy);
        let allocator =
            allocate.map(|allocate| Box::new(Allocator { allocate, shape }) as Box<dyn OutputAllocator>);
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(output, output_length, "output")?;
            with(context, |run| {
                run.on_device.retain(|n| n != name);
                Ok(run.context.set_output_allocator(name, allocator)?)
            })
        }
    })
}
