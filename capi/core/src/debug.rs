//! Debug tensors: values between layers, which a function of the caller receives.

use crate::callback::{Callback, kiln_destroy_fn};
use crate::context::{kiln_context_t, with};
use crate::dlpack::{CPU, DLDataType, DLDevice, DLTensor};
use crate::error::{guard, kiln_error_t};
use crate::text;
use kiln::{DebugListener, Tensor};
use std::ffi::{c_char, c_void};

/// Takes a tensor of a run that is done, which lives for the call. Returning false fails the run.
pub type kiln_debug_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        name: *const c_char,
        name_length: usize,
        tensor: *const DLTensor,
    ) -> bool,
>;

struct Listener(Callback<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const DLTensor) -> bool>);

impl DebugListener for Listener {
    fn debug_tensor(&mut self, name: &str, tensor: &Tensor) -> bool {
        let mut shape: Vec<i64> = tensor.shape().iter().map(|&d| d as i64).collect();
        let view = DLTensor {
            data: tensor.bytes().as_ptr().cast_mut().cast(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DLDataType::of(tensor.dtype()),
            shape: shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let Callback { function, user, .. } = &self.0;
        // SAFETY: the caller's function for its pointer.
        unsafe { function(*user, name.as_ptr().cast(), name.len(), &raw const view) }
    }
}

/// Reports debug tensors of further runs to a function, when a run is waited for. All tensors are off at first. NULL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_debug_listener(
    context: *mut kiln_context_t,
    function: kiln_debug_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let callback = Callback::new(function, user, destroy);
        let listener = callback.map(|c| Box::new(Listener(c)) as Box<dyn DebugListener>);
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.context.set_debug_listener(listener);
                Ok(())
            })
        }
    })
}

/// Turns the reports of a tensor on or off that was marked when the plan was built.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_debug_tensor(
    context: *mut kiln_context_t,
    name: *const c_char,
    name_length: usize,
    on: bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?;
            with(context, |run| Ok(run.context.set_tensor_debug_state(name, on)?))
        }
    })
}

/// Turns the reports of all marked tensors on or off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_debug_all(context: *mut kiln_context_t, on: bool) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.context.set_all_debug_states(on);
                Ok(())
            })
        }
    })
}

/// Turns the reports of all values between kernels on or off, marked or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_debug_unfused(
    context: *mut kiln_context_t,
    on: bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.context.set_unfused_debug_state(on);
                Ok(())
            })
        }
    })
}
