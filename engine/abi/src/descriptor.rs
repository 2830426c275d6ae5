//! The exported constant by which a library is recognized.

use crate::{kiln_error, kiln_host, kiln_str};
use core::ffi::c_void;

/// The first eight bytes of a descriptor: "KILNPLUG" in little-endian order.
pub const KILN_MAGIC: u64 = 0x4755_4C50_4E4C_494B;

/// Size of the part of the descriptor that is the same in every version, in bytes.
pub const KILN_PREFIX_SIZE: u32 = 32;

/// Bit of `kinds`: the library offers a backend, the interface "kiln.backend/1".
pub const KILN_KIND_BACKEND: u32 = 1;
/// Bit of `kinds`: the library offers layers, the interface "kiln.layer/1".
pub const KILN_KIND_LAYERS: u32 = 2;

/// Bit of `flags`: written in Rust, panics unwind and are caught at every slot.
pub const KILN_FLAG_PANIC_UNWIND: u32 = 1;
/// Bit of `flags`: C++ exceptions may be thrown inside; every slot catches them.
pub const KILN_FLAG_EXCEPTIONS: u32 = 2;
/// Bit of `flags`: needs the CUDA driver.
pub const KILN_FLAG_NEEDS_CUDA: u32 = 4;
/// Bit of `flags`: written in Rust, a panic ends the process. Refused unless the host's policy allows it.
pub const KILN_FLAG_PANIC_ABORT: u32 = 8;

/// Constant that a plug-in library exports as `kiln_plugin_descriptor`.
///
/// The host reads it without running any code of the library, in this order: `magic`, `struct_size`, `abi_major`,
/// `min_host_minor`, `target`, `flags`, slots.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_descriptor {
    /// `KILN_MAGIC`.
    pub magic: u64,
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// `KILN_ABI_MAJOR` of the header that the library was compiled with.
    pub abi_major: u32,
    /// `KILN_ABI_MINOR` of the header that the library was compiled with.
    pub abi_minor: u32,
    /// The least minor version of a host that the library can live with.
    pub min_host_minor: u32,
    /// Kinds of plug-in that the library offers: `KILN_KIND_` bits. Unknown bits are ignored.
    pub kinds: u32,
    /// Facts that the host needs before it runs code: `KILN_FLAG_` bits. Unknown bits are ignored.
    pub flags: u32,
    /// Name of the plug-in: "cuda".
    pub name: kiln_str,
    /// Name of the vendor.
    pub vendor: kiln_str,
    /// Version of the library, as semantic versioning writes it.
    pub version: kiln_str,
    /// Text that distinguishes builds of one version; may be empty.
    pub build_id: kiln_str,
    /// Target triple that it was compiled for; `KILN_TARGET` in C.
    pub target: kiln_str,
    /// Required. Prepares the library; `host` stays valid until `deinit` returns. A failure is final: the library is
    /// not asked again. `[once]`
    pub init: Option<unsafe extern "C" fn(host: *const kiln_host, err: *mut kiln_error) -> i32>,
    /// Optional. Called when the process ends, after all objects that the host still can destroy, in the reverse
    /// order of `init`. The library stays mapped. `[once]`
    pub deinit: Option<unsafe extern "C" fn()>,
    /// Required. The table of an interface, null for an unknown one. Tables live as long as the library is mapped.
    /// `[any-thread]`
    pub get_interface: Option<unsafe extern "C" fn(id: kiln_str) -> *const c_void>,
}

// SAFETY: a descriptor is constant; its pointers lead to constant text.
unsafe impl Sync for kiln_descriptor {}
// SAFETY: as above.
unsafe impl Send for kiln_descriptor {}
