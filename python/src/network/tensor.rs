//! Tensors of a network.

use super::handles::{Layer, NetworkTensor};
use super::value::Value;
use super::weights;
use kiln::Formats;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pymethods]
impl NetworkTensor {
    #[getter]
    fn name(&self) -> String {
        self.get(|n| n.tensor_name(self.id).to_owned())
    }

    #[setter]
    fn set_name(&self, name: &str) -> PyResult<()> {
        self.net.get().run(|n| n.set_tensor_name(self.id, name))
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.get(|n| n.ty(self.id).dtype.name())
    }

    /// Sets the type of an input, or that of an output at the boundary.
    #[setter]
    fn set_dtype(&self, dtype: &Bound<'_, PyAny>) -> PyResult<()> {
        let dtype = Value::read(dtype)?;
        self.net.get().run(|n| n.set_tensor_type(self.id, dtype))
    }

    /// Dimensions; -1 for those that are not known yet.
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.get(|n| n.ty(self.id).dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect())
    }

    /// Sets the dimensions of an input.
    #[setter]
    fn set_shape(&self, shape: Vec<i64>) -> PyResult<()> {
        let dims: Vec<kiln::Dim> = shape.into_iter().map(kiln::Dim::new).collect();
        self.net.get().run(|n| n.set_dimensions(self.id, dims))
    }

    /// Dimensions as text: numbers, names, and what is computed from them.
    #[getter]
    fn dims(&self) -> Vec<String> {
        self.get(|n| n.ty(self.id).dims.iter().map(ToString::to_string).collect())
    }

    /// Names a dimension of an input; equal names are equal at run time.
    fn set_dimension_name(&self, index: usize, name: &str) -> PyResult<()> {
        let rank = self.get(|n| n.ty(self.id).rank());
        if index >= rank {
            return Err(PyValueError::new_err(format!(
                "there is no dimension {index}; the tensor has {rank}"
            )));
        }
        self.net.get().run(|n| n.set_dimension_name(self.id, index, name))
    }

    /// The least and the greatest value, if they were set.
    #[getter]
    fn dynamic_range(&self) -> Option<(f32, f32)> {
        self.get(|n| n.dynamic_range(self.id)).map(|[a, z]| (a, z))
    }

    /// Sets the least and the greatest value, or with None forgets them.
    #[setter]
    fn set_dynamic_range(&self, range: Option<(f32, f32)>) -> PyResult<()> {
        self.net.get().run(|n| match range {
            Some((min, max)) => n.set_dynamic_range(self.id, min, max),
            None => n.reset_dynamic_range(self.id),
        })
    }

    /// Formats that an input or output may have, a bit each.
    #[getter]
    fn allowed_formats(&self) -> u32 {
        self.get(|n| n.allowed_formats(self.id).bits())
    }

    #[setter]
    fn set_allowed_formats(&self, bits: u32) -> PyResult<()> {
        let known = Formats::all().bits();
        let formats = Formats::from_bits(bits).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{bits:#x} has formats that Kiln does not know; wants bits of {known:#x}"
            ))
        })?;
        self.net.get().run(|n| n.set_allowed_formats(self.id, formats))
    }

    #[getter]
    fn is_input(&self) -> bool {
        self.get(|n| n.inputs().contains(&self.id))
    }

    #[getter]
    fn is_output(&self) -> bool {
        self.get(|n| n.outputs().contains(&self.id) || n.outputs_for_shapes().contains(&self.id))
    }

    /// Whether the elements follow from shapes, so that they are known before a run.
    #[getter]
    fn is_shape(&self) -> bool {
        self.get(|n| n.fact(self.id).as_dims().is_some() && n.ty(self.id).rank() < 2)
    }

    /// The layer that computes it; None for inputs and constants.
    #[getter]
    fn producer(&self, py: Python<'_>) -> Option<Layer> {
        let id = self.get(|n| n.producer(self.id))?;
        Some(Layer { net: self.net.clone_ref(py), id })
    }

    /// The constant that it is, as (dtype, shape, bytes); None for what is computed.
    #[getter]
    fn weights(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let found = self.get(|n| n.weights(self.id).map(|w| w.tensor.clone()));
        found.map(|t| weights::show(py, &t)).transpose()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<NetworkTensor>().is_ok_and(|o| o.get().net.is(&self.net) && o.get().id == self.id)
    }

    fn __hash__(&self) -> isize {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut h = DefaultHasher::new();
        (self.net.as_ptr() as usize, self.id).hash(&mut h);
        h.finish() as isize
    }

    fn __repr__(&self) -> String {
        self.get(|n| format!("NetworkTensor({:?}, {})", n.tensor_name(self.id), n.ty(self.id)))
    }
}
