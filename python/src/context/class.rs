//! The class of execution contexts.

use super::callbacks::{Allocator, Listener};
use super::core::Core;
use crate::errors::argument;
use crate::scope::{Callback, lock, try_lock};
use crate::tensor::{Tensor, bytes, host_tensor};
use kiln::RuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// Memory of one run at a time. Used by two threads at once it raises `ContextInUse`.
#[pyclass(frozen, module = "kiln")]
pub struct ExecutionContext {
    /// The engine's object.
    engine: Py<PyAny>,
    core: Arc<Core>,
    canceller: kiln::Canceller,
}

/// Dimensions and the most that they can be, by output.
type Shapes<'py> = Bound<'py, PyDict>;

impl ExecutionContext {
    /// Takes a context of an engine.
    pub fn new(engine: Py<PyAny>, core: Core) -> ExecutionContext {
        let canceller = lock(&core.context).canceller();
        ExecutionContext { engine, core: Arc::new(core), canceller }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut kiln::ExecutionContext) -> Result<T, RuntimeError> + Send,
    ) -> PyResult<T> {
        self.core.with(py, f)
    }

    fn note_shape(&self, name: &str, shape: Vec<usize>) {
        lock(&self.core.shapes).insert(name.to_owned(), shape);
    }
}

/// Outputs as a dictionary of tensors.
fn tensors<'py>(py: Python<'py>, outputs: kiln::Outputs) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, result) in outputs.into_vec() {
        let tensor = py.detach(|| Tensor::copied(&result));
        all.set_item(name, Bound::new(py, tensor)?)?;
    }
    Ok(all)
}

#[pymethods]
impl ExecutionContext {
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyAny> {
        self.engine.clone_ref(py)
    }

