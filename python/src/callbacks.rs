//! Callbacks of builds: progress, monitors, selectors.

use crate::scope::{Callback, Raised};
use kiln::selection::{Algorithm, AlgorithmSelector, LayerContext, ShapeBounds, StepReport, TensorLayout};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::Arc;

/// A monitor of Python's. An exception in it cancels the build.
pub struct Monitor(pub Arc<Callback>);

impl kiln::ProgressMonitor for Monitor {
    fn phase_start(&mut self, phase: &str, parent: Option<&str>, steps: usize) {
        self.0.call(|o| o.call_method1("phase_start", (phase, parent, steps)).map(drop));
    }

    fn step_complete(&mut self, phase: &str, step: usize) -> bool {
        self.0.call(|o| goes_on(&o.call_method1("step_complete", (phase, step))?)).unwrap_or(false)
    }

    fn phase_finish(&mut self, phase: &str) {
        self.0.call(|o| o.call_method1("phase_finish", (phase,)).map(drop));
    }
}

/// Whether a callback lets the build go on: anything but `False`.
fn goes_on(answer: &Bound<'_, PyAny>) -> PyResult<bool> {
    if answer.is_none() { Ok(true) } else { answer.is_truthy() }
}

/// Follows a build: calls a function, and ends the build where that asks for it or raised, or Ctrl-C was pressed.
pub fn progress(
    function: Option<Arc<Callback>>,
    raised: Raised,
) -> impl FnMut(&str, usize, usize) -> bool + Send {
    move |phase, done, all| {
        let interrupted = Python::try_attach(|py| py.check_signals().err()).flatten();
        if let Some(e) = interrupted {
            raised.keep(e);
            return false;
        }
        match &function {
            Some(f) => f.call(|f| goes_on(&f.call1((phase, done, all))?)).unwrap_or(false),
            None => true,
        }
    }
}

/// A selector of Python's. An exception in it ends the build.
pub struct Selector(pub Arc<Callback>);

impl AlgorithmSelector for Selector {
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        self.select_or_refuse(layer, choices).map(Option::unwrap_or_default)
    }

    /// `None` of Python refuses the layer in this form.
    fn select_or_refuse(
        &mut self,
        layer: &LayerContext,
        choices: &[Algorithm],
    ) -> Result<Option<Vec<usize>>, String> {
        let chosen = self.0.call(|o| {
            let py = o.py();
            let choices = choices.iter().map(|c| algorithm(py, c)).collect::<PyResult<Vec<_>>>()?;
            let layer = context(py, layer)?;
            o.call_method1("select", (layer, PyList::new(py, choices)?))?.extract::<Option<Vec<usize>>>()
        });
        chosen.ok_or_else(|| "the selector raised an exception".to_owned())
    }

    fn report(&mut self, layers: &[StepReport]) {
        self.0.call(|o| {
            let steps: Vec<_> = layers.iter().cloned().map(crate::report::StepReport).collect();
            o.call_method1("report", (steps,)).map(drop)
        });
    }
}

fn context<'py>(py: Python<'py>, layer: &LayerContext) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("layer", &layer.layer)?;
    all.set_item("operators", &layer.operators)?;
    let (of_inputs, of_outputs) = layer.bounds.split_at(layer.inputs.len().min(layer.bounds.len()));
    all.set_item("inputs", layouts(py, &layer.inputs, of_inputs)?)?;
    all.set_item("outputs", layouts(py, &layer.outputs, of_outputs)?)?;
    all.set_item("key", &layer.key)?;
    Ok(all)
}

fn algorithm<'py>(py: Python<'py>, choice: &Algorithm) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("implementation", &choice.implementation)?;
    all.set_item("tactic", &choice.tactic)?;
    all.set_item("workspace", choice.workspace)?;
    all.set_item("deterministic", choice.deterministic)?;
    all.set_item("time_ns", choice.time_ns)?;
    all.set_item("estimate_ns", choice.estimate_ns)?;
    Ok(all)
}

/// Types, dimensions and distances of tensors.
fn layouts<'py>(
    py: Python<'py>,
    all: &[TensorLayout],
    bounds: &[ShapeBounds],
) -> PyResult<Bound<'py, PyList>> {
    let one = |(t, b): (&TensorLayout, &ShapeBounds)| {
        let tensor = PyDict::new(py);
        tensor.set_item("dtype", t.dtype.name())?;
        tensor.set_item("dims", PyTuple::new(py, &t.dims)?)?;
        tensor.set_item("least", PyTuple::new(py, &b.least)?)?;
        tensor.set_item("greatest", PyTuple::new(py, &b.greatest)?)?;
        tensor.set_item("strides", PyTuple::new(py, &t.strides)?)?;
        Ok(tensor)
    };
    PyList::new(py, all.iter().zip(bounds).map(one).collect::<PyResult<Vec<_>>>()?)
}
