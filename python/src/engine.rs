//! Engines.

use crate::building::build;
use crate::context::{Core, ExecutionContext, run};
use crate::errors::Raise;
use crate::header::PlanHeader;
use crate::io::{IoTensor, Target, io_tensors, profiles};
use crate::model::model_of;
use crate::options::{check_load, of_keywords, prepare};
use crate::refit::Refitter;
use crate::report::BuildReport;
use crate::scope::{Callback, detached, lock, try_lock};
use kiln::IoMode;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Contexts that an engine keeps for runs of its own at most.
const KEPT: usize = 8;

/// A network on a device, ready to run.
#[pyclass(frozen, module = "kiln")]
pub struct Engine {
    inner: kiln::Engine,
    report: Option<Box<kiln::BuildReport>>,
    /// Contexts of `run` that no run uses.
    idle: Mutex<Vec<Arc<Core>>>,
    recorder: Mutex<Option<Arc<Callback>>>,
}

impl Engine {
    /// Makes an engine of a model or a plan.
    pub fn make(options: &Bound<'_, PyAny>, model: kiln::Model) -> PyResult<Engine> {
        let py = options.py();
        if let Some(plan) = model.plan() {
            check_load(options, plan)?;
        }
        let prepared = prepare(options, model.plan())?;
        let recorder = prepared.recorder.clone();
        let (inner, report) = match model.plan() {
            Some(_) => {
                // A builder with options of builds refuses plans of another backend.
                let mut loader = prepared.loader;
                if let Some(backend) = prepared.backend {
                    loader = loader.backend(backend);
                }
                (detached(py, || loader.build(model))?, None)
            }
            None => {
                let loader = prepared.loader.clone();
                let kiln::Built { plan, report, .. } = build(py, model, prepared)?;
                (detached(py, || loader.build(plan))?, Some(Box::new(report)))
            }
        };
        Ok(Engine { inner, report, idle: Mutex::default(), recorder: Mutex::new(recorder) })
    }

    /// The engine with the report of its build.
    pub fn with_report(self, report: kiln::BuildReport) -> Engine {
        Engine { report: Some(Box::new(report)), ..self }
    }

    /// The engine of the façade.
    pub fn inner(&self) -> &kiln::Engine {
        &self.inner
    }

    /// A context for one run, which `give_back` takes.
    fn borrow_context(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
        if let Some(core) = lock(&self.idle).pop() {
            return Ok(core);
        }
        let context = detached(py, || self.inner.create_context())?;
        Ok(Arc::new(Core::new(self.inner.clone(), context)))
    }

    fn give_back(&self, core: Arc<Core>) {
        let mut idle = lock(&self.idle);
        if idle.len() < KEPT {
            idle.push(core);
        }
    }
}

#[pymethods]
impl Engine {
    #[staticmethod]
    #[pyo3(signature = (model, **options))]
    fn open(model: &Bound<'_, PyAny>, options: Option<Bound<'_, PyDict>>) -> PyResult<Engine> {
        let options = of_keywords(model.py(), options.as_ref())?;
        Engine::make(&options, model_of(model)?)
    }

    #[getter]
    fn name(&self) -> String {
        self.inner.name()
    }

    #[getter]
    fn backend(&self) -> &str {
        self.inner.backend()
    }

    #[getter]
    fn target(&self) -> Target {
        Target(self.inner.target().clone())
    }

    #[getter]
    fn io(&self) -> Vec<IoTensor> {
        io_tensors(self.inner.io_tensors())
    }

    #[getter]
    fn inputs(&self) -> Vec<IoTensor> {
        io_tensors(self.inner.io_tensors().iter().filter(|t| t.mode == IoMode::Input))
    }

    #[getter]
    fn outputs(&self) -> Vec<IoTensor> {
        io_tensors(self.inner.io_tensors().iter().filter(|t| t.mode == IoMode::Output))
    }

    fn io_tensor(&self, py: Python<'_>, name: &str) -> PyResult<IoTensor> {
        detached(py, || self.inner.io_tensor(name).cloned()).map(IoTensor)
    }

    #[getter]
    fn profiles<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        profiles(py, self.inner.profiles())
    }

    #[getter]
    fn header(&self, py: Python<'_>) -> PlanHeader {
        PlanHeader(py.detach(|| self.inner.plan().header))
    }

    #[getter]
    fn report(&self) -> Option<BuildReport> {
        self.report.as_deref().cloned().map(BuildReport)
    }

    #[getter]
    fn context_memory(&self) -> u64 {
        self.inner.context_memory()
    }

    #[getter]
    fn aux_streams(&self) -> u32 {
        self.inner.aux_streams()
    }

    #[getter]
    fn weight_memory(&self) -> u64 {
        let program = self.inner.program();
        let graph = &program.graph;
        graph.value_ids().filter_map(|v| graph.weight(v)).map(|w| w.tensor.bytes().len() as u64).sum()
    }

    #[getter]
    fn weights_size(&self) -> u64 {
        self.inner.weights_size()
    }

    #[getter]
    fn stripped_weights_size(&self) -> Option<u64> {
        self.inner.stripped_weights_size()
    }

    #[getter]
    fn takes_device_addresses(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.borrow_context(py)?;
        let answer = lock(&core.context).takes_device_memory();
        self.give_back(core);
        Ok(answer)
    }

    #[getter]
    fn debug_tensors(&self) -> Vec<String> {
        self.inner.debug_tensors()
    }

    #[getter]
    fn refittable(&self, py: Python<'_>) -> bool {
        py.detach(|| self.inner.plan().header.refittable)
    }

    fn layers_json(&self) -> String {
        self.inner.inspector().to_json()
    }

    fn layers_text(&self) -> String {
        self.inner.inspector().to_text()
    }

    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.inner.plan().write()).map_err(|e| e.raise(py))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.plan().write_file(&path)).map_err(|e| e.raise(py))
    }

    #[pyo3(signature = (*, memory = true))]
    fn create_context(slf: &Bound<'_, Self>, memory: bool) -> PyResult<ExecutionContext> {
        let engine = &slf.get().inner;
        let context = detached(slf.py(), || match memory {
            true => engine.create_context(),
            false => engine.create_context_without_memory(),
        })?;
        let core = Core::new(engine.clone(), context);
        Ok(ExecutionContext::new(slf.clone().into_any().unbind(), core))
    }

    fn refitter(slf: &Bound<'_, Self>) -> PyResult<Refitter> {
        let engine = &slf.get().inner;
        let refitter = detached(slf.py(), || engine.refitter())?;
        Ok(Refitter::new(refitter))
    }

    fn set_error_recorder(&self, recorder: Option<Bound<'_, PyAny>>) {
        let recorder = recorder.map(Callback::new);
        let shared = recorder.clone().map(|r| -> Arc<dyn kiln::ErrorRecorder> { r });
        self.inner.set_error_recorder(shared);
        *lock(&self.recorder) = recorder;
    }

    #[pyo3(signature = (inputs, *, out = None, stream = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let core = self.borrow_context(py)?;
        let result = run(py, &core, inputs, out, stream);
        self.give_back(core);
        result
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.inner.io_tensors().iter().map(|t| t.name.as_str()).collect();
        format!("kiln.Engine({:?} on {}: {})", self.inner.name(), self.inner.backend(), names.join(", "))
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kiln._html")?.call_method1("engine", (slf,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match try_lock(&self.recorder).as_deref() {
            Some(Some(recorder)) => recorder.traverse(&visit),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Some(recorder) = lock(&self.recorder).take() {
            recorder.clear();
        }
    }
}
