//! Refit: new weights for engines and plans.

use crate::errors::{argument, in_use};
use crate::header::read;
use crate::scope::{detached, try_lock};
use crate::tensor::Tensor;
use kiln::{RuntimeError, WeightsRole};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Mutex;

/// A weight that has a name.
#[pyclass(frozen, module = "kiln")]
pub struct NamedWeight(kiln::NamedWeight);

#[pymethods]
impl NamedWeight {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.shape)
    }

    #[getter]
    fn fixed(&self) -> Option<&str> {
        self.0.fixed.as_deref()
    }

    #[getter]
    fn uses(&self) -> Vec<(String, &'static str)> {
        self.0.uses.iter().map(|(layer, role)| (layer.clone(), role.name())).collect()
    }

    fn __repr__(&self) -> String {
        format!("kiln.NamedWeight({:?}, {}{:?})", self.0.name, self.0.dtype, self.0.shape)
    }
}

/// Report of a refit.
#[pyclass(frozen, module = "kiln")]
pub struct RefitReport(kiln::RefitReport);

#[pymethods]
impl RefitReport {
    #[getter]
    fn replaced(&self) -> usize {
        self.0.replaced
    }

    #[getter]
    fn derived(&self) -> usize {
        self.0.derived
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }

    fn __repr__(&self) -> String {
        format!("kiln.RefitReport({} replaced, {} derived)", self.0.replaced, self.0.derived)
    }
}

/// New weights for an engine, or for a plan without a device.
#[pyclass(frozen, module = "kiln")]
pub struct Refitter(Mutex<Option<kiln::Refitter>>);

/// Layers and roles.
type Roles = Vec<(String, &'static str)>;

fn role(text: &str) -> PyResult<WeightsRole> {
    text.parse().map_err(|e: String| argument(e))
}

fn roles(all: Vec<(String, WeightsRole)>) -> Roles {
    all.into_iter().map(|(layer, role)| (layer, role.name())).collect()
}

/// A refit that goes on.
#[pyclass(frozen, module = "kiln")]
pub struct RefitTask {
    /// The refitter that gets back what was set, once the refit is done.
    refitter: Py<Refitter>,
    task: Mutex<Option<kiln::RefitTask>>,
}

#[pymethods]
impl RefitTask {
    /// Whether the refit is done, or failed.
    fn is_done(&self) -> PyResult<bool> {
        let guard = try_lock(&self.task).ok_or_else(|| in_use("the refit"))?;
        Ok(guard.as_ref().is_none_or(kiln::RefitTask::is_done))
    }

    fn wait(&self, py: Python<'_>) -> PyResult<RefitReport> {
        let mut guard = try_lock(&self.task).ok_or_else(|| in_use("the refit"))?;
        let task = guard.take().ok_or_else(|| argument("the refit was waited for before"))?;
        let (refitter, report) = detached(py, || task.wait())?;
        let mut place = try_lock(&self.refitter.get().0).ok_or_else(|| in_use("the refitter"))?;
        *place = Some(refitter);
        drop(place);
        detached(py, || report).map(RefitReport)
    }
}

fn taken() -> PyErr {
    argument("the refitter has handed out its plan, or a refit of it goes on: wait for that")
}

impl Refitter {
    /// Takes a refitter.
    pub fn new(refitter: kiln::Refitter) -> Refitter {
        Refitter(Mutex::new(Some(refitter)))
    }

    fn with<T: Send, E: crate::errors::IntoException + Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut kiln::Refitter) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let mut guard = try_lock(&self.0).ok_or_else(|| in_use("the refitter"))?;
        let refitter = guard.as_mut().ok_or_else(taken)?;
        detached(py, || f(refitter))
    }

    /// Reads something that cannot fail.
    fn get_from<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&kiln::Refitter) -> T + Send) -> PyResult<T> {
        self.with(py, |r| Ok::<T, RuntimeError>(f(r)))
    }
}

#[pymethods]
impl Refitter {
    #[staticmethod]
    fn of_plan(py: Python<'_>, plan: &Bound<'_, PyAny>) -> PyResult<Refitter> {
        let plan = read(py, plan)?;
        detached(py, || kiln::Refitter::of_plan(plan)).map(Refitter::new)
    }

    fn weights(&self, py: Python<'_>) -> PyResult<Vec<NamedWeight>> {
        self.get_from(py, |r| r.weights().cloned().map(NamedWeight).collect())
    }

    fn get_all(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.get_from(py, |r| r.get_all())
    }

    fn get_all_roles(&self, py: Python<'_>) -> PyResult<Roles> {
        Ok(roles(self.get_from(py, |r| r.get_all_roles())?))
    }

    fn get_missing(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.get_from(py, |r| r.get_missing())
    }

