//! Tensors, and their exchange with other libraries.

mod aligned;
mod class;
mod dlpack;
mod export;
mod import;
mod lent;
mod view;

pub use class::{Tensor, view};
pub use import::Stream;
pub use view::View;

use crate::errors::argument;
use pyo3::prelude::*;

/// A tensor of any object with elements in host memory, in place where that is possible.
pub fn host_tensor(object: &Bound<'_, PyAny>) -> PyResult<kiln::Tensor> {
    view(object, Stream::default())?.into_tensor()
}

/// The bytes of an object of the buffer protocol, copied.
pub fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = object.cast::<pyo3::types::PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    let view = view(object, Stream::default())?;
    Ok(view.copied()?.bytes().to_vec())
}

/// Dimensions that are not negative.
pub fn shape(dims: Vec<i64>) -> PyResult<Vec<usize>> {
    let all = dims.iter().map(|&d| {
        usize::try_from(d)
            .map_err(|_| argument(format!("the shape {dims:?} has the dimension {d}, which is negative")))
    });
    all.collect()
}
