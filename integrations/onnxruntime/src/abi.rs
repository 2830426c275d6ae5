//! Structs of the interface for execution providers, version 23. Those of newer versions begin alike.

use ort_sys::{
    OrtAllocator, OrtApiBase, OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtKernelContext, OrtKeyValuePairs,
    OrtLogger, OrtMemoryInfo, OrtNode, OrtRunOptions, OrtSessionOptions, OrtStatusPtr, OrtValue,
};
use std::ffi::{c_char, c_int, c_void};

/// The version that this is written for.
pub const VERSION: u32 = 23;

/// Answer of an execution provider on a graph.
#[repr(C)]
pub struct SupportInfo {
    _unused: [u8; 0],
}

/// Functions for execution providers, as far as they are used here.
#[repr(C)]
pub struct EpApi {
    pub create_ep_device: unsafe extern "C" fn(
        *mut Factory,
        *const OrtHardwareDevice,
        *const OrtKeyValuePairs,
        *const OrtKeyValuePairs,
        *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    pub release_ep_device: unsafe extern "C" fn(*mut OrtEpDevice),
    pub add_nodes_to_fuse: unsafe extern "C" fn(
        *mut SupportInfo,
        *const *const OrtNode,
        usize,
        *const FusionOptions,
    ) -> OrtStatusPtr,
    _add_single_node: usize,
    _node_name: usize,
    pub add_allocator_info: unsafe extern "C" fn(*mut OrtEpDevice, *const OrtMemoryInfo) -> OrtStatusPtr,
    _memory_device: usize,
    /// The memory of a tensor; NULL for values that are none.
    pub value_memory_device: unsafe extern "C" fn(*const OrtValue) -> *const MemoryDevice,
    _memory_devices_are_equal: usize,
    pub memory_device_type: unsafe extern "C" fn(*const MemoryDevice) -> c_int,
    pub memory_device_memory_type: unsafe extern "C" fn(*const MemoryDevice) -> c_int,
    pub memory_device_vendor: unsafe extern "C" fn(*const MemoryDevice) -> u32,
    pub memory_device_id: unsafe extern "C" fn(*const MemoryDevice) -> u32,
}

/// Memory of the host or of a device.
#[repr(C)]
pub struct MemoryDevice {
    _unused: [u8; 0],
}

/// Copies tensors between host and devices.
#[repr(C)]
pub struct DataTransfer {
    pub version: u32,
    pub release: unsafe extern "C" fn(*mut DataTransfer),
    pub can_copy: unsafe extern "C" fn(*const DataTransfer, *const MemoryDevice, *const MemoryDevice) -> bool,
    pub copy_tensors: unsafe extern "C" fn(
        *mut DataTransfer,
        *mut *const OrtValue,
        *mut *mut OrtValue,
        *mut *mut c_void,
        usize,
    ) -> OrtStatusPtr,
}

/// Options of a fused node.
#[repr(C)]
pub struct FusionOptions {
    pub version: u32,
    pub drop_constant_initializers: bool,
}

/// Functions that run a fused node.
#[repr(C)]
pub struct ComputeInfo {
    pub version: u32,
    pub create_state: unsafe extern "C" fn(*mut ComputeInfo, *mut c_void, *mut *mut c_void) -> OrtStatusPtr,
    pub compute: unsafe extern "C" fn(*mut ComputeInfo, *mut c_void, *mut OrtKernelContext) -> OrtStatusPtr,
    pub release_state: unsafe extern "C" fn(*mut ComputeInfo, *mut c_void),
}

/// An execution provider of a session.
#[repr(C)]
pub struct Ep {
    pub version: u32,
    pub name: unsafe extern "C" fn(*const Ep) -> *const c_char,
    pub capability: unsafe extern "C" fn(*mut Ep, *const OrtGraph, *mut SupportInfo) -> OrtStatusPtr,
    pub compile: unsafe extern "C" fn(
        *mut Ep,
        *mut *const OrtGraph,
        *mut *const OrtNode,
        usize,
        *mut *mut ComputeInfo,
        *mut *mut OrtNode,
    ) -> OrtStatusPtr,
    pub release_compute_infos: unsafe extern "C" fn(*mut Ep, *mut *mut ComputeInfo, usize),
    pub preferred_layout: Option<unsafe extern "C" fn(*mut Ep, *mut c_int) -> OrtStatusPtr>,
    pub convert_layout: Option<
        unsafe extern "C" fn(*mut Ep, *const c_char, *const c_char, c_int, *mut c_int) -> OrtStatusPtr,
    >,
    pub dynamic_options: Option<
        unsafe extern "C" fn(*mut Ep, *const *const c_char, *const *const c_char, usize) -> OrtStatusPtr,
    >,
    pub run_start: Option<unsafe extern "C" fn(*mut Ep, *const OrtRunOptions) -> OrtStatusPtr>,
    pub run_end: Option<unsafe extern "C" fn(*mut Ep, *const OrtRunOptions, bool) -> OrtStatusPtr>,
    pub create_allocator:
        Option<unsafe extern "C" fn(*mut Ep, *const OrtMemoryInfo, *mut *mut OrtAllocator) -> OrtStatusPtr>,
    pub create_stream: Option<unsafe extern "C" fn(*mut Ep, *const c_void, *mut *mut c_void) -> OrtStatusPtr>,
    pub compatibility: Option<unsafe extern "C" fn(*mut Ep, *const OrtGraph) -> *const c_char>,
}

/// Compatibility of a compiled model: it says nothing of this provider.
pub const COMPATIBILITY_UNKNOWN: c_int = 0;
/// It runs here as it is.
pub const COMPATIBLE: c_int = 1;
/// It does not run here.
pub const INCOMPATIBLE: c_int = 3;

/// Makes execution providers.
#[repr(C)]
pub struct Factory {
    pub version: u32,
    pub name: unsafe extern "C" fn(*const Factory) -> *const c_char,
    pub vendor: unsafe extern "C" fn(*const Factory) -> *const c_char,
    pub supported_devices: unsafe extern "C" fn(
        *mut Factory,
        *const *const OrtHardwareDevice,
        usize,
        *mut *mut OrtEpDevice,
        usize,
        *mut usize,
    ) -> OrtStatusPtr,
    pub create_ep: unsafe extern "C" fn(
        *mut Factory,
        *const *const OrtHardwareDevice,
        *const *const OrtKeyValuePairs,
        usize,
        *const OrtSessionOptions,
        *const OrtLogger,
        *mut *mut Ep,
    ) -> OrtStatusPtr,
    pub release_ep: unsafe extern "C" fn(*mut Factory, *mut Ep),
    pub vendor_id: unsafe extern "C" fn(*const Factory) -> u32,
    pub library_version: unsafe extern "C" fn(*const Factory) -> *const c_char,
    pub validate: unsafe extern "C" fn(
        *mut Factory,
        *const *const OrtHardwareDevice,
        usize,
        *const c_char,
        *mut c_int,
    ) -> OrtStatusPtr,
    pub create_allocator: unsafe extern "C" fn(
        *mut Factory,
        *const OrtMemoryInfo,
        *const OrtKeyValuePairs,
        *mut *mut OrtAllocator,
    ) -> OrtStatusPtr,
    pub release_allocator: unsafe extern "C" fn(*mut Factory, *mut OrtAllocator),
    pub create_data_transfer: unsafe extern "C" fn(*mut Factory, *mut *mut c_void) -> OrtStatusPtr,
    pub is_stream_aware: unsafe extern "C" fn(*const Factory) -> bool,
    pub create_stream: unsafe extern "C" fn(
        *mut Factory,
        *const c_void,
        *const OrtKeyValuePairs,
        *mut *mut c_void,
    ) -> OrtStatusPtr,
}

/// The first table, through which others are found.
pub type ApiBase = OrtApiBase;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structs_are_laid_out_as_the_interface_has_them() {
        // A version, padding, and a pointer for each function.
        assert_eq!((size_of::<Ep>(), offset_of!(Ep, name), offset_of!(Ep, compatibility)), (104, 8, 96));
        assert_eq!((size_of::<Factory>(), offset_of!(Factory, create_stream)), (112, 104));
        assert_eq!((size_of::<ComputeInfo>(), offset_of!(ComputeInfo, release_state)), (32, 24));
        assert_eq!(
            (size_of::<FusionOptions>(), offset_of!(FusionOptions, drop_constant_initializers)),
            (8, 4)
        );
        assert_eq!(offset_of!(EpApi, add_nodes_to_fuse), 16);
        assert_eq!((offset_of!(EpApi, add_allocator_info), offset_of!(EpApi, memory_device_id)), (40, 96));
        assert_eq!((size_of::<DataTransfer>(), offset_of!(DataTransfer, copy_tensors)), (32, 24));
    }
}
