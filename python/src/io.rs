//! Inputs, outputs, devices and profiles.

use kiln::{IoMode, Profile, Range};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;

/// An input or output of a model or an engine.
#[pyclass(frozen, module = "kiln")]
#[derive(Clone)]
pub struct IoTensor(pub kiln::IoTensor);

/// Inputs and outputs as objects.
pub fn io_tensors<'a>(all: impl IntoIterator<Item = &'a kiln::IoTensor>) -> Vec<IoTensor> {
    all.into_iter().cloned().map(IoTensor).collect()
}

#[pymethods]
impl IoTensor {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn is_input(&self) -> bool {
        self.0.mode == IoMode::Input
    }

    #[getter]
    fn mode(&self) -> &'static str {
        if self.is_input() { "input" } else { "output" }
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.dims_or_minus_one())
    }

    #[getter]
    fn dims<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let dims = self.0.dims.iter().map(|d| match d.as_const() {
            Some(n) => n.into_pyobject(py).map(|n| n.into_any()).map_err(PyErr::from),
            None => d.to_string().into_pyobject(py).map(|s| s.into_any()).map_err(PyErr::from),
        });
        PyTuple::new(py, dims.collect::<PyResult<Vec<_>>>()?)
    }

    #[getter]
    fn format(&self) -> &'static str {
        self.0.format().name()
    }

    #[getter]
    fn format_description(&self) -> String {
        self.0.format_description()
    }

    #[getter]
    fn vectorized_dim(&self) -> Option<usize> {
        self.0.vectorized_dim()
    }

    #[getter]
    fn components_per_element(&self) -> Option<usize> {
        self.0.components_per_element()
    }

    #[getter]
    fn bytes_per_component(&self) -> Option<usize> {
        self.0.bytes_per_component()
    }

    #[getter]
    fn is_shape_input(&self) -> bool {
        self.0.is_shape_input
    }

    fn strides<'py>(&self, py: Python<'py>, shape: Vec<i64>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let strides = self.0.strides(&crate::tensor::shape(shape)?);
        strides.map(|s| PyTuple::new(py, s)).transpose()
    }

    fn nbytes(&self, shape: Vec<i64>) -> PyResult<Option<u64>> {
        Ok(self.0.bytes(&crate::tensor::shape(shape)?))
    }

    fn __repr__(&self) -> String {
        let (t, mode) = (&self.0, self.mode());
        format!("kiln.IoTensor({:?}, {mode}, {}[{}], {})", t.name, t.dtype, t.dims_text(), t.format().name())
    }
}

/// A device, as plans and timing caches name it.
#[pyclass(frozen, module = "kiln", eq)]
#[derive(Clone, PartialEq)]
pub struct Target(pub kiln::Target);

#[pymethods]
impl Target {
    #[getter]
    fn backend(&self) -> &str {
        &self.0.backend
    }

    #[getter]
    fn version(&self) -> &str {
        &self.0.version
    }

    #[getter]
    fn arch(&self) -> &str {
        &self.0.arch
    }

    #[getter]
    fn device(&self) -> &str {
        &self.0.device
    }

    #[getter]
    fn driver(&self) -> &str {
        &self.0.driver
    }

    #[getter]
    fn features(&self) -> Vec<String> {
        self.0.features.clone()
    }

    #[getter]
    fn uuid(&self) -> &str {
        &self.0.uuid
    }

    #[getter]
    fn traits(&self) -> BTreeMap<String, u64> {
        self.0.traits.clone()
    }

    #[getter]
    fn numbers(&self) -> BTreeMap<String, u64> {
        self.0.numbers.clone()
    }

    fn __repr__(&self) -> String {
        let t = &self.0;
        format!("kiln.Target({}: {}, {})", t.backend, t.device, t.arch)
    }
}

fn ranges<'py>(py: Python<'py>, all: &BTreeMap<String, Range>) -> PyResult<Bound<'py, PyDict>> {
    let class = py.import("kiln._options")?.getattr("Range")?;
    let out = PyDict::new(py);
    for (name, r) in all {
        let ends = [&r.min, &r.opt, &r.max].map(|end| PyTuple::new(py, end));
        let [min, opt, max] = ends;
        out.set_item(name, class.call1((min?, opt?, max?))?)?;
    }
    Ok(out)
}

/// Profiles as objects of the package.
pub fn profiles<'py>(py: Python<'py>, all: &[Profile]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let class = py.import("kiln._options")?.getattr("Profile")?;
    all.iter().map(|p| class.call1((ranges(py, &p.shapes)?, ranges(py, &p.values)?))).collect()
}
