//! Models: sources of engines.

use crate::header::PlanHeader;
use crate::io::{IoTensor, io_tensors};
use crate::network::Network;
use crate::scope::{detached, lock};
use pyo3::prelude::*;
use pyo3::{ffi, types::PyString};
use std::path::{Path, PathBuf};

/// A network that is to be built, or a plan that is to be loaded.
#[pyclass(frozen, module = "kiln")]
pub struct Model(pub kiln::Model);

#[pymethods]
impl Model {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Model> {
        detached(py, || kiln::Model::open(&path)).map(Model)
    }

    #[staticmethod]
    #[pyo3(signature = (data, folder = None))]
    fn from_bytes(py: Python<'_>, data: &Bound<'_, PyAny>, folder: Option<PathBuf>) -> PyResult<Model> {
        let bytes = crate::tensor::bytes(data)?;
        detached(py, || kiln::Model::from_bytes(bytes, folder.as_deref())).map(Model)
    }

    #[staticmethod]
    fn of_network(py: Python<'_>, network: &Bound<'_, Network>) -> PyResult<Model> {
        let network = network.get();
        detached(py, || kiln::Model::try_from(&*lock(&network.inner))).map(Model)
    }

    #[getter]
    fn io(&self) -> Vec<IoTensor> {
        io_tensors(self.0.io_tensors())
    }

    #[getter]
    fn header(&self) -> Option<PlanHeader> {
        self.0.plan().cloned().map(PlanHeader)
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes().to_vec()
    }

    fn __repr__(&self) -> String {
        let count = self.0.io_tensors().len();
        match self.0.plan() {
            Some(h) => {
                format!("kiln.Model(plan {:?} for {}, {count} inputs and outputs)", h.name, h.target.backend)
            }
            None => format!("kiln.Model(network, {count} inputs and outputs)"),
        }
    }
}

/// The model that an object stands for: a model, a network, bytes of a file, or its path.
pub fn model_of(object: &Bound<'_, PyAny>) -> PyResult<kiln::Model> {
    let py = object.py();
    if let Ok(model) = object.cast::<Model>() {
        return Ok(model.get().0.clone());
    }
    if let Ok(network) = object.cast::<Network>() {
        return Ok(Model::of_network(py, network)?.0);
    }
    // SAFETY: the object is alive.
    let has_bytes = unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0;
    if has_bytes && !object.is_instance_of::<PyString>() {
        let bytes = crate::tensor::bytes(object)?;
        return detached(py, || kiln::Model::from_bytes(bytes, None::<&Path>));
    }
    let path: PathBuf = object.extract()?;
    detached(py, || kiln::Model::open(&path))
}
