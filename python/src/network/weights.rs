//! Constants between Python and networks: arrays, or an element type with a shape and bytes.

use kiln::{DType, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Names that arrays give to their element types, where they differ from Kiln's.
const ARRAY_TYPES: [(&str, DType); 10] = [
    ("float32", DType::F32),
    ("float16", DType::F16),
    ("bfloat16", DType::BF16),
    ("float8_e4m3fn", DType::F8E4M3),
    ("int8", DType::I8),
    ("uint8", DType::U8),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("bool", DType::Bool),
    ("int4", DType::I4),
];

fn by_name(name: &str) -> PyResult<DType> {
    let own = DType::ALL.into_iter().find(|t| t.name() == name);
    let found = own.or_else(|| ARRAY_TYPES.iter().find(|(n, _)| *n == name).map(|&(_, t)| t));
    found.ok_or_else(|| {
        let known: Vec<_> = ARRAY_TYPES.iter().map(|(n, _)| *n).collect();
        PyTypeError::new_err(format!(
            "elements of type {name} are not taken; convert to one of {}",
            known.join(", ")
        ))
    })
}

/// Reads `(dtype, shape, bytes)` or an array that has `dtype`, `shape` and `tobytes`, as numpy's have. Elements are copied.
pub(super) fn read(v: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if let Ok((dtype, shape, data)) = v.extract::<(String, Vec<usize>, Bound<'_, PyBytes>)>() {
        return make(by_name(&dtype)?, &shape, data.as_bytes());
    }
    let dtype = v.getattr("dtype").map_err(|_| {
        let found = v.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!("{found} is not a constant; wants an array, or (dtype, shape, bytes)"))
    })?;
    let name: String = match dtype.getattr("name") {
        Ok(name) => name.extract()?,
        Err(_) => dtype.str()?.to_string(),
    };
    let shape: Vec<usize> = v.getattr("shape")?.extract()?;
    let data = v.call_method0("tobytes")?;
    make(by_name(&name)?, &shape, data.cast::<PyBytes>()?.as_bytes())
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
