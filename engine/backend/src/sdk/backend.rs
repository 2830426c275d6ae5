//! Slots of backends and devices.

use super::constructor::create_with;
use super::context::Loaded;
use super::handle::{Handle, give};
use super::{host, import, panics};
use crate::view;
use crate::wire::{samples_to_cbor, tactics_to_cbor, targets_to_cbor};
use crate::{Backend, BackendError, Device, Executable, Program, Region, Tactic, Target, TimeRequest};
use kiln_abi::*;
use kiln_ir::Graph;
use std::ffi::c_void;
use std::sync::Arc;

type BackendHandle = Handle<Box<dyn Backend>>;
type DeviceHandle = Handle<Arc<dyn Device>>;

pub(super) unsafe extern "C" fn create(out: *mut *mut kiln_backend, err: *mut kiln_error) -> i32 {
    panics::guard(err, || {
        let backend = create_with()?;
        // SAFETY: the host passes a place for a pointer.
        unsafe { give(out, || Handle::make(backend)) }
    })
}

pub(super) unsafe extern "C" fn destroy(backend: *mut kiln_backend) {
    // SAFETY: the host destroys what `create` made, once.
    unsafe { BackendHandle::destroy(backend) }
}

pub(super) unsafe extern "C" fn targets(
    backend: *mut kiln_backend,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and sinks of the present call.
    unsafe { BackendHandle::slot(backend, err, |b| host::write(out, &targets_to_cbor(&b.targets()?)?)) }
}

pub(super) unsafe extern "C" fn supports(
    backend: *mut kiln_backend,
    region: *const kiln_payload,
    target: kiln_bytes,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and views of the present call.
    unsafe {
        BackendHandle::slot(backend, err, |b| {
            let p = import::payload(view::required(region, "the region")?)?;
            let region = Region::from_cbor(p.cbor, &p.tensors)?;
            b.supports(&region, &Target::from_cbor(view::bytes(target.ptr, target.len)?)?)
        })
    }
}

pub(super) unsafe extern "C" fn tactics(
    backend: *mut kiln_backend,
    region: *const kiln_payload,
    target: kiln_bytes,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, views and sinks of the present call.
    unsafe {
        BackendHandle::slot(backend, err, |b| {
            let p = import::payload(view::required(region, "the region")?)?;
            let region = Region::from_cbor(p.cbor, &p.tensors)?;
            let target = Target::from_cbor(view::bytes(target.ptr, target.len)?)?;
            host::write(out, &tactics_to_cbor(&b.tactics(&region, &target)?)?)
        })
    }
}

pub(super) unsafe extern "C" fn compile(
    backend: *mut kiln_backend,
    region: *const kiln_payload,
    tactic: kiln_bytes,
    target: kiln_bytes,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, views and sinks of the present call.
    unsafe {
        BackendHandle::slot(backend, err, |b| {
            let p = import::payload(view::required(region, "the region")?)?;
            let region = Region::from_cbor(p.cbor, &p.tensors)?;
            let tactic = Tactic::from_cbor(view::bytes(tactic.ptr, tactic.len)?)?;
            let target = Target::from_cbor(view::bytes(target.ptr, target.len)?)?;
            host::write(out, &b.compile(&region, &tactic, &target)?)
        })
    }
}

pub(super) unsafe extern "C" fn open(
    backend: *mut kiln_backend,
    target: kiln_bytes,
    out: *mut *mut kiln_device,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, a view of the present call and a place for a pointer.
    unsafe {
        BackendHandle::slot(backend, err, |b| {
            let device = b.open(&Target::from_cbor(view::bytes(target.ptr, target.len)?)?)?;
            give(out, || Handle::make(device))
        })
    }
}

pub(super) unsafe extern "C" fn device_destroy(device: *mut kiln_device) {
    // SAFETY: the host destroys what `open` made, once.
    unsafe { DeviceHandle::destroy(device) }
}

pub(super) unsafe extern "C" fn time(
    device: *mut kiln_device,
    request: *const kiln_time_request,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `open` made, views and sinks of the present call.
    unsafe {
        DeviceHandle::slot(device, err, |d| {
            let r = view::sized(request, "the request")?;
            let p = import::payload(&r.graph)?;
            let graph = Graph::from_cbor(p.cbor, &p.tensors)?;
            let tactic = Tactic::from_cbor(view::bytes(r.tactic.ptr, r.tactic.len)?)?;
            let inputs = import::tensors(r.inputs, r.input_count)?;
            let blob = view::bytes(r.blob.ptr, r.blob.len)?;
            let samples = d.time(&TimeRequest {
                graph: &graph,
                tactic: &tactic,
                blob,
                inputs: &inputs,
                samples: r.samples,
            })?;
            host::write(out, &samples_to_cbor(&samples)?)
        })
    }
}

pub(super) unsafe extern "C" fn load(
    device: *mut kiln_device,
    program: *const kiln_payload,
    out: *mut *mut kiln_executable,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe { make(device, program, out, err, |d, program| d.load(program)) }
}

pub(super) unsafe extern "C" fn load_within(
    device: *mut kiln_device,
    program: *const kiln_payload,
    weight_budget: u64,
    out: *mut *mut kiln_executable,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe { make(device, program, out, err, |d, program| d.load_within(program, weight_budget)) }
}

/// Makes an executable.
///
/// # Safety
/// The host passes what `open` made, a view of the present call and a place for a pointer.
unsafe fn make(
    device: *mut kiln_device,
    program: *const kiln_payload,
    out: *mut *mut kiln_executable,
    err: *mut kiln_error,
    load: impl FnOnce(&dyn Device, Arc<Program>) -> Result<Arc<dyn Executable>, BackendError>,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe {
        DeviceHandle::slot(device, err, |d| {
            let p = import::payload(view::required(program, "the program")?)?;
            let program = Arc::new(Program::from_cbor(p.cbor, &p.tensors, &p.blobs)?);
            let loaded = Loaded::new(load(&**d, program.clone())?, program);
            give(out, || Handle::make(loaded))
        })
    }
}

pub(super) unsafe extern "C" fn free_memory(
    device: *mut kiln_device,
    bytes: *mut u64,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `open` made and a place for a number.
    unsafe {
        DeviceHandle::slot(device, err, |d| {
            let place = bytes.as_mut();
            let none = || BackendError::InvalidArgument("no place for the number of bytes".into());
            *place.ok_or_else(none)? = d.free_memory()?;
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn read(
    device: *mut kiln_device,
    stream: *mut c_void,
    address: *const c_void,
    bytes: u64,
    to: *mut c_void,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `open` made, and memory of the host with room for the bytes.
    unsafe {
        DeviceHandle::slot(device, err, |d| {
            let n = usize::try_from(bytes).ok().filter(|n| isize::try_from(*n).is_ok());
            match n.filter(|_| !to.is_null() && !address.is_null()) {
                Some(n) => d.read(stream, address, std::slice::from_raw_parts_mut(to.cast::<u8>(), n)),
                None => {
                    Err(BackendError::InvalidArgument(format!("{bytes} bytes from {address:?} to {to:?}")))
                }
            }
        })
    }
}