    #[pyo3(signature = (inputs, *, out = None, stream = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        super::run::run(py, &self.core, inputs, out, stream)
    }

    fn set_profile(&self, py: Python<'_>, profile: Option<usize>) -> PyResult<()> {
        self.with(py, |c| c.set_profile(profile))
    }

    fn set_input(&self, py: Python<'_>, name: &str, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let tensor = host_tensor(data)?;
        let shape = tensor.shape().to_vec();
        self.with(py, |c| c.set_input(name, tensor))?;
        self.note_shape(name, shape);
        Ok(())
    }

    fn set_packed_input(
        &self,
        py: Python<'_>,
        name: &str,
        shape: Vec<i64>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (dims, data) = (crate::tensor::shape(shape)?, bytes(data)?);
        self.with(py, |c| c.set_packed_input(name, &dims, data))?;
        self.note_shape(name, dims);
        Ok(())
    }

    fn set_input_shape(&self, py: Python<'_>, name: &str, shape: Vec<i64>) -> PyResult<()> {
        let dims = crate::tensor::shape(shape)?;
        self.with(py, |c| c.set_input_shape(name, &dims))?;
        self.note_shape(name, dims);
        Ok(())
    }

    fn input_shape<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let io = self.core.engine.io_tensors();
        let found = io.iter().find(|t| t.name == name && t.mode == kiln::IoMode::Input);
        let io = found.ok_or_else(|| argument(format!("the engine has no input \"{name}\"")))?;
        let known = lock(&self.core.shapes).get(name).cloned().or_else(|| io.ty().static_dims());
        known.map(|dims| PyTuple::new(py, dims)).transpose()
    }

    fn clear_inputs(&self, py: Python<'_>) -> PyResult<()> {
        lock(&self.core.shapes).clear();
        self.with(py, |c| {
            c.clear_inputs();
            Ok(())
        })
    }

    fn underspecified(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |c| Ok(c.underspecified().into_iter().map(str::to_owned).collect()))
    }

    fn infer_shapes<'py>(&self, py: Python<'py>) -> PyResult<Shapes<'py>> {
        let shapes = self.with(py, |c| c.infer_shapes())?;
        let all = PyDict::new(py);
        for (name, ty) in shapes {
            let known = ty.dims.iter().map(|d| d.as_const().unwrap_or(-1));
            let most = ty
                .dims
                .iter()
                .map(|d| d.as_const().or_else(|| d.upper_bound().and_then(|d| d.as_const())).unwrap_or(-1));
            let known = PyTuple::new(py, known.collect::<Vec<_>>())?;
            let most = PyTuple::new(py, most.collect::<Vec<_>>())?;
            all.set_item(name, (known, most))?;
        }
        Ok(all)
    }

    fn max_output_size(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        self.with(py, |c| c.max_output_size(name))
    }

    fn bind(&self, py: Python<'_>, name: &str, address: usize, nbytes: u64) -> PyResult<()> {
        // SAFETY: the caller vouches for the memory, as the documentation asks of him.
        self.with(py, |c| unsafe { c.bind(name, address as *mut c_void, nbytes) })
    }

    fn set_memory(&self, py: Python<'_>, address: usize, nbytes: u64) -> PyResult<()> {
        // SAFETY: the caller vouches for the memory.
        self.with(py, |c| unsafe { c.set_memory(address as *mut c_void, nbytes) })
    }

    fn set_stream(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        // SAFETY: the caller vouches for the handle.
        self.with(py, |c| unsafe { c.set_stream(stream as *mut c_void) })
    }

    fn set_aux_streams(&self, py: Python<'_>, streams: Vec<usize>) -> PyResult<()> {
        let all: Vec<usize> = streams;
        // SAFETY: the caller vouches for the handles.
        self.with(py, move |c| unsafe {
            c.set_aux_streams(&all.iter().map(|&s| s as *mut c_void).collect::<Vec<_>>())
        })
    }

    fn set_consumed_event(&self, py: Python<'_>, event: usize) -> PyResult<()> {
        // SAFETY: the caller vouches for the handle.
        self.with(py, |c| unsafe { c.set_consumed_event(event as *mut c_void) })
    }

    fn memory_for_shapes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |c| c.memory_for_shapes())
    }

    fn set_output_allocator(
        &self,
        py: Python<'_>,
        name: &str,
        allocator: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let callback = allocator.map(Callback::new);
        let boxed = callback.clone().map(|c| -> Box<dyn kiln::OutputAllocator> { Box::new(Allocator(c)) });
        self.with(py, |c| c.set_output_allocator(name, boxed))?;
        self.core.keep(&format!("output {name}"), callback);
        Ok(())
    }

    fn enqueue(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |c| c.enqueue())
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |c| c.wait())
    }

    fn wait_consumed(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |c| c.wait_consumed())
    }

    fn take_outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        tensors(py, self.with(py, |c| c.outputs())?)
    }

    fn take_packed_outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        tensors(py, self.with(py, |c| c.packed_outputs())?)
    }

    fn cancel(&self) -> bool {
        self.canceller.cancel()
    }

    fn set_timeout(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let limit = seconds.map(|s| {
            Duration::try_from_secs_f64(s).map_err(|e| argument(format!("a limit of {s} seconds: {e}")))
        });
        let limit = limit.transpose()?;
        self.with(py, |c| {
            c.set_timeout(limit);
            Ok(())
        })
    }

    fn layer_times<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let times = self.with(py, |c| c.layer_times())?;
        let one = |t: kiln::LayerTime| {
            let all = PyDict::new(py);
            all.set_item("name", t.name)?;
            all.set_item("tactic", t.tactic)?;
            all.set_item("runs", t.runs)?;
            all.set_item("inside", t.inside)?;
            all.set_item("ns", t.ns)?;
            all.set_item("bytes", t.cost.map(|c| c.bytes))?;
            all.set_item("operations", t.cost.map(|c| c.operations))?;
            Ok(all)
        };
        times.into_iter().map(one).collect()
    }

    fn host_layers(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let layers = self.with(py, |c| c.host_layers())?;
        Ok(layers.into_iter().map(|l| (l.name, l.why)).collect())
    }

    fn layers_json(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.with(py, |c| c.inspector())?.to_json())
    }

    fn counters(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        let c = self.with(py, |c| Ok(c.counters()))?;
        Ok(BTreeMap::from([
            ("shape_inferences", c.shape_inferences),
            ("shape_hits", c.shape_hits),
            ("reloads", c.reloads),
            ("runs", c.backend.runs),
            ("allocations", c.backend.allocations),
            ("compilations", c.backend.compilations),
            ("pipelines", c.backend.pipelines),
            ("host_syncs", c.backend.host_syncs),
        ]))
    }

    fn time_runs(&self, py: Python<'_>, runs: u32) -> PyResult<Vec<f64>> {
        self.with(py, |c| c.time_runs(runs))
    }

    fn set_observable(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.with(py, |c| {
            c.set_observable(on);
            Ok(())
        })
    }

    fn observe(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        Ok(Tensor::copied(&self.with(py, |c| c.observe(name))?))
    }

    #[getter]
    fn debug_tensors(&self) -> Vec<String> {
        self.core.engine.debug_tensors()
    }

    fn set_debug_listener(&self, py: Python<'_>, listener: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let callback = listener.map(Callback::new);
        let boxed = callback.clone().map(|c| -> Box<dyn kiln::DebugListener> { Box::new(Listener(c)) });
        self.with(py, |c| {
            c.set_debug_listener(boxed);
            Ok(())
        })?;
        self.core.keep("debug listener", callback);
        Ok(())
    }

    fn set_debug_state(&self, py: Python<'_>, name: &str, on: bool) -> PyResult<()> {
        self.with(py, |c| c.set_tensor_debug_state(name, on))
    }

    fn set_all_debug_states(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.with(py, |c| {
            c.set_all_debug_states(on);
            Ok(())
        })
    }

    fn set_unfused_debug_state(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        self.with(py, |c| {
            c.set_unfused_debug_state(on);
            Ok(())
        })
    }

    fn debug_state(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with(py, |c| c.debug_state(name))
    }

    fn set_error_recorder(&self, py: Python<'_>, recorder: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let callback = recorder.map(Callback::new);
        let shared = callback.clone().map(|c| -> Arc<dyn kiln::ErrorRecorder> { c });
        self.with(py, |c| {
            c.set_error_recorder(shared);
            Ok(())
        })?;
        self.core.keep("error recorder", callback);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("kiln.ExecutionContext({:?} on {})", self.core.engine.name(), self.core.engine.backend())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.engine)?;
        if let Some(all) = try_lock(&self.core.callbacks) {
            for callback in all.values() {
                callback.traverse(&visit)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let all = std::mem::take(&mut *lock(&self.core.callbacks));
        all.values().for_each(|c| c.clear());
    }
}
