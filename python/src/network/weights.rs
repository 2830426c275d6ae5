//! Constants between Python and networks: arrays, or an element type with a shape and bytes.

use kiln::{DType, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Reads `(dtype, shape, bytes)` or an array that has `dtype`, `shape` and `tobytes`, as numpy's have. Elements are copied.
pub(super) fn read(v: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if let Ok((dtype, shape, data)) = v.extract::<(String, Vec<usize>, Bound<'_, PyBytes>)>() {
        return make(crate::dtype::of_name(&dtype)?, &shape, data.as_bytes());
    }
    let dtype = v.getattr("dtype").map_err(|_| {
        let found = v.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!("{found} is not a constant; wants an array, or (dtype, shape, bytes)"))
    })?;
    let shape: Vec<usize> = v.getattr("shape")?.extract()?;
    let data = v.call_method0("tobytes")?;
    make(crate::dtype::of_object(&dtype)?, &shape, data.cast::<PyBytes>()?.as_bytes())
}

fn make(dtype: DType, shape: &[usize], data: &[u8]) -> PyResult<Tensor> {
    Tensor::from_bytes(dtype, shape, data.to_vec())
        .ok_or_else(|| PyValueError::new_err(format!("{} bytes do not fill {dtype}{shape:?}", data.len())))
}

/// A constant as `(dtype, shape, bytes)`.
pub(super) fn show(py: Python<'_>, t: &Tensor) -> PyResult<Py<PyAny>> {
    let bytes = PyBytes::new(py, t.bytes());
    Ok((t.dtype().name(), t.shape().to_vec(), bytes).into_pyobject(py)?.into_any().unbind())
}
