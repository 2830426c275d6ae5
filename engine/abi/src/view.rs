//! Borrowed views, and the objects of the host that results are written to.

use core::ffi::{c_char, c_void};

/// Text in UTF-8, without a terminating zero. `ptr` may be null where `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_str {
    /// The first byte.
    pub ptr: *const c_char,
    /// Number of bytes.
    pub len: u64,
}

/// Bytes. `ptr` may be null where `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_bytes {
    /// The first byte.
    pub ptr: *const u8,
    /// Number of bytes.
    pub len: u64,
}

/// A dense, row-major tensor in host memory, little-endian. This structure never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_tensor {
    /// Code of the element type; see PAYLOADS.md. Unknown codes are to be refused.
    pub dtype: u32,
    /// Number of dimensions.
    pub ndim: u32,
    /// The dimensions, outermost first; -1 for one that is not known yet. May be null where `ndim` is 0.
    pub dims: *const i64,
    /// The elements; null where they are not known, or where `len` is 0.
    pub data: *const c_void,
    /// Bytes of `data`.
    pub len: u64,
    /// Owner of `data`: after `retain` of the host the data outlives the call. Null: it can't be retained.
    pub owner: *mut kiln_owner,
}

/// A CBOR payload with the large tensors and blobs that it names by index. This structure never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_payload {
    /// The payload.
    pub cbor: kiln_bytes,
    /// Tensors that lie outside.
    pub tensors: *const kiln_tensor,
    /// Number of tensors.
    pub tensor_count: u64,
    /// Blobs that lie outside.
    pub blobs: *const kiln_bytes,
    /// Number of blobs.
    pub blob_count: u64,
}

/// Receiver of the bytes that a call writes with `sink_write` of the host.
pub struct kiln_sink {
    _opaque: [u8; 0],
}

/// Receiver of the tensors that a call writes with `tensor_write` of the host.
pub struct kiln_tensor_sink {
    _opaque: [u8; 0],
}

/// Receiver of the error that a call sets with `error_set` of the host.
pub struct kiln_error {
    _opaque: [u8; 0],
}

/// Shared owner that keeps the data of a tensor alive.
pub struct kiln_owner {
    _opaque: [u8; 0],
}

/// The state of the host, passed back to its functions.
pub struct kiln_host_ctx {
    _opaque: [u8; 0],
}

impl kiln_str {
    /// A view of text.
    pub const fn new(s: &str) -> kiln_str {
        kiln_str { ptr: s.as_ptr().cast(), len: s.len() as u64 }
    }
}

impl kiln_bytes {
    /// A view of bytes.
    pub const fn new(b: &[u8]) -> kiln_bytes {
        kiln_bytes { ptr: b.as_ptr(), len: b.len() as u64 }
    }
}
