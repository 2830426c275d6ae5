//! Allocators of device memory for ONNX Runtime.

use super::driver::{Device, device};
use super::{NAME, NVIDIA};
use crate::error::{Fail, quietly};
use crate::ort::Ort;
use ort_sys::{OrtAllocator, OrtAllocatorType, OrtDeviceMemoryType, OrtMemoryInfo, OrtMemoryInfoDeviceType};
use std::ffi::{c_int, c_void};

/// The alignment that ONNX Runtime is told: devices count as the same only if it is that which programs give, none. All memory begins at
/// a multiple of 256.
const ALIGNMENT: usize = 0;

/// Describes the memory of a device. The caller frees it.
pub fn describe(ort: &Ort, number: usize) -> Result<*mut OrtMemoryInfo, Fail> {
    let mut made = std::ptr::null_mut();
    // SAFETY: the table's function, a text that it copies, and a place for a pointer.
    unsafe {
        ort.check((ort.api.CreateMemoryInfo_V2)(
            NAME.as_ptr(),
            OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU,
            NVIDIA,
            number as c_int,
            OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT,
            ALIGNMENT,
            OrtAllocatorType::OrtDeviceAllocator,
            &raw mut made,
        ))?;
    }
    Ok(made)
}

/// An allocator. ONNX Runtime sees its first field.
#[repr(C)]
struct Allocator {
    interface: OrtAllocator,
    ort: Ort,
    memory: *mut OrtMemoryInfo,
    device: &'static Device,
}

/// Makes an allocator for memory that [`describe`] described.
///
/// # Safety
/// The description lives as long as the call.
pub unsafe fn make_allocator(ort: Ort, info: *const OrtMemoryInfo) -> Result<*mut OrtAllocator, Fail> {
    let mut number = 0;
    // SAFETY: as the caller vouches, and a place for a number.
    ort.check(unsafe { (ort.api.MemoryInfoGetId)(info, &raw mut number) })?;
    let number = usize::try_from(number).map_err(|_| Fail::argument("a device has a negative number"))?;
    let device = device(number)?;
    let interface = OrtAllocator {
        version: crate::abi::VERSION,
        Alloc: Some(alloc),
        Free: Some(free),
        Info: Some(info_of),
        Reserve: Some(reserve),
        GetStats: None,
        AllocOnStream: None,
    };
    let memory = describe(&ort, number)?;
    Ok(Box::into_raw(Box::new(Allocator { interface, ort, memory, device })).cast())
}

/// Frees an allocator.
///
/// # Safety
/// NULL, or what [`make_allocator`] returned and nobody uses any more.
pub unsafe fn release_allocator(allocator: *mut OrtAllocator) {
    if !allocator.is_null() {
        // SAFETY: as the caller vouches; the description was made with it.
        quietly(|| unsafe {
            let own = Box::from_raw(allocator.cast::<Allocator>());
            (own.ort.api.ReleaseMemoryInfo)(own.memory);
        });
    }
}

fn take(allocator: *const OrtAllocator, size: usize) -> *mut c_void {
    let mut address = 0;
    // SAFETY: an allocator of this library. ONNX Runtime makes an error of null.
    quietly(|| address = unsafe { &*allocator.cast::<Allocator>() }.device.allocate(size).unwrap_or(0));
    address as usize as *mut c_void
}

unsafe extern "system" fn alloc(allocator: *mut OrtAllocator, size: usize) -> *mut c_void {
    take(allocator, size)
}

unsafe extern "system" fn reserve(allocator: *const OrtAllocator, size: usize) -> *mut c_void {
    take(allocator, size)
}

unsafe extern "system" fn free(allocator: *mut OrtAllocator, address: *mut c_void) {
    if !address.is_null() {
        // SAFETY: an allocator of this library, and memory of it that nothing uses any more.
        quietly(|| unsafe {
            let _ = (*allocator.cast::<Allocator>()).device.free(address as u64);
        });
    }
}

unsafe extern "system" fn info_of(allocator: *const OrtAllocator) -> *const OrtMemoryInfo {
    // SAFETY: an allocator of this library.
    unsafe { (*allocator.cast::<Allocator>()).memory }
}
