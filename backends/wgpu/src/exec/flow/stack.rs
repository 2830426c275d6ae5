//! What the trips of a loop give, kept in slots one behind the other, and stacked at the end.

use super::cut::split;
use super::pieces::{Job, Pieces};
use super::recorder::Recorder;
use super::{Value, bytes_of};
use crate::exec::memory::{Growing, Memory, Range};
use kiln_backend::BackendError;
use kiln_ir::{LoopOutputKind, OpError, TensorType};

/// So many bytes are taken at once for trips that are to come.
const AHEAD: u64 = 64 << 20;

/// Room grows twofold, by so many bytes at most.
const GROWTH: u64 = 1 << 30;

/// The values of one output of a body, of all trips so far.
#[derive(Default)]
pub struct Kept {
    ty: Option<TensorType>,
    slot: u64,
    trips: u64,
    buffer: Option<Growing>,
}

fn refused(e: OpError) -> BackendError {
    BackendError::InvalidArgument(e.to_string())
}

impl Kept {
    /// Forgets the values; the memory stays.
    pub fn clear(&mut self) {
        (self.ty, self.trips) = (None, 0);
    }

    /// Takes the value of one more trip; `count` is how many there will be, if that is known. Gives its bytes.
    pub fn push(
        &mut self,
        recorder: &mut Recorder,
        allocations: &mut u64,
        v: &Value,
        count: Option<i64>,
    ) -> Result<u64, BackendError> {
        if let Some(first) = self.ty.as_ref().filter(|t| **t != v.ty) {
            return Err(refused(OpError::Mismatch {
                a: first.to_string(),
                b: v.ty.to_string(),
                wanted: "what is concatenated has the same type and shape in every trip".into(),
            }));
        }
        let bytes = v.bytes()?;
        if self.ty.is_none() {
            self.ty = Some(v.ty.clone());
            self.slot = (bytes as u64).next_multiple_of(4);
        }
        let filled = self.trips * self.slot;
        self.grow(recorder, allocations, filled, count)?;
        if let Some(b) = self.buffer.as_ref().filter(|_| bytes > 0) {
            recorder.copy(&v.at, &Range::of(b, filled, self.slot), bytes)?;
        }
        self.trips += 1;
        Ok(bytes as u64)
    }

    /// Makes room for one more slot.
    fn grow(
        &mut self,
        recorder: &mut Recorder,
        allocations: &mut u64,
        filled: u64,
        count: Option<i64>,
    ) -> Result<(), BackendError> {
        let needed = filled + self.slot;
        if self.buffer.as_ref().is_some_and(|b| b.buffer.size() >= needed) {
            return Ok(());
        }
        let all = count.and_then(|n| u64::try_from(n).ok()).unwrap_or(0).saturating_mul(self.slot);
        let size = needed.max(all.min(AHEAD)).max(filled + filled.min(GROWTH));
        let mut larger = None;
        let to = Memory::tensor(&recorder.gpu, &mut larger, allocations, size)?;
        if let Some(old) = &self.buffer {
            recorder.copy(&Range::of(old, 0, filled), &to, filled as usize)?;
        }
        self.buffer = larger;
        Ok(())
    }

    /// The type of the stacked tensor, `length` long if that is given; `empty` tells its type where there was no trip,
    /// with 0 for dimensions that only a trip tells.
    pub fn result(
        &self,
        axis: usize,
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<TensorType, BackendError> {
        let trips = self.trips as usize;
        let n = length.unwrap_or(trips);
        if n < trips {
            return Err(BackendError::InvalidArgument(format!(
                "a loop output has length {n}, but there are {trips} trips; make it longer"
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
        match bytes_of(&ty)? as u64 > kiln_ir::budget::limit() {
            true => Err(refused(OpError::TooLarge(ty.to_string()))),
            false => Ok(ty),
        }
    }

    /// Stacks the values along the axis, as a tensor of this type.
    pub fn stack(
        &self,
        recorder: &mut Recorder,
        pieces: &mut Pieces,
        (kind, axis): (LoopOutputKind, usize),
        ty: &TensorType,
        to: &Range,
    ) -> Result<(), BackendError> {
        let bytes = bytes_of(ty)? as u64;
        let (Some(slots), Some((rows, length, inner))) = (&self.buffer, split(ty, axis)) else {
            recorder.clear(to, 0, bytes);
            return Ok(());
        };
        if self.trips == 0 || bytes == 0 {
            recorder.clear(to, 0, bytes);
            return Ok(());
        }
        let reverse = kind == LoopOutputKind::Reverse;
        let filled = self.trips * self.slot;
        let slots = Range::of(slots, 0, filled);
        let plain = rows == 1 && inner == self.slot * 8;
        if plain && !reverse {
            recorder.copy(&slots, to, filled as usize)?;
            recorder.clear(to, filled, bytes);
            return Ok(());
        }
        if plain && slots.size.max(to.size) > recorder.gpu.target.memory.max_binding {
            for trip in 0..self.trips {
                let part = |r: &Range, i: u64| Range {
                    offset: r.offset + i * self.slot,
                    size: self.slot,
                    ..r.clone()
                };
                recorder.copy(&part(&slots, self.trips - 1 - trip), &part(to, trip), self.slot as usize)?;
                recorder.relieve()?;
            }
            recorder.clear(to, filled, bytes);
            return Ok(());
        }
        let slot = self.slot * 8;
        let job = Job { stack: true, rows, length, inner, slot, trips: self.trips, reverse };
        pieces.run(recorder, &job, &slots, to, bytes)
    }
}
