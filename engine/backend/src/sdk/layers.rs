//! Plug-in layers that the host runs for a backend in a library.

use super::host;
use crate::BackendError;
use crate::view;
use kiln_abi::*;
use kiln_ir::{Bytes, Op, OpError, Tensor};
use std::ffi::c_void;

/// Results of a call, which the host passes to [`output`] and [`error`].
#[derive(Default)]
struct Results {
    outputs: Vec<Result<Tensor, BackendError>>,
    message: String,
}

/// Runs the reference form of the layer that an operator names on the host.
pub(super) fn run(op: &Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
    let Some((ctx, run)) = table().and_then(|(ctx, t)| Some((ctx, t.run?))) else {
        return Err(OpError::Unsupported(
            "plug-in layers by this host, which is older than 1.8; upgrade Kiln".into(),
        ));
    };
    let cbor = minicbor::to_vec(op).map_err(|e| OpError::Value(e.to_string()))?;
    let dims: Vec<Vec<i64>> = inputs.iter().map(|t| t.shape().iter().map(|&d| d as i64).collect()).collect();
    let views: Vec<kiln_tensor> = inputs
        .iter()
        .zip(&dims)
        .map(|(t, dims)| kiln_tensor {
            dtype: t.dtype().code().into(),
            ndim: dims.len() as u32,
            dims: dims.as_ptr(),
            data: t.bytes().as_ptr().cast(),
            len: t.bytes().len() as u64,
            owner: std::ptr::null_mut(),
        })
        .collect();
    let mut results = Results::default();
    let user = (&raw mut results).cast::<c_void>();
    // SAFETY: views and results live for the call; the functions take what is passed here.
    let code = unsafe {
        run(ctx, kiln_bytes::new(&cbor), views.as_ptr(), views.len() as u64, user, Some(output), Some(error))
    };
    match code {
        KILN_OK => {
            let all: Result<Vec<_>, _> = results.outputs.into_iter().collect();
            all.map_err(|e| OpError::Value(e.to_string()))
        }
        KILN_UNSUPPORTED => Err(OpError::Unsupported(results.message)),
        _ => Err(OpError::Value(results.message)),
    }
}

unsafe extern "C" fn output(user: *mut c_void, tensor: *const kiln_tensor) {
    // SAFETY: the host passes back what it was given, and a view that is valid for the call.
    unsafe {
        let Some((results, t)) = user.cast::<Results>().as_mut().zip(tensor.as_ref()) else { return };
        results.outputs.push(view::tensor(t, |data| Bytes::from(data.to_vec())));
    }
}

unsafe extern "C" fn error(user: *mut c_void, _: i32, message: kiln_str) {
    // SAFETY: as above.
    unsafe {
        let Some(results) = user.cast::<Results>().as_mut() else { return };
        results.message = lossy(message);
    }
}

/// Text of the host.
///
/// # Safety
/// The view is valid for the call.
pub(super) unsafe fn lossy(s: kiln_str) -> String {
    // SAFETY: as this function's contract says.
    let text = unsafe { view::bytes(s.ptr.cast(), s.len) }.unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The host's table of layers; none of a host that is older than 1.8.
pub(super) fn table() -> Option<(*mut kiln_host_ctx, kiln_host_layers_v1)> {
    let (ctx, table) = host::interface(KILN_HOST_LAYERS_V1);
    // SAFETY: the host's tables live until the library ends, and begin with their size.
    let table = unsafe { view::sized(table.cast::<kiln_host_layers_v1>(), "the host's table of layers") };
    table.ok().map(|t| (ctx, t))
}
