//! Reports of builds.

use crate::io::Target;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A step of a plan, as it was built.
#[pyclass(frozen, module = "kiln")]
pub struct StepReport(pub kiln::report::StepReport);

#[pymethods]
impl StepReport {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn ops(&self) -> &str {
        &self.0.ops
    }

    #[getter]
    fn tactic(&self) -> &str {
        &self.0.tactic
    }

    #[getter]
    fn ns(&self) -> Option<f64> {
        self.0.ns
    }

    #[getter]
    fn candidates(&self) -> usize {
        self.0.candidates
    }

    #[getter]
    fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    #[getter]
    fn workspace(&self) -> u64 {
        self.0.workspace
    }

    #[getter]
    fn deterministic(&self) -> bool {
        self.0.deterministic
    }

    #[getter]
    fn view(&self) -> bool {
        self.0.view
    }

    #[getter]
    fn note(&self) -> &str {
        &self.0.note
    }

    fn __repr__(&self) -> String {
        format!("kiln.StepReport({:?}, {})", self.0.name, self.0.tactic)
    }
}

/// Report of how a plan was built.
#[pyclass(frozen, module = "kiln")]
#[derive(Clone)]
pub struct BuildReport(pub kiln::BuildReport);

#[pymethods]
impl BuildReport {
    #[getter]
    fn backend(&self) -> &str {
        &self.0.backend
    }

    #[getter]
    fn target(&self) -> Target {
        Target(self.0.target.clone())
    }

    #[getter]
    fn fell_back(&self) -> Option<(String, String)> {
        self.0.fell_back.clone()
    }

    #[getter]
    fn steps(&self) -> Vec<StepReport> {
        self.0.steps.iter().cloned().map(StepReport).collect()
    }

    #[getter]
    fn passes(&self) -> Vec<(&'static str, usize)> {
        self.0.passes.iter().map(|p| (p.pass, p.changes)).collect()
    }

    #[getter]
    fn timed(&self) -> usize {
        self.0.timed
    }

    #[getter]
    fn spent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (all, spent) = (PyDict::new(py), &self.0.spent);
        all.set_item("total", spent.total.as_secs_f64())?;
        all.set_item("compiling", spent.compiling.as_secs_f64())?;
        all.set_item("timing", spent.timing.as_secs_f64())?;
        Ok(all)
    }

    #[getter]
    fn host_layers(&self) -> Vec<(String, String)> {
        self.0.host_layers.iter().map(|l| (l.name.clone(), l.why.clone())).collect()
    }

    #[getter]
    fn assumed<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyTuple>)>> {
        self.0.assumed.iter().map(|(name, dims)| Ok((name.clone(), PyTuple::new(py, dims)?))).collect()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    fn __repr__(&self) -> String {
        let r = &self.0;
        let seconds = r.spent.total.as_secs_f64();
        format!(
            "kiln.BuildReport({} steps for {}, {} timed, {seconds:.2} s)",
            r.steps.len(),
            r.backend,
            r.timed
        )
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kiln._html")?.call_method1("report", (slf,))
    }
}
