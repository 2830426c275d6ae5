//! Values while a program runs.

use crate::buffer::{Buf, Pool};
use bytemuck::Pod;
use kiln_backend::BackendError;
use kiln_ir::{Bytes, DType, Tensor, tensor::volume};
use std::sync::Arc;

/// A dense row-major tensor whose memory may be written again once nobody else holds it.
#[derive(Clone, Debug)]
pub enum Val {
    /// Given from outside, or made by the oracle; never written.
    Shared(Tensor),
    /// Buffer of the context's pool.
    Pooled(Pooled),
}

/// A tensor in a pooled buffer.
#[derive(Clone)]
pub struct Pooled {
    dtype: DType,
    shape: Vec<usize>,
    buf: Arc<Buf>,
}

impl std::fmt::Debug for Pooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

impl Val {
    /// A tensor from outside, or a copy where its elements are not aligned, as in a mapped model file or an array of the caller's:
    /// kernels read elements, not bytes.
    pub fn shared(t: Tensor) -> Val {
        let size = (t.dtype().bits() / 8).max(1) as usize;
        Val::Shared(match (t.bytes().as_ptr() as usize).is_multiple_of(size) {
            true => t,
            false => Tensor::from_bytes(t.dtype(), t.shape(), t.bytes().to_vec()).unwrap_or(t),
        })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Val::Shared(t) => t.dtype(),
            Val::Pooled(p) => p.dtype,
        }
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            Val::Shared(t) => t.shape(),
            Val::Pooled(p) => &p.shape,
        }
    }

    /// The little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Val::Shared(t) => t.bytes(),
            Val::Pooled(p) => (*p.buf).as_ref(),
        }
    }

    /// Tensor that shares the memory.
    pub fn tensor(&self) -> Result<Tensor, BackendError> {
        let p = match self {
            Val::Shared(t) => return Ok(t.clone()),
            Val::Pooled(p) => p,
        };
        let len = (*p.buf).as_ref().len();
        Bytes::window(p.buf.clone(), 0, len)
            .and_then(|b| Tensor::from_bytes(p.dtype, &p.shape, b))
            .ok_or_else(|| BackendError::Internal(format!("{p:?} has {len} bytes")))
    }

    /// Tensor for the caller, who may keep it for long: a copy where it would hold on to much unused memory.
    pub fn output(&self) -> Result<Tensor, BackendError> {
        match self {
            Val::Pooled(p) if p.buf.is_wasteful() => {
                let copy = Tensor::from_bytes(p.dtype, &p.shape, self.bytes().to_vec());
                copy.ok_or_else(|| BackendError::Internal(format!("{p:?} has too few bytes")))
            }
            _ => self.tensor(),
        }
    }

    /// Reshapes to another shape of the same volume.
    pub fn reshaped(self, shape: &[usize]) -> Option<Val> {
        if volume(shape)? != volume(self.shape())? {
            return None;
        }
        match self {
            Val::Shared(t) => t.reshaped(shape).map(Val::Shared),
            Val::Pooled(p) => Some(Val::Pooled(Pooled { shape: shape.to_vec(), ..p })),
        }
    }

    /// Elements of another type of this width, with these bits.
    pub fn reinterpreted(self, dtype: DType) -> Option<Val> {
        if dtype.bits() != self.dtype().bits() {
            return None;
        }
        match self {
            Val::Shared(t) => Tensor::from_bytes(dtype, t.shape(), t.shared_bytes()).map(Val::Shared),
            Val::Pooled(p) => Some(Val::Pooled(Pooled { dtype, ..p })),
        }
    }

    /// The elements, where type and alignment fit.
    pub fn view<T: Pod>(&self) -> Option<&[T]> {
        (size_of::<T>() as u32 * 8 == self.dtype().bits()).then_some(())?;
        // Memory of no elements has no address that means anything.
        if self.bytes().is_empty() {
            return Some(&[]);
        }
        bytemuck::try_cast_slice(self.bytes()).ok()
    }
}

/// A tensor that is being written.
pub struct Out {
    dtype: DType,
    shape: Vec<usize>,
    buf: Arc<Buf>,
}

impl Out {
    /// A new tensor of unspecified contents.
    pub fn new(pool: &Arc<Pool>, dtype: DType, shape: &[usize], what: &str) -> Result<Out, BackendError> {
        let bytes = volume(shape)
            .and_then(|n| dtype.bytes_for(n as u64))
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| BackendError::OutOfMemory { what: what.to_owned(), bytes: u64::MAX })?;
        let buf = Arc::new(pool.take(bytes, what)?);
        Ok(Out { dtype, shape: shape.to_vec(), buf })
    }

    /// The memory of a value that nobody else holds, to be overwritten by elements of the same size; the value
    /// itself where somebody does.
    pub fn reuse(v: Val, dtype: DType, shape: &[usize]) -> Result<Out, Val> {
        let fits = v.dtype().bits() == dtype.bits() && volume(v.shape()) == volume(shape);
        match v {
            Val::Pooled(mut p) if fits => match Arc::get_mut(&mut p.buf) {
                Some(_) => Ok(Out { dtype, shape: shape.to_vec(), buf: p.buf }),
                None => Err(Val::Pooled(p)),
            },
            v => Err(v),
        }
    }

    /// Bytes of an element; those of four bits count as one.
    pub fn size(&self) -> usize {
        self.dtype.bits().div_ceil(8) as usize
    }

    /// The bytes. Empty only if the tensor is: an `Out` is the only holder of its memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::get_mut(&mut self.buf).map(Buf::bytes_mut).unwrap_or_default()
    }

    /// The elements, to write. Empty if `T` has another size than the elements.
    pub fn elems_mut<T: Pod>(&mut self) -> &mut [T] {
        if size_of::<T>() as u32 * 8 != self.dtype.bits() {
            return &mut [];
        }
        bytemuck::try_cast_slice_mut(self.bytes_mut()).unwrap_or_default()
    }

    /// Finished.
    pub fn done(self) -> Val {
        Val::Pooled(Pooled { dtype: self.dtype, shape: self.shape, buf: self.buf })
    }
}