    fn get_missing_roles(&self, py: Python<'_>) -> PyResult<Roles> {
        Ok(roles(self.get_from(py, |r| r.get_missing_roles())?))
    }

    fn prototype(&self, py: Python<'_>, name: &str) -> PyResult<NamedWeight> {
        self.with(py, |r| r.prototype(name).cloned()).map(NamedWeight)
    }

    fn prototype_of(&self, py: Python<'_>, layer: &str, role: &str) -> PyResult<NamedWeight> {
        let role = self::role(role)?;
        self.with(py, |r| r.prototype_of(layer, role).cloned()).map(NamedWeight)
    }

    fn set(&self, py: Python<'_>, name: &str, data: &Bound<'_, PyAny>) -> PyResult<()> {
        // A copy: the weights stay in use, whatever becomes of the caller's memory.
        let tensor = crate::tensor::view(data, Default::default())?.copied()?;
        self.with(py, |r| r.set(name, tensor))
    }

    fn set_weights(&self, py: Python<'_>, layer: &str, role: &str, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let role = self::role(role)?;
        let tensor = crate::tensor::view(data, Default::default())?.copied()?;
        self.with(py, |r| r.set_weights(layer, role, tensor))
    }

    fn get(&self, py: Python<'_>, name: &str) -> PyResult<Option<Tensor>> {
        self.get_from(py, |r| r.get(name).map(Tensor::copied))
    }

    fn unset(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with(py, |r| Ok::<bool, RuntimeError>(r.unset(name)))
    }

    fn unset_weights(&self, py: Python<'_>, layer: &str, role: &str) -> PyResult<bool> {
        let role = self::role(role)?;
        self.with(py, |r| r.unset_weights(layer, role))
    }

    fn set_validation(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.with(py, |r| {
            r.set_validation(on);
            Ok::<(), RuntimeError>(())
        })
    }

    fn set_from_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
        Ok(self.with(py, |r| kiln::weights::set_from_file(r, &path))?.unused)
    }

    fn set_dynamic_range(&self, py: Python<'_>, tensor: &str, least: f32, greatest: f32) -> PyResult<()> {
        self.with(py, |r| r.set_dynamic_range(tensor, least, greatest))
    }

    fn dynamic_range(&self, py: Python<'_>, tensor: &str) -> PyResult<Option<(f32, f32)>> {
        self.get_from(py, |r| r.dynamic_range(tensor).map(|[least, greatest]| (least, greatest)))
    }

    fn tensors_with_dynamic_range(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.get_from(py, kiln::Refitter::tensors_with_dynamic_range)
    }

    fn set_on_device(&self, py: Python<'_>, name: &str, address: usize, nbytes: u64) -> PyResult<()> {
        // SAFETY: the caller vouches for the memory, as the stub of this method says.
        self.with(py, |r| unsafe { r.set_on_device(name, address as *const c_void, nbytes) })
    }

    fn set_stream(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        self.with(py, |r| {
            // SAFETY: the caller vouches for the handle, as the stub of this method says.
            unsafe { r.set_stream(stream as *mut c_void) };
            Ok::<(), RuntimeError>(())
        })
    }

    /// Starts a refit on a thread of its own; `wait` of the result returns the report.
    fn refit_async(slf: &Bound<'_, Self>) -> PyResult<RefitTask> {
        let mut guard = try_lock(&slf.get().0).ok_or_else(|| in_use("the refitter"))?;
        let refitter = guard.take().ok_or_else(taken)?;
        let task = detached(slf.py(), || refitter.refit_async())?;
        Ok(RefitTask { refitter: slf.clone().unbind(), task: Mutex::new(Some(task)) })
    }

    fn refit(&self, py: Python<'_>) -> PyResult<RefitReport> {
        self.with(py, |r| r.refit()).map(RefitReport)
    }

    /// Seconds of each phase of the last refit.
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let t = self.get_from(py, |r| r.times())?;
        let times = PyDict::new(py);
        let phases = [("read", t.read), ("derived", t.derived), ("checked", t.checked), ("loaded", t.loaded)];
        for (phase, time) in phases {
            times.set_item(phase, time.as_secs_f64())?;
        }
        Ok(times)
    }

    /// The plan with the weights put in so far; of a plan's refitter it is the last call.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut guard = try_lock(&self.0).ok_or_else(|| in_use("the refitter"))?;
        let refitter = guard.take().ok_or_else(taken)?;
        let bytes = detached(py, || refitter.into_plan().write())?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.get_from(py, |r| r.get_all().len()) {
            Ok(count) => format!("kiln.Refitter({count} weights)"),
            Err(_) => "kiln.Refitter(in use)".to_owned(),
        }
    }
}
