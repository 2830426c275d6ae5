//! The interface by which backends that are libraries run layers on this host.

use super::call::lossy;
use super::host_call::{Error, of_layer, op, refuse};
use super::host_natives;
use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ir::{Bytes, Tensor};
use kiln_ops::plugin::PLUGIN;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

static TABLE: kiln_host_layers_v1 = kiln_host_layers_v1 {
    struct_size: size_of::<kiln_host_layers_v1>() as u32,
    reserved: 0,
    run: Some(run),
    native_attach: Some(host_natives::attach),
    native_enqueue: Some(host_natives::enqueue),
    native_detach: Some(host_natives::detach),
};

/// The table of an interface of the host.
///
/// # Safety
/// `id` is a view that is valid for the call.
pub(super) unsafe fn interface(id: kiln_str) -> *const c_void {
    // SAFETY: as this function's contract says.
    match unsafe { lossy(id) } == KILN_HOST_LAYERS_V1 {
        true => (&raw const TABLE).cast(),
        false => std::ptr::null(),
    }
}

type Output = Option<unsafe extern "C" fn(*mut c_void, *const kiln_tensor)>;

unsafe extern "C" fn run(
    _: *mut kiln_host_ctx,
    op: kiln_bytes,
    inputs: *const kiln_tensor,
    input_count: u64,
    user: *mut c_void,
    output: Output,
    error: Error,
) -> i32 {
    // SAFETY: the library passes views that are valid for the call.
    let outs = catch_unwind(AssertUnwindSafe(|| unsafe { eval(op, inputs, input_count) }));
    let panicked = || Err(BackendError::Panicked("the host panicked in a plug-in layer".into()));
    match outs.unwrap_or_else(|_| panicked()) {
        Ok(outs) => {
            let (Some(output), views) = (output, super::outgoing::Tensors::new(&outs)) else {
                return KILN_INVALID_ARGUMENT;
            };
            for i in 0..outs.len() {
                // SAFETY: the view lives for the call; `user` is what the library wants back.
                unsafe { output(user, views.as_ptr().add(i)) }
            }
            KILN_OK
        }
        // SAFETY: `user` is what the library wants back.
        Err(e) => unsafe { refuse(e, user, error) },
    }
}

/// # Safety
/// The views are valid for the call.
unsafe fn eval(
    payload: kiln_bytes,
    inputs: *const kiln_tensor,
    count: u64,
) -> Result<Vec<Tensor>, BackendError> {
    // SAFETY: as this function's contract says.
    let (op, inputs) = unsafe { (op(payload)?, view::slice(inputs, count)?) };
    if !op.is(PLUGIN) {
        return Err(BackendError::InvalidArgument(format!(
            "operator \"{}\", wants a plug-in layer",
            op.name()
        )));
    }
    // SAFETY: as this function's contract says.
    let tensor = |t: &kiln_tensor| unsafe { view::tensor(t, |data| Bytes::from(data.to_vec())) }.map(Some);
    let inputs = inputs.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
    op.eval(&inputs).map_err(of_layer)
}
