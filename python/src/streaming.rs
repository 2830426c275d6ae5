//! Weights that are copied to the device as a run needs them: sizes and budgets of engines.

use crate::engine::Engine;
use crate::scope::detached;
use pyo3::prelude::*;

/// Bytes of the weights that could be streamed, and the least budget.
#[pyfunction]
fn weight_streaming_sizes(engine: &Engine) -> (u64, u64) {
    (engine.inner().streamable_weights(), engine.inner().least_weight_budget())
}

/// Bytes of weights that may be on the device at a time; None: all.
#[pyfunction]
fn weight_budget(engine: &Engine) -> Option<u64> {
    engine.inner().weight_budget()
}

/// Sets the budget; contexts follow with their next run.
#[pyfunction]
#[pyo3(signature = (engine, nbytes))]
fn set_weight_budget(py: Python<'_>, engine: &Engine, nbytes: Option<u64>) -> PyResult<()> {
    detached(py, || engine.inner().set_weight_budget(nbytes))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(weight_streaming_sizes, m)?)?;
    m.add_function(wrap_pyfunction!(weight_budget, m)?)?;
    m.add_function(wrap_pyfunction!(set_weight_budget, m)?)
}
