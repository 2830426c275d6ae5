//! The command line, and settings of the process.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command `kiln` in this process and returns its exit code.
#[pyfunction]
pub fn run_command(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| kiln_cli::run(args))
}

/// Sets the most host memory that tensors may take, if one is given, and returns it.
#[pyfunction]
#[pyo3(signature = (limit = None))]
pub fn memory_limit(limit: Option<u64>) -> u64 {
    if let Some(bytes) = limit {
        kiln_ir::budget::set_limit(bytes);
    }
    kiln_ir::budget::limit()
}

/// Leaves weights out of a plan that a refit can supply.
#[pyfunction]
pub fn strip_plan<'py>(
    py: Python<'py>,
    plan: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
    let plan = crate::header::read(py, plan)?;
    let stripped = crate::scope::detached(py, || kiln::strip(plan))?;
    let bytes = crate::scope::detached(py, || stripped.write())?;
    Ok(pyo3::types::PyBytes::new(py, &bytes))
}
