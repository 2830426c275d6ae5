//! Native forms of layers that the host calls for a backend in a library.

use super::layers::{lossy, table};
use crate::native_call::with_native_call;
use kiln_abi::*;
use kiln_ir::{Op, OpError};
use kiln_ops::plugin::native::{NativeCall, NativeDevice, NativeRun, NativeStream};
use std::ffi::c_void;
use std::ptr::NonNull;

/// An object of the host.
struct Native {
    at: NonNull<kiln_host_native>,
    ctx: *mut kiln_host_ctx,
    table: kiln_host_layers_v1,
}

// SAFETY: the host's functions may be called from any thread, by one at a time for an object.
unsafe impl Send for Native {}

/// Fields, which the host fills in.
const NONE: (*const kiln_field, u64) = (std::ptr::null(), 0);

fn too_old() -> OpError {
    OpError::Unsupported("native forms of layers by this host, which is older than 1.9; upgrade Kiln".into())
}

/// Makes a native form of the layer that an operator names ready on the host.
pub(super) fn attach(
    op: &Op,
    device: NativeDevice,
    tactic: &str,
    call: &NativeCall,
) -> Result<Box<dyn NativeRun>, OpError> {
    let (ctx, table) = table().ok_or_else(too_old)?;
    let (attach, _, _) = (
        table.native_attach.ok_or_else(too_old)?,
        table.native_enqueue.ok_or_else(too_old)?,
        table.native_detach.ok_or_else(too_old)?,
    );
    let cbor = minicbor::to_vec(op).map_err(|e| OpError::Value(e.to_string()))?;
    let device = match device {
        NativeDevice::Cuda => KILN_DEVICE_CUDA,
        NativeDevice::Wgpu => KILN_DEVICE_WGPU,
    };
    let mut made = std::ptr::null_mut();
    let stream = NativeStream { handle: std::ptr::null_mut(), recording: false };
    let (op, tactic) = (kiln_bytes::new(&cbor), kiln_str::new(tactic));
    told(|user| {
        with_native_call(NONE, call, stream, |c| {
            // SAFETY: views and places live for the call.
            unsafe { attach(ctx, op, device, tactic, c, &mut made, user, Some(error)) }
        })
    })?;
    let none = || OpError::Value("the host reports success but made no native form".into());
    Ok(Box::new(Native { at: NonNull::new(made).ok_or_else(none)?, ctx, table }))
}

impl NativeRun for Native {
    fn enqueue(&mut self, call: &NativeCall, stream: NativeStream) -> Result<(), OpError> {
        let enqueue = self.table.native_enqueue.ok_or_else(too_old)?;
        told(|user| {
            with_native_call(NONE, call, stream, |c| {
                // SAFETY: the object is alive and this thread's; views live for the call.
                unsafe { enqueue(self.ctx, self.at.as_ptr(), c, user, Some(error)) }
            })
        })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some((detach, _)) = self.table.native_detach.zip(table()) {
            // SAFETY: the host made it, nobody uses it, and it is given back once.
            unsafe { detach(self.ctx, self.at.as_ptr()) }
        }
    }
}

/// Calls the host with a place for the text of an error.
fn told(f: impl FnOnce(*mut c_void) -> i32) -> Result<(), OpError> {
    let mut message = String::new();
    match f((&raw mut message).cast()) {
        KILN_OK => Ok(()),
        KILN_UNSUPPORTED => Err(OpError::Unsupported(message)),
        _ => Err(OpError::Value(message)),
    }
}

unsafe extern "C" fn error(user: *mut c_void, _: i32, message: kiln_str) {
    // SAFETY: the host passes back what it was given, and a view that is valid for the call.
    unsafe {
        if let Some(to) = user.cast::<String>().as_mut() {
            *to = lossy(message);
        }
    }
}
