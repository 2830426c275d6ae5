//! Tensors on the device between the bodies of control flow, and the pool of their memory.

use crate::device::{Buffer, Device, Queue};
use kiln_backend::BackendError;
use kiln_ir::{Tensor, TensorType};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A tensor on the device. Clones are the same tensor.
pub struct Value<D: Device> {
    /// Type of the value; all dimensions are numbers.
    pub ty: TensorType,
    /// Memory of the value.
    pub at: D::Range,
    /// Elements, once the host knows them.
    pub known: Arc<OnceLock<Tensor>>,
    /// Whether the memory is overwritten in the next iteration.
    pub volatile: bool,
    _memory: Option<Arc<Pooled<D>>>,
}

impl<D: Device> Clone for Value<D> {
    fn clone(&self) -> Value<D> {
        Value {
            ty: self.ty.clone(),
            at: self.at.clone(),
            known: self.known.clone(),
            volatile: self.volatile,
            _memory: self._memory.clone(),
        }
    }
}

impl<D: Device> Value<D> {
    /// A tensor in memory that stays as it is while the value is used.
    pub fn lent(ty: TensorType, at: D::Range, known: Option<Tensor>) -> Value<D> {
        let cell = OnceLock::new();
        known.into_iter().for_each(|t| drop(cell.set(t)));
        Value { ty, at, known: Arc::new(cell), volatile: false, _memory: None }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> Result<u64, BackendError> {
        bytes_of(&self.ty)
    }

    /// Dimensions of the value.
    pub fn shape(&self) -> Vec<usize> {
        self.ty.static_dims().unwrap_or_default()
    }
}

/// Bytes of a tensor whose dimensions are numbers.
pub fn bytes_of(ty: &TensorType) -> Result<u64, BackendError> {
    let n = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64));
    n.ok_or_else(|| BackendError::Internal(format!("the size of {ty} is not known")))
}

/// Bytes of the device as a tensor of the host.
pub fn tensor(ty: &TensorType, bytes: Vec<u8>) -> Result<Tensor, BackendError> {
    let shape = ty.static_dims().unwrap_or_default();
    Tensor::from_bytes(ty.dtype, &shape, bytes)
        .ok_or_else(|| BackendError::Internal(format!("too few bytes for {ty} came back")))
}

/// Memory that goes back to its pool with its last user.
pub struct Pooled<D: Device> {
    buffer: Option<(u64, D::Buffer)>,
    pool: Pool<D>,
}

impl<D: Device> Pooled<D> {
    /// The first bytes.
    pub fn range(&self, bytes: u64) -> Option<D::Range> {
        self.buffer.as_ref().map(|(_, b)| b.range(0, bytes))
    }
}

impl<D: Device> Drop for Pooled<D> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let mut free = self.pool.lock();
            if free.buffers.len() == FREE {
                free.buffers.remove(0);
            }
            free.buffers.push(buffer);
        }
    }
}

/// Buffers that are used again in the order of one queue. Equal requests in equal order get equal buffers.
pub struct Pool<D: Device>(Arc<Mutex<Free<D>>>);

struct Free<D: Device> {
    buffers: Vec<(u64, D::Buffer)>,
    made: u64,
}

impl<D: Device> Clone for Pool<D> {
    fn clone(&self) -> Pool<D> {
        Pool(self.0.clone())
    }
}

impl<D: Device> Default for Pool<D> {
    fn default() -> Pool<D> {
        Pool(Arc::new(Mutex::new(Free { buffers: Vec::new(), made: 0 })))
    }
}

/// Number of unused buffers that are kept.
const FREE: usize = 64;
/// A buffer is used again for tensors down to this part of it.
const SLACK: u64 = 4;
/// Smaller tensors all use buffers of this size.
const SMALL: u64 = 256;

impl<D: Device> Pool<D> {
    fn lock(&self) -> MutexGuard<'_, Free<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of at least `bytes` bytes: the smallest unused buffer that is not much too large, the oldest of equal ones.
    pub fn take(&self, queue: &mut D::Queue, what: &str, bytes: u64) -> Result<Arc<Pooled<D>>, BackendError> {
        let found = {
            let mut free = self.lock();
            let fits = |b: &D::Buffer| b.bytes() >= bytes && b.bytes() / SLACK <= bytes.max(SMALL);
            let all = free.buffers.iter().enumerate().filter(|(_, (_, b))| fits(b));
            let best = all.min_by_key(|(_, (id, b))| (b.bytes(), *id)).map(|(at, _)| at);
            best.map(|at| free.buffers.remove(at))
        };
        let buffer = match found {
            Some(b) => b,
            None => {
                let buffer = queue.allocate(what, bytes.max(SMALL))?;
                let mut free = self.lock();
                free.made += 1;
                (free.made, buffer)
            }
        };
        Ok(Arc::new(Pooled { buffer: Some(buffer), pool: self.clone() }))
    }

    /// A tensor that is not yet written.
    pub fn tensor(&self, queue: &mut D::Queue, ty: TensorType) -> Result<Value<D>, BackendError> {
        let bytes = bytes_of(&ty)?;
        let memory = self.take(queue, "a value of control flow", bytes)?;
        let at =
            memory.range(bytes).ok_or_else(|| BackendError::Internal("memory without a buffer".into()))?;
        Ok(Value { _memory: Some(memory), ..Value::lent(ty, at, None) })
    }

    /// Frees unused buffers.
    pub fn release(&self) {
        self.lock().buffers.clear();
    }
}
