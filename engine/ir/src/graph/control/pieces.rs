//! Elements of what loops iterate over, and what they stack, byte by byte.

use super::LoopOutputKind;
use crate::error::OpError;
use crate::tensor::{Elems, Tensor};
use crate::ty::TensorType;

/// Rows before the axis, the length of the axis, elements after it.
fn split(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    let (before, rest) = shape.split_at(axis.min(shape.len()));
    let after = rest.get(1..).unwrap_or_default();
    (before.iter().product(), rest.first().copied().unwrap_or(1), after.iter().product())
}

/// Element `at` along an axis, which is dropped. Refused where the tensor has none.
pub fn element(t: &Tensor, axis: usize, at: i64) -> Result<Tensor, OpError> {
    let (rows, len, inner) = split(t.shape(), axis);
    let i = usize::try_from(at).ok().filter(|&i| i < len && axis < t.shape().len()).ok_or_else(|| {
        OpError::Value(format!(
            "iterates to element {at} of axis {axis}, which has {len}; make fewer iterations"
        ))
    })?;
    let mut shape = t.shape().to_vec();
    shape.remove(axis);
    let wrong = || OpError::Value(format!("{}{shape:?} could not be made", t.dtype()));
    fn pick<T: Copy>(v: &[T], (rows, len, inner): (usize, usize, usize), i: usize) -> Vec<T> {
        (0..rows).flat_map(|r| v[(r * len + i) * inner..][..inner].iter().copied()).collect()
    }
    if t.dtype().bits().is_multiple_of(8) {
        let parts = (rows, len, inner * t.dtype().bits() as usize / 8);
        return Tensor::from_bytes(t.dtype(), &shape, pick(t.bytes(), parts, i)).ok_or_else(wrong);
    }
    let elems = match t.elems() {
        Elems::F(v) => Elems::F(pick(&v, (rows, len, inner), i)),
        Elems::I(v) => Elems::I(pick(&v, (rows, len, inner), i)),
    };
    Tensor::from_elems(t.dtype(), &shape, &elems).ok_or_else(wrong)
}

/// The values of all iterations along a new axis. With a given length, zeros fill it beyond the last
/// iteration; otherwise it is as long as there are iterations. Without an iteration, `empty` is type and
/// dimensions of the result; dimensions that only an iteration decides are 0.
pub fn stack(
    kind: LoopOutputKind,
    axis: usize,
    values: &[Tensor],
    length: Option<usize>,
    empty: &TensorType,
) -> Result<Tensor, OpError> {
    let length = length.unwrap_or(values.len());
    if length < values.len() {
        return Err(too_short(length, values.len()));
    }
    let Some(first) = values.first() else { return none(axis, empty, length) };
    if let Some(odd) = values.iter().find(|v| v.shape() != first.shape() || v.dtype() != first.dtype()) {
        return Err(OpError::Mismatch {
            a: first.ty().to_string(),
            b: odd.ty().to_string(),
            wanted: "what is concatenated has the same type and shape in every iteration".into(),
        });
    }
    let mut shape = first.shape().to_vec();
    if axis > shape.len() {
        return Err(super::bad("out_axes", axis, &format!("at most {}", shape.len())));
    }
    shape.insert(axis, length);
    let zero = zeros(&first.ty(), &shape)?;
    let (rows, _, inner) = split(&shape, axis);
    let place = |iteration: usize| {
        if kind == LoopOutputKind::Reverse { values.len() - 1 - iteration } else { iteration }
    };
    fn lay<T: Copy>(y: &mut [T], v: &[T], (rows, length, inner): (usize, usize, usize), at: usize) {
        for r in 0..rows {
            y[(r * length + at) * inner..][..inner].copy_from_slice(&v[r * inner..][..inner]);
        }
    }
    let wrong = || OpError::Value(format!("{}{shape:?} could not be made", first.dtype()));
    if first.dtype().bits().is_multiple_of(8) {
        let mut bytes = zero.bytes().to_vec();
        let parts = (rows, length, inner * first.dtype().bits() as usize / 8);
        values
            .iter()
            .enumerate()
            .for_each(|(iteration, v)| lay(&mut bytes, v.bytes(), parts, place(iteration)));
        return Tensor::from_bytes(first.dtype(), &shape, bytes).ok_or_else(wrong);
    }
    let mut elems = zero.elems();
    for (iteration, v) in values.iter().enumerate() {
        match (&mut elems, v.elems()) {
            (Elems::F(y), Elems::F(v)) => lay(y, &v, (rows, length, inner), place(iteration)),
            (Elems::I(y), Elems::I(v)) => lay(y, &v, (rows, length, inner), place(iteration)),
            _ => return Err(OpError::Value("a loop output changes its type".into())),
        }
    }
    Tensor::from_elems(first.dtype(), &shape, &elems).ok_or_else(wrong)
}

/// The error for an output that is too short for the iterations made.
pub(super) fn too_short(length: usize, iterations: usize) -> OpError {
    OpError::Value(format!(
        "a loop output has length {length}, but there are {iterations} iterations; make it longer"
    ))
}

/// Stack of a loop without iterations: zeros, if the length is not 0.
fn none(axis: usize, ty: &TensorType, length: usize) -> Result<Tensor, OpError> {
    let number = |d: &crate::Dim| d.as_const().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let mut shape: Vec<usize> = ty.dims.iter().map(number).collect();
    if let Some(d) = shape.get_mut(axis) {
        *d = length;
    }
    zeros(ty, &shape)
}

fn zeros(ty: &TensorType, shape: &[usize]) -> Result<Tensor, OpError> {
    Tensor::zeros(ty.dtype, shape)
}
