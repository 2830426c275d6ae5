//! Tensors that a loop iterates over, and values that its iterations add to stacked outputs: both as slots one after the
//! other, in whole words.

use crate::device::{Device, Queue, Range, Rearrange};
use crate::value::{Pool, Pooled, Value, bytes_of};
use kiln_backend::BackendError;
use kiln_ir::{LoopOutputKind, OpError, Tensor, TensorType};
use std::sync::{Arc, OnceLock};

/// Bytes that are taken at once for iterations to come.
const AHEAD: u64 = 64 << 20;
/// Room for slots doubles, by this many bytes at most.
const GROWTH: u64 = 1 << 30;
/// Slots start at whole words.
const WORD: u64 = 4;

/// Rows before the axis, its length, and the bits behind it.
fn split(ty: &TensorType, axis: usize) -> Option<(u64, u64, u64)> {
    let shape = ty.static_dims()?;
    let (before, rest) = shape.split_at_checked(axis)?;
    let (&length, after) = rest.split_first()?;
    let inner = after.iter().product::<usize>() as u64 * u64::from(ty.dtype.bits());
    Some((before.iter().product::<usize>() as u64, length as u64, inner))
}

fn refused(e: OpError) -> BackendError {
    BackendError::InvalidArgument(e.to_string())
}

fn range<D: Device>(memory: &Pooled<D>, bytes: u64) -> Result<D::Range, BackendError> {
    memory.range(bytes).ok_or_else(|| BackendError::Internal("memory without a buffer".into()))
}

/// A tensor that is read element by element along an axis.
pub struct Elements<D: Device> {
    axis: usize,
    length: u64,
    stride: u64,
    from: D::Range,
    /// Elements of the whole tensor, where the host knows them.
    whole: Arc<OnceLock<Tensor>>,
    /// The element that was asked for last: always in the same place, so that launches that read it stay as they are.
    current: Value<D>,
    _slots: Option<Arc<Pooled<D>>>,
    _of: Value<D>,
}

impl<D: Device> Elements<D> {
    /// Cuts a tensor along an axis.
    pub fn new(
        queue: &mut D::Queue,
        pool: &Pool<D>,
        v: &Value<D>,
        axis: usize,
    ) -> Result<Elements<D>, BackendError> {
        let wrong = || BackendError::InvalidArgument(format!("{} has no axis {axis} to iterate over", v.ty));
        let (rows, length, inner) = split(&v.ty, axis).ok_or_else(wrong)?;
        let mut ty = v.ty.clone();
        ty.dims.remove(axis);
        let bytes = bytes_of(&ty)?;
        let stride = bytes.next_multiple_of(WORD);
        let in_place = rows == 1 && inner.is_multiple_of(WORD * 8) || bytes == 0 || length == 0;
        let (from, slots) = if in_place {
            (v.at.clone(), None)
        } else {
            let memory = pool.take(queue, "elements of a loop", stride * length)?;
            let to = range(&memory, stride * length)?;
            let job = Rearrange {
                stacks: false,
                rows,
                length,
                inner,
                slot: stride * 8,
                filled: length,
                reverse: false,
                bytes: stride * length,
            };
            queue.rearrange(&job, &v.at, &to)?;
            (to, Some(memory))
        };
        let mut current = pool.tensor(queue, ty)?;
        current.volatile = true;
        let whole = v.known.clone();
        Ok(Elements { axis, length, stride, from, whole, current, _slots: slots, _of: v.clone() })
    }

    /// Element `at`, which stays until the next one is asked for. Refused where there is none.
    pub fn element(&mut self, queue: &mut D::Queue, at: i64) -> Result<Value<D>, BackendError> {
        let Some(i) = u64::try_from(at).ok().filter(|&i| i < self.length) else {
            let (axis, n) = (self.axis, self.length);
            return Err(BackendError::InvalidArgument(format!(
                "iterates to element {at} of axis {axis}, which has {n}; make fewer iterations"
            )));
        };
        let known =
            self.whole.get().map(|t| kiln_ir::element(t, self.axis, at)).transpose().map_err(refused)?;
        let bytes = self.current.bytes()?;
        queue.copy(&self.from.part(i * self.stride, self.stride), &self.current.at, bytes)?;
        let mut element = self.current.clone();
        element.known = Arc::new(OnceLock::new());
        known.into_iter().for_each(|t| drop(element.known.set(t)));
        Ok(element)
    }
}

/// The values of one scan output of a loop, of all iterations so far.
pub struct Stack<D: Device> {
    /// Number of iterations, if that is known.
    count: Option<i64>,
    ty: Option<TensorType>,
    slot: u64,
    filled: u64,
    room: u64,
    memory: Option<Arc<Pooled<D>>>,
}

