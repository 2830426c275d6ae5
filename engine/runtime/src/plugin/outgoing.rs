//! Arguments that the host passes to a library: views that live while their maker does.

use ::kiln_backend::wire::{BlobList, TensorViews};
use kiln_abi::*;
use kiln_ir::{Bytes, Tensor};
use std::sync::Arc;

/// Object that a `kiln_owner` points to: shared bytes, kept by an [`Arc`].
pub(super) struct Owner {
    _bytes: Bytes,
}

impl Owner {
    /// Keeps an owner once more.
    ///
    /// # Safety
    /// `owner` is null or one that [`Tensors`] handed out and that is still kept.
    pub(super) unsafe fn retain(owner: *mut kiln_owner) {
        if !owner.is_null() {
            // SAFETY: as this function's contract says.
            unsafe { Arc::increment_strong_count(owner.cast::<Owner>().cast_const()) }
        }
    }

    /// Keeps an owner once less.
    ///
    /// # Safety
    /// `owner` is null or was retained.
    pub(super) unsafe fn release(owner: *mut kiln_owner) {
        if !owner.is_null() {
            // SAFETY: as this function's contract says.
            unsafe { Arc::decrement_strong_count(owner.cast::<Owner>().cast_const()) }
        }
    }
}

/// Views of tensors that a library may retain.
pub(super) struct Tensors {
    views: Vec<kiln_tensor>,
    _dims: Vec<Vec<i64>>,
    _owners: Vec<Arc<Owner>>,
}

impl Tensors {
    pub(super) fn new(tensors: &[Tensor]) -> Tensors {
        let dims: Vec<Vec<i64>> =
            tensors.iter().map(|t| t.shape().iter().map(|&d| d as i64).collect()).collect();
        let owners: Vec<Arc<Owner>> =
            tensors.iter().map(|t| Arc::new(Owner { _bytes: t.shared_bytes() })).collect();
        let parts = tensors.iter().zip(&dims).zip(&owners);
        let views = parts.map(|((t, dims), owner)| kiln_tensor {
            dtype: t.dtype().code().into(),
            ndim: dims.len() as u32,
            dims: dims.as_ptr(),
            data: t.bytes().as_ptr().cast(),
            len: t.bytes().len() as u64,
            owner: Arc::as_ptr(owner).cast_mut().cast(),
        });
        Tensors { views: views.collect(), _dims: dims, _owners: owners }
    }

    pub(super) fn as_ptr(&self) -> *const kiln_tensor {
        self.views.as_ptr()
    }

    pub(super) fn len(&self) -> u64 {
        self.views.len() as u64
    }
}

/// A payload with the tensors and blobs that it names.
pub(super) struct Payload {
    cbor: Vec<u8>,
    tensors: Tensors,
    blobs: Vec<kiln_bytes>,
    _blobs: BlobList,
}

impl Payload {
    pub(super) fn new(cbor: Vec<u8>, tensors: &TensorViews, blobs: BlobList) -> Payload {
        let views = blobs.blobs().iter().map(|b| kiln_bytes::new(b.as_slice())).collect();
        Payload { cbor, tensors: Tensors::new(tensors.tensors()), blobs: views, _blobs: blobs }
    }

    /// A view that is valid while this lives.
    pub(super) fn view(&self) -> kiln_payload {
        kiln_payload {
            cbor: kiln_bytes::new(&self.cbor),
            tensors: self.tensors.as_ptr(),
            tensor_count: self.tensors.len(),
            blobs: self.blobs.as_ptr(),
            blob_count: self.blobs.len() as u64,
        }
    }
}
