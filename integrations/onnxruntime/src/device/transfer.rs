//! Copies of tensors between host and device for ONNX Runtime.

use super::NVIDIA;
use super::driver::device;
use crate::abi::{DataTransfer, MemoryDevice, VERSION};
use crate::error::{Fail, quietly};
use crate::ort::{Ort, guard};
use ort_sys::{OrtDeviceMemoryType, OrtMemoryInfoDeviceType, OrtStatusPtr, OrtValue};
use std::ffi::c_void;

/// An object that copies tensors between host and device, of which ONNX Runtime sees the first field.
#[repr(C)]
struct Transfer {
    interface: DataTransfer,
    ort: Ort,
}

/// Makes the object by which ONNX Runtime copies tensors.
pub fn make_transfer(ort: Ort) -> *mut c_void {
    let interface = DataTransfer { version: VERSION, release, can_copy, copy_tensors };
    Box::into_raw(Box::new(Transfer { interface, ort })).cast()
}

unsafe extern "C" fn release(transfer: *mut DataTransfer) {
    if !transfer.is_null() {
        // SAFETY: what `make_transfer` made, which nobody uses any more.
        quietly(|| drop(unsafe { Box::from_raw(transfer.cast::<Transfer>()) }));
    }
}

/// The memory that holds a tensor: the host's, or that of a GPU by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    Device(usize),
}

/// The place of a memory of ONNX Runtime; `None` where it belongs to devices that Kiln does not drive.
fn place(ort: &Ort, memory: *const MemoryDevice) -> Option<Place> {
    // SAFETY: the table's functions, and memory that lives as long as the call.
    let (kind, vendor, form, number) = unsafe {
        let ep = ort.ep;
        (
            (ep.memory_device_type)(memory),
            (ep.memory_device_vendor)(memory),
            (ep.memory_device_memory_type)(memory),
            (ep.memory_device_id)(memory),
        )
    };
    let plain = form == OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT as i32;
    match kind {
        k if k == OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU as i32 => Some(Place::Host),
        k if k == OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU as i32 => {
            (vendor == NVIDIA && plain).then_some(Place::Device(number as usize))
        }
        _ => None,
    }
}

unsafe extern "C" fn can_copy(
    transfer: *const DataTransfer,
    from: *const MemoryDevice,
    to: *const MemoryDevice,
) -> bool {
    // SAFETY: what `make_transfer` made.
    let ort = unsafe { (*transfer.cast::<Transfer>()).ort };
    match (place(&ort, from), place(&ort, to)) {
        (Some(Place::Device(a)), Some(Place::Device(b))) => a == b,
        (Some(a), Some(b)) => a != b,
        _ => false,
    }
}

unsafe extern "C" fn copy_tensors(
    transfer: *mut DataTransfer,
    from: *mut *const OrtValue,
    to: *mut *mut OrtValue,
    _: *mut *mut c_void,
    count: usize,
) -> OrtStatusPtr {
    // SAFETY: what `make_transfer` made.
    let ort = unsafe { (*transfer.cast::<Transfer>()).ort };
    // SAFETY: arrays of so many tensors.
    guard(&ort, || (0..count).try_for_each(|i| unsafe { copy(&ort, *from.add(i), *to.add(i)) }))
}

/// Copies a tensor.
///
/// # Safety
/// Both tensors live as long as the call.
unsafe fn copy(ort: &Ort, from: *const OrtValue, to: *mut OrtValue) -> Result<(), Fail> {
    let (mut source, mut target, mut bytes, mut room) = (std::ptr::null_mut(), std::ptr::null_mut(), 0, 0);
    // SAFETY: the table's functions, as the caller vouches; the source is only read.
    let places = unsafe {
        ort.check((ort.api.GetTensorMutableData)(from.cast_mut(), &raw mut source))?;
        ort.check((ort.api.GetTensorMutableData)(to, &raw mut target))?;
        ort.check((ort.api.GetTensorSizeInBytes)(from, &raw mut bytes))?;
        ort.check((ort.api.GetTensorSizeInBytes)(to, &raw mut room))?;
        let at = |v| place(ort, (ort.ep.value_memory_device)(v));
        (at(from), at(to.cast_const()))
    };
    if bytes != room {
        return Err(Fail::argument(format!("a tensor of {bytes} bytes is copied to one of {room}")));
    }
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the tensors have so many bytes.
    unsafe {
        match places {
            (Some(Place::Host), Some(Place::Device(n))) => {
                device(n)?.write(target as u64, std::slice::from_raw_parts(source.cast(), bytes))
            }
            (Some(Place::Device(n)), Some(Place::Host)) => {
                device(n)?.read(std::slice::from_raw_parts_mut(target.cast(), bytes), source as u64)
            }
            (Some(Place::Device(a)), Some(Place::Device(b))) if a == b => {
                device(a)?.copy(target as u64, source as u64, bytes)
            }
            _ => Err(Fail::new("a tensor is in memory that is none of the host or of one device of CUDA")),
        }
    }
}