impl<D: Device> Stack<D> {
    /// A stack without values.
    pub fn new(count: Option<i64>) -> Stack<D> {
        Stack { count, ty: None, slot: 0, filled: 0, room: 0, memory: None }
    }

    /// Adds the value of one more iteration.
    pub fn push(&mut self, queue: &mut D::Queue, pool: &Pool<D>, v: &Value<D>) -> Result<(), BackendError> {
        if let Some(first) = self.ty.as_ref().filter(|t| **t != v.ty) {
            return Err(refused(OpError::Mismatch {
                a: first.to_string(),
                b: v.ty.to_string(),
                wanted: "what is concatenated has the same type and shape in every iteration".into(),
            }));
        }
        let bytes = v.bytes()?;
        if self.ty.is_none() {
            self.ty = Some(v.ty.clone());
            self.slot = bytes.next_multiple_of(WORD);
        }
        self.reserve(queue, pool)?;
        if let Some(memory) = self.memory.as_ref().filter(|_| bytes > 0) {
            let end = (self.filled + 1) * self.slot;
            let to = range(memory, end)?.part(self.filled * self.slot, self.slot);
            queue.copy(&v.at, &to, bytes)?;
        }
        self.filled += 1;
        Ok(())
    }

    /// Makes room for one more slot.
    fn reserve(&mut self, queue: &mut D::Queue, pool: &Pool<D>) -> Result<(), BackendError> {
        let filled = self.filled * self.slot;
        let needed = filled + self.slot;
        if self.memory.is_some() && self.room >= needed {
            return Ok(());
        }
        let all = self.count.and_then(|n| u64::try_from(n).ok()).unwrap_or(0).saturating_mul(self.slot);
        let room = needed.max(all.min(AHEAD)).max(filled + filled.min(GROWTH));
        let larger = pool.take(queue, "stacked values of a loop", room)?;
        if let Some(old) = &self.memory {
            queue.copy(&range(old, filled)?, &range(&larger, filled)?, filled)?;
        }
        (self.memory, self.room) = (Some(larger), room);
        Ok(())
    }

    /// The type of the stacked tensor, `length` long if that is given. `empty` is its type where there was no iteration, with
    /// 0 for dimensions that only an iteration determines.
    fn result(
        &self,
        axis: usize,
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<TensorType, BackendError> {
        let iterations = self.filled as usize;
        let n = length.unwrap_or(iterations);
        if n < iterations {
            return Err(BackendError::InvalidArgument(format!(
                "a loop output has length {n}, but there are {iterations} iterations; make it longer"
            )));
        }
        let mut ty = match &self.ty {
            Some(ty) if axis <= ty.rank() => {
                let mut ty = ty.clone();
                ty.dims.insert(axis, 0.into());
                ty
            }
            Some(ty) => {
                return Err(BackendError::InvalidArgument(format!("{ty} is stacked along axis {axis}")));
            }
            None => {
                let number = |d: &kiln_ir::Dim| d.as_const().unwrap_or(0).max(0).into();
                TensorType { dtype: empty.dtype, dims: empty.dims.iter().map(number).collect() }
            }
        };
        if let Some(d) = ty.dims.get_mut(axis) {
            *d = (n as i64).into();
        }
        match bytes_of(&ty)? > kiln_ir::budget::limit() {
            true => Err(refused(OpError::TooLarge(ty.to_string()))),
            false => Ok(ty),
        }
    }

    /// The values along a new axis; see [`kiln_ir::stack`].
    pub fn stacked(
        &self,
        queue: &mut D::Queue,
        pool: &Pool<D>,
        (kind, axis): (LoopOutputKind, usize),
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<Value<D>, BackendError> {
        let ty = self.result(axis, length, empty)?;
        let (bytes, parts) = (bytes_of(&ty)?, split(&ty, axis));
        let out = pool.tensor(queue, ty)?;
        let (Some(memory), Some((rows, length, inner))) = (&self.memory, parts) else {
            queue.clear(&out.at, 0, bytes)?;
            return Ok(out);
        };
        if self.filled == 0 || bytes == 0 {
            queue.clear(&out.at, 0, bytes)?;
            return Ok(out);
        }
        let reverse = kind == LoopOutputKind::Reverse;
        let filled = self.filled * self.slot;
        let slots = range(memory, filled)?;
        if rows == 1 && inner == self.slot * 8 && !reverse {
            queue.copy(&slots, &out.at, filled)?;
            queue.clear(&out.at, filled, bytes)?;
            return Ok(out);
        }
        let slot = self.slot * 8;
        let job = Rearrange { stacks: true, rows, length, inner, slot, filled: self.filled, reverse, bytes };
        queue.rearrange(&job, &slots, &out.at)?;
        Ok(out)
    }
}
