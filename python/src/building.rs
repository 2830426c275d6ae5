//! Builds with the callbacks of Python, and calibration by batches.

use crate::callbacks;
use crate::errors::argument;
use crate::options::{Prepared, calibration_algorithm};
use crate::scope::{Raised, detached};
use kiln::calibration::{CalibrationTable, Calibrator};
use kiln::compare::{Compare, Comparison};
use kiln::{EngineBuilder, Progress};
use pyo3::prelude::*;
use std::collections::HashMap;

/// The result of a build, or the exception of its callbacks.
fn finished<T>(py: Python<'_>, raised: &Raised, result: PyResult<T>) -> PyResult<T> {
    match (raised.take(), result) {
        (Some(e), result) => {
            if let Err(own) = result {
                e.set_context(py, Some(own));
            }
            Err(e)
        }
        (None, result) => result,
    }
}

/// Builds a plan with prepared options.
pub fn build(py: Python<'_>, model: kiln::Model, prepared: Prepared<'_>) -> PyResult<kiln::Built> {
    follow(py, model, prepared, |builder, model, progress| builder.build_plan_with_progress(model, progress))
}

/// Builds and runs a network by prepared options and on another backend, and compares the results.
pub fn compare(
    py: Python<'_>,
    model: kiln::Model,
    prepared: Prepared<'_>,
    inputs: &[(&str, kiln::Tensor)],
    settings: &Compare,
) -> PyResult<Comparison> {
    follow(py, model, prepared, |builder, model, progress| {
        builder.compare_with_progress(model, inputs, settings, progress)
    })
}

/// Calibrates where that is asked for, and does what builds; the progress goes to the callback of the options.
fn follow<T: Send>(
    py: Python<'_>,
    model: kiln::Model,
    mut prepared: Prepared<'_>,
    work: impl FnOnce(&EngineBuilder, kiln::Model, Progress<'_>) -> Result<T, kiln::Error> + Send,
) -> PyResult<T> {
    if let Some(batches) = prepared.batches.take() {
        let table = calibrated(py, &model, &batches, &prepared)?;
        prepared.set_ranges(&table);
    }
    let Prepared { builder, raised, progress, .. } = &prepared;
    let mut follow = callbacks::progress(progress.clone(), raised.clone());
    let result = detached(py, || work(builder, model, &mut follow));
    if let Some(progress) = progress {
        // A bar that is shown ends with the build, however that ended.
        progress.call(|bar| match bar.getattr("close") {
            Ok(close) => close.call0().map(drop),
            Err(_) => Ok(()),
        });
    }
    finished(py, raised, result)
}

/// Runs all batches, and returns the table.
pub fn calibrated(
    py: Python<'_>,
    model: &kiln::Model,
    batches: &Bound<'_, PyAny>,
    prepared: &Prepared<'_>,
) -> PyResult<CalibrationTable> {
    let algorithm = calibration_algorithm(&prepared.algorithm)?;
    let builder = &prepared.builder;
    let made = detached(py, || Calibrator::new(model.clone(), builder, algorithm));
    let mut calibrator = finished(py, &prepared.raised, made)?;
    for batch in batches.try_iter()? {
        let batch: HashMap<String, Bound<'_, PyAny>> = batch?
            .extract()
            .map_err(|_| argument("a batch of the calibration is not a dictionary of inputs by name"))?;
        let mut inputs = Vec::new();
        for (name, data) in &batch {
            inputs.push((name.as_str(), crate::tensor::host_tensor(data)?));
        }
        detached(py, || calibrator.add(&inputs))?;
        py.check_signals()?;
    }
    detached(py, move || calibrator.table())
}
