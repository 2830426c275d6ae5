//! The module `kiln._kiln`: the native half of Kiln's Python package, over the façade `kiln`.

mod network;

use pyo3::prelude::*;

/// Fills the module.
#[pymodule]
fn _kiln(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    network::register(m)
}
