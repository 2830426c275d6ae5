//! The slots by which backends that are libraries call native forms of layers through this host.

use super::call::lossy;
use super::host_call::{Error, of_layer, op, refuse};
use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ir::{DType, Dim, Packing, TensorFormat};
use kiln_ops::plugin::attach_native;
use kiln_ops::plugin::native::{NativeCall, NativeRun, NativeStream, NativeTensor};
use kiln_ops::plugin::packings::Packings;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A native form that a backend uses.
struct Native(Box<dyn NativeRun>);

/// Runs the body of a slot: no panic leaves it, and an error goes to the library.
///
/// # Safety
/// `user` is what the library wants back.
unsafe fn slot(user: *mut c_void, error: Error, f: impl FnOnce() -> Result<(), BackendError>) -> i32 {
    let panicked = || Err(BackendError::Panicked("the host panicked in a plug-in layer".into()));
    match catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| panicked()) {
        Ok(()) => KILN_OK,
        // SAFETY: as this function's contract says.
        Err(e) => unsafe { refuse(e, user, error) },
    }
}

pub(super) unsafe extern "C" fn attach(
    _: *mut kiln_host_ctx,
    payload: kiln_bytes,
    device: u32,
    tactic: kiln_str,
    call: *const kiln_native_call,
    out: *mut *mut kiln_host_native,
    user: *mut c_void,
    error: Error,
) -> i32 {
    let body = || {
        let unknown = || BackendError::Unsupported(format!("device {device} of native forms"));
        let device = super::native_table::device(device).ok_or_else(unknown)?;
        // SAFETY: the library passes views that are valid for the call.
        let (op, tactic, (call, _)) = unsafe { (op(payload)?, lossy(tactic), read(call)?) };
        let run = attach_native(&op, device, &tactic, &call).map_err(of_layer)?;
        let native = Box::into_raw(Box::new(Native(run)));
        // SAFETY: the library passes a place for the object.
        unsafe { out.write(native.cast()) };
        Ok(())
    };
    // SAFETY: the library passes what it wants back.
    unsafe { slot(user, error, body) }
}

pub(super) unsafe extern "C" fn enqueue(
    _: *mut kiln_host_ctx,
    native: *mut kiln_host_native,
    call: *const kiln_native_call,
    user: *mut c_void,
    error: Error,
) -> i32 {
    let body = || {
        // SAFETY: the library passes an object of `attach` that nobody else uses now, and views that are valid for the call.
        let (native, (call, stream)) = unsafe { (native.cast::<Native>().as_mut(), read(call)?) };
        let native = native.ok_or_else(|| BackendError::InvalidArgument("no native form".into()))?;
        native.0.enqueue(&call, stream).map_err(of_layer)
    };
    // SAFETY: the library passes what it wants back.
    unsafe { slot(user, error, body) }
}

pub(super) unsafe extern "C" fn detach(_: *mut kiln_host_ctx, native: *mut kiln_host_native) {
    if !native.is_null() {
        // SAFETY: `attach` made it, and the library gives it back once.
        let end = || drop(unsafe { Box::from_raw(native.cast::<Native>()) });
        // Nobody can be told of a panic here.
        let _ = catch_unwind(AssertUnwindSafe(end));
    }
}

/// The call of a backend; the host fills in fields.
///
/// # Safety
/// The call and its views are valid for the call.
unsafe fn read(call: *const kiln_native_call) -> Result<(NativeCall, NativeStream), BackendError> {
    // SAFETY: as this function's contract says.
    unsafe {
        let c = view::sized(call, "the call of a native form")?;
        let tensors = |at, n| view::slice(at, n)?.iter().map(|t| tensor(t)).collect::<Result<Vec<_>, _>>();
        let call = NativeCall {
            inputs: tensors(c.inputs, c.input_count)?,
            outputs: tensors(c.outputs, c.output_count)?,
            workspace: c.workspace,
            workspace_bytes: c.workspace_bytes,
            device: c.device,
            sizes: c.sizes,
            counting: c.flags & KILN_NATIVE_COUNTING != 0,
            packings: Packings {
                inputs: packings(c.inputs, c.input_formats, c.input_count)?,
                outputs: packings(c.outputs, c.output_formats, c.output_count)?,
            },
        };
        Ok((call, NativeStream { handle: c.stream, recording: c.flags & KILN_NATIVE_RECORDING != 0 }))
    }
}

/// The formats of tensors; none where all are linear.
///
/// # Safety
/// Tensors and formats are valid for the call.
unsafe fn packings(
    tensors: *const kiln_native_tensor,
    formats: *const u32,
    count: u64,
) -> Result<Vec<Packing>, BackendError> {
    if formats.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: as this function's contract says.
    let (tensors, codes) = unsafe { (view::slice(tensors, count)?, view::slice(formats, count)?) };
    let one = |(t, code): (&kiln_native_tensor, &u32)| {
        let unknown = || BackendError::Incompatible(format!("format {code} is not known here"));
        let format =
            TensorFormat::ALL.into_iter().find(|f| u32::from(f.code()) == *code).ok_or_else(unknown)?;
        // SAFETY: as this function's contract says.
        let t = unsafe { tensor(t) }?;
        let dims: Vec<Dim> = t.dims.iter().map(|&d| Dim::new(d)).collect();
        Packing::new(format, t.dtype, &dims).map_err(|e| BackendError::InvalidArgument(e.to_string()))
    };
    tensors.iter().zip(codes).map(one).collect()
}

/// # Safety
/// The dimensions are valid for the call.
unsafe fn tensor(t: &kiln_native_tensor) -> Result<NativeTensor, BackendError> {
    let dtype = u8::try_from(t.dtype).ok().and_then(DType::from_code);
    let unknown = || BackendError::Incompatible(format!("element type {} is not known here", t.dtype));
    // SAFETY: as this function's contract says.
    let dims = unsafe { view::slice(t.dims, t.ndim.into()) }?.to_vec();
    Ok(NativeTensor { dtype: dtype.ok_or_else(unknown)?, dims, address: t.address, bytes: t.bytes })
}
