//! Arguments from the host, as values of Rust.

use super::host::Retained;
use crate::BackendError;
use crate::view::{self, bytes, slice};
use crate::wire::{BlobList, TensorViews};
use kiln_abi::*;
use kiln_ir::{Bytes, Tensor};
use std::sync::Arc;

/// Memory of the host for as long as it is retained.
struct HostMemory {
    ptr: *const u8,
    len: usize,
    _owner: Retained,
}

// SAFETY: the memory is only read, and its owner may be released from any thread.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl AsRef<[u8]> for HostMemory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the owner keeps `len` bytes at `ptr` readable and unchanged until it is released.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

/// A tensor of the host: shared where it can be retained, else copied.
///
/// # Safety
/// The view is valid for the present call.
pub(super) unsafe fn tensor(view: &kiln_tensor) -> Result<Tensor, BackendError> {
    let hold = |data: &[u8]| {
        // SAFETY: the owner is that of the view.
        match unsafe { Retained::new(view.owner) } {
            Some(owner) if !data.is_empty() => {
                let (ptr, len) = (data.as_ptr(), data.len());
                let memory = Arc::new(HostMemory { ptr, len, _owner: owner });
                Bytes::window(memory, 0, len).unwrap_or_else(|| Bytes::from(Vec::new()))
            }
            _ => Bytes::from(data.to_vec()),
        }
    };
    // SAFETY: as this function's contract says.
    unsafe { view::tensor(view, hold) }
}

/// Tensors of the host.
///
/// # Safety
/// `ptr` is null or valid for `len` views, each valid for the present call.
pub(super) unsafe fn tensors(ptr: *const kiln_tensor, len: u64) -> Result<Vec<Tensor>, BackendError> {
    // SAFETY: as this function's contract says.
    unsafe { slice(ptr, len)?.iter().map(|v| tensor(v)).collect() }
}

/// A payload with the tensors and blobs that it names.
pub(super) struct Payload<'a> {
    pub(super) cbor: &'a [u8],
    pub(super) tensors: TensorViews,
    pub(super) blobs: BlobList,
}

/// Reads the views of a payload.
///
/// # Safety
/// The payload is valid for the present call, which `'a` does not outlive.
pub(super) unsafe fn payload<'a>(p: &kiln_payload) -> Result<Payload<'a>, BackendError> {
    // SAFETY: as this function's contract says.
    unsafe {
        let blobs = slice(p.blobs, p.blob_count)?.iter();
        let blobs = blobs.map(|b| bytes(b.ptr, b.len).map(|b| Bytes::from(b.to_vec())));
        Ok(Payload {
            cbor: bytes(p.cbor.ptr, p.cbor.len)?,
            tensors: TensorViews::new(tensors(p.tensors, p.tensor_count)?),
            blobs: BlobList::new(blobs.collect::<Result<_, _>>()?),
        })
    }
}
