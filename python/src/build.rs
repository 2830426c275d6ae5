//! Plans that were built, and the functions of the module that build.

use crate::building::{build, calibrated, compare};
use crate::engine::Engine;
use crate::errors::{Raise, argument};
use crate::header::PlanHeader;
use crate::model::Model;
use crate::options::{of_keywords, prepare};
use crate::report::BuildReport;
use crate::scope::detached;
use crate::tensor::host_tensor;
use kiln::calibration::CalibrationTable;
use kiln::compare::Compare;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use std::path::PathBuf;

/// A plan, and how it was built.
#[pyclass(frozen, module = "kiln")]
pub struct Built(kiln::Built);

#[pymethods]
impl Built {
    #[getter]
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.plan.write()).map_err(|e| e.raise(py))?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[getter]
    fn header(&self) -> PlanHeader {
        PlanHeader(self.0.plan.header.clone())
    }

    #[getter]
    fn report(&self) -> BuildReport {
        BuildReport(self.0.report.clone())
    }

    #[getter]
    fn times<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.times.to_bytes())
    }

    #[getter]
    fn record(&self) -> String {
        self.0.record.to_text()
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.plan.write_file(&path)).map_err(|e| e.raise(py))
    }

    #[pyo3(signature = (**options))]
    fn load(&self, py: Python<'_>, options: Option<Bound<'_, PyDict>>) -> PyResult<Engine> {
        let options = of_keywords(py, options.as_ref())?;
        let engine = Engine::make(&options, self.0.plan.clone().into())?;
        Ok(engine.with_report(self.0.report.clone()))
    }

    fn __repr__(&self) -> String {
        let h = &self.0.plan.header;
        format!("kiln.Built({:?} for {}, {} steps)", h.name, h.target.backend, self.0.report.steps.len())
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kiln._html")?.call_method1("report", (slf.get().report(),))
    }
}

/// Builds a plan.
#[pyfunction]
pub fn build_native(py: Python<'_>, model: &Bound<'_, Model>, options: &Bound<'_, PyAny>) -> PyResult<Built> {
    let prepared = prepare(options, None)?;
    build(py, model.get().0.clone(), prepared).map(Built)
}

/// Runs batches and returns a calibration table.
#[pyfunction]
pub fn calibrate_native(
    py: Python<'_>,
    model: &Bound<'_, Model>,
    batches: &Bound<'_, PyAny>,
    algorithm: &str,
    options: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let mut prepared = prepare(options, None)?;
    prepared.algorithm = algorithm.to_owned();
    Ok(calibrated(py, &model.get().0, batches, &prepared)?.to_text())
}

/// Ranges of the tensors of a calibration table.
#[pyfunction]
pub fn read_calibration(table: &str) -> PyResult<HashMap<String, (f32, f32)>> {
    let table = CalibrationTable::parse(table).map_err(|e| argument(e.to_string()))?;
    Ok(table.ranges().into_iter().map(|(name, [lo, hi])| (name, (lo, hi))).collect())
}

/// The layers of a network that a backend refuses, with the reasons; none where it runs all of them. Nothing is built.
#[pyfunction]
pub fn refused_layers_native(
    py: Python<'_>,
    model: &Bound<'_, Model>,
    options: &Bound<'_, PyAny>,
) -> PyResult<Vec<(String, String)>> {
    let prepared = prepare(options, None)?;
    let (builder, model) = (&prepared.builder, model.get().0.clone());
    let support = detached(py, || builder.network_support(model))?;
    Ok(support.refused().map(|l| (l.layer.clone(), l.refused.clone().unwrap_or_default())).collect())
}

/// Runs a network by these options and on a backend that is right, and returns the differences as JSON.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "each is one of the function's in Python")]
pub fn compare_native(
    py: Python<'_>,
    model: &Bound<'_, Model>,
    inputs: HashMap<String, Bound<'_, PyAny>>,
    against: &str,
    rtol: f64,
    atol: f64,
    bisect: bool,
    options: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let given = inputs.iter().map(|(name, data)| Ok((name.as_str(), host_tensor(data)?)));
    let given = given.collect::<PyResult<Vec<_>>>()?;
    let mut settings = Compare::against(against).tolerance(rtol, atol);
    settings.bisect = bisect;
    compare(py, model.get().0.clone(), prepare(options, None)?, &given, &settings)
        .map(|c| c.to_json().to_string())
}
