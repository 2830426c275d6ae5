//! Headers of plans.

use crate::errors::Raise;
use crate::io::{IoTensor, Target, io_tensors, profiles};
use kiln::{Plan, Verbosity};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Header of a plan, readable without loading it.
#[pyclass(frozen, module = "kiln")]
pub struct PlanHeader(pub kiln::PlanHeader);

#[pymethods]
impl PlanHeader {
    #[staticmethod]
    fn peek(py: Python<'_>, path: PathBuf) -> PyResult<PlanHeader> {
        py.detach(|| kiln::PlanHeader::peek(&path)).map(PlanHeader).map_err(|e| e.raise(py))
    }

    #[staticmethod]
    fn of(py: Python<'_>, plan: &Bound<'_, PyAny>) -> PyResult<PlanHeader> {
        Ok(PlanHeader(read(py, plan)?.header))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn target(&self) -> Target {
        Target(self.0.target.clone())
    }

    #[getter]
    fn io(&self) -> Vec<IoTensor> {
        io_tensors(&self.0.io)
    }

    #[getter]
    fn profiles<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        profiles(py, &self.0.profiles)
    }

    #[getter]
    fn plugins<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let one = |r: &kiln::Requirement| {
            let all = PyDict::new(py);
            all.set_item("name", &r.name)?;
            all.set_item("version", &r.version)?;
            all.set_item("digest", &r.digest)?;
            all.set_item("layers", &r.layers)?;
            all.set_item("called", r.called)?;
            all.set_item("embedded", r.embedded)?;
            Ok(all)
        };
        self.0.plugins.iter().map(one).collect()
    }

    #[getter]
    fn verbosity(&self) -> &'static str {
        match self.0.verbosity {
            Verbosity::None => "none",
            Verbosity::Names => "names",
            Verbosity::Detailed => "detailed",
        }
    }

    #[getter]
    fn refittable(&self) -> bool {
        self.0.refittable
    }

    #[getter]
    fn identical(&self) -> bool {
        self.0.identical
    }

    #[getter]
    fn version_compatible(&self) -> bool {
        self.0.version_compatible
    }

    #[getter]
    fn absent(&self) -> Vec<String> {
        self.0.absent.iter().map(|a| a.name.clone()).collect()
    }

    #[getter]
    fn context_memory(&self) -> u64 {
        self.0.context_memory
    }

    fn __repr__(&self) -> String {
        let h = &self.0;
        format!("kiln.PlanHeader({:?} for {}: {})", h.name, h.target.backend, h.target.device)
    }
}

/// Reads a plan from memory.
pub fn read(py: Python<'_>, plan: &Bound<'_, PyAny>) -> PyResult<Plan> {
    let bytes = crate::tensor::bytes(plan)?;
    py.detach(|| Plan::read(bytes)).map_err(|e| e.raise(py))
}
