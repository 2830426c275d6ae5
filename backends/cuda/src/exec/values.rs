//! Tensors that lie on the device between the bodies of control flow.

use super::memory::{Range, naming};
use crate::driver::{Buffer, Pinned, Stream};
use kiln_backend::BackendError;
use kiln_ir::{Tensor, TensorType};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A tensor on the device. Clones are the same tensor.
#[derive(Clone)]
pub struct Value {
    /// Its type; all dimensions are known.
    pub ty: TensorType,
    pub at: Range,
    /// Its elements, where the host knows them.
    pub host: Option<Tensor>,
    /// The same number is the same tensor.
    pub id: u64,
    _memory: Option<Arc<Kept>>,
}

/// Memory that goes back to its pool with its last user.
pub struct Kept {
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.pool.give(self.buffer.take());
    }
}

/// Buffers that are used again in the order of one stream.
pub struct Pool {
    stream: Arc<Stream>,
    free: Mutex<Vec<Buffer>>,
    made: AtomicU64,
}

/// How many unused buffers are kept.
const FREE: usize = 64;
/// A buffer is used again for tensors down to this part of it.
const SLACK: u64 = 4;

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Value {
    /// A tensor in memory that stays as it is while the value lives.
    pub fn lent(ty: TensorType, at: Range, host: Option<Tensor>) -> Value {
        Value { ty, at, host, id: next(), _memory: None }
    }

    /// A part of this tensor.
    pub fn part(&self, ty: TensorType, at: Range) -> Value {
        Value { ty, at, host: None, id: next(), _memory: self._memory.clone() }
    }

    /// Its dimensions.
    pub fn shape(&self) -> Vec<usize> {
        self.ty.static_dims().unwrap_or_default()
    }
}

/// Bytes of a tensor whose dimensions are known.
pub fn bytes(ty: &TensorType) -> Result<u64, BackendError> {
    let n = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64));
    n.ok_or_else(|| BackendError::Internal(format!("the size of {ty} is not known")))
}

impl Pool {
    pub fn new(stream: &Arc<Stream>) -> Arc<Pool> {
        Arc::new(Pool { stream: stream.clone(), free: Mutex::default(), made: AtomicU64::new(0) })
    }

    /// How many buffers were allocated.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// A tensor that is not yet written.
    pub fn take(self: &Arc<Pool>, ty: TensorType) -> Result<Value, BackendError> {
        let size = bytes(&ty)?;
        let buffer = match self.reuse(size) {
            Some(b) => b,
            None => {
                self.made.fetch_add(1, Ordering::Relaxed);
                naming("a value of control flow", size, Buffer::new(&self.stream, size))?
            }
        };
        let at = Range { address: buffer.address(), size };
        let memory = Arc::new(Kept { buffer: Some(buffer), pool: self.clone() });
        Ok(Value { ty, at, host: None, id: next(), _memory: Some(memory) })
    }

    /// The smallest unused buffer that is large enough, and not much too large.
    fn reuse(&self, size: u64) -> Option<Buffer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |b: &Buffer| b.size() >= size && b.size() / SLACK <= size.max(256);
        let best = free.iter().enumerate().filter(|(_, b)| fits(b)).min_by_key(|(_, b)| b.size())?;
        let at = best.0;
        Some(free.remove(at))
    }

    fn give(&self, buffer: Option<Buffer>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() == FREE {
            free.remove(0);
        }
        free.extend(buffer);
    }
}

/// Carries values between device and host, and waits for them.
pub struct Ferry {
    stream: Arc<Stream>,
    pinned: Option<Pinned>,
    /// How often the host waited.
    pub waits: u64,
    pub allocations: u64,
}

impl Ferry {
    pub fn new(stream: &Arc<Stream>) -> Ferry {
        Ferry { stream: stream.clone(), pinned: None, waits: 0, allocations: 0 }
    }

    fn pinned(&mut self, size: usize) -> Result<&mut Pinned, BackendError> {
        if self.pinned.as_ref().is_none_or(|p| p.size() < size) {
            self.pinned = None;
            self.allocations += 1;
            self.pinned = Some(naming("page-locked memory", size as u64, Pinned::new(&self.stream, size))?);
        }
        self.pinned.as_mut().ok_or_else(|| BackendError::Internal("no page-locked memory".into()))
    }

    /// A value's elements.
    pub fn fetch(&mut self, v: &Value) -> Result<Tensor, BackendError> {
        if let Some(t) = &v.host {
            return Ok(t.clone());
        }
        self.waits += 1;
        let n = v.at.size as usize;
        self.pinned(n)?.fetch(0, v.at.address, n)?;
        self.stream.synchronize()?;
        let bytes = self.pinned(n)?.bytes(0, n).to_vec();
        Tensor::from_bytes(v.ty.dtype, &v.shape(), bytes)
            .ok_or_else(|| BackendError::Internal(format!("too few bytes for {} came back", v.ty)))
    }

    /// A tensor of the host on the device.
    pub fn send(&mut self, pool: &Arc<Pool>, t: Tensor) -> Result<Value, BackendError> {
        let mut v = pool.take(t.ty())?;
        self.pinned(t.bytes().len())?.send(0, t.bytes(), v.at.address)?;
        self.waits += 1;
        self.stream.synchronize()?;
        v.host = Some(t);
        Ok(v)
    }
}
