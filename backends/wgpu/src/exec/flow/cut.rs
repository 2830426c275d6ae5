//! What a loop iterates over, cut into elements that lie one behind the other in whole words.

use super::pieces::{Job, Pieces};
use super::recorder::Recorder;
use super::{Value, bytes_of};
use crate::exec::memory::{Growing, Memory, Range};
use kiln_backend::BackendError;
use kiln_ir::{OpError, Tensor, TensorType};

/// Rows before the axis, its length, and the bits of what lies behind it.
pub fn split(ty: &TensorType, axis: usize) -> Option<(u64, u64, u64)> {
    let shape = ty.static_dims()?;
    let (before, rest) = shape.split_at_checked(axis)?;
    let (&length, after) = rest.split_first()?;
    let inner = after.iter().product::<usize>() as u64 * u64::from(ty.dtype.bits());
    Some((before.iter().product::<usize>() as u64, length as u64, inner))
}

/// A tensor cut along an axis.
pub struct Cut {
    axis: usize,
    length: i64,
    reverse: bool,
    ty: TensorType,
    bytes: usize,
    stride: u64,
    from: Range,
    /// Elements of what is cut, where the host knows them.
    whole: Option<Tensor>,
}

impl Cut {
    /// Cuts a tensor; `room` is for elements that do not lie in whole words one behind the other.
    pub fn new(
        recorder: &mut Recorder,
        pieces: &mut Pieces,
        room: &mut Option<Growing>,
        v: &Value,
        (axis, reverse): (usize, bool),
    ) -> Result<Cut, BackendError> {
        let wrong = || BackendError::InvalidArgument(format!("{} has no axis {axis} to iterate over", v.ty));
        let (rows, length, inner) = split(&v.ty, axis).ok_or_else(wrong)?;
        let mut ty = v.ty.clone();
        ty.dims.remove(axis);
        let bytes = bytes_of(&ty)?;
        let stride = (bytes as u64).next_multiple_of(4);
        let from = match rows == 1 && inner.is_multiple_of(32) || bytes == 0 || length == 0 {
            true => v.at.clone(),
            false => {
                let to = Memory::tensor(&recorder.gpu, room, &mut pieces.allocations, stride * length)?;
                let to = to.cut(stride * length);
                let job = Job {
                    stack: false,
                    rows,
                    length,
                    inner,
                    slot: stride * 8,
                    trips: length,
                    reverse: false,
                };
                pieces.run(recorder, &job, &v.at, &to, stride * length)?;
                to
            }
        };
        let length = i64::try_from(length).map_err(|_| wrong())?;
        Ok(Cut { axis, length, reverse, ty, bytes, stride, from, whole: v.known.clone() })
    }

    /// Puts the element of a trip into a buffer. Refused where there is none.
    pub fn element(
        &self,
        recorder: &mut Recorder,
        room: &mut Option<Growing>,
        allocations: &mut u64,
        trip: i64,
        count: Option<i64>,
    ) -> Result<Value, BackendError> {
        let at = if self.reverse { count.unwrap_or(0) - 1 - trip } else { trip };
        let Some(i) = u64::try_from(at).ok().filter(|_| at < self.length) else {
            let (axis, n) = (self.axis, self.length);
            return Err(BackendError::InvalidArgument(format!(
                "iterates to element {at} of axis {axis}, which has {n}; make fewer trips"
            )));
        };
        let refused = |e: OpError| BackendError::InvalidArgument(e.to_string());
        let known = self.whole.as_ref().map(|t| kiln_ir::element(t, self.axis, at)).transpose();
        let to = Memory::tensor(&recorder.gpu, room, allocations, self.bytes as u64)?.cut(self.bytes as u64);
        let from =
            Range { offset: self.from.offset + i * self.stride, size: self.stride, ..self.from.clone() };
        recorder.copy(&from, &to, self.bytes)?;
        Ok(Value { ty: self.ty.clone(), at: to, known: known.map_err(refused)? })
    }
}
