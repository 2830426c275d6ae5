//! The network-definition API: networks, their tensors and layers, loops and conditionals.

mod boundary;
mod definition;
mod flow;
mod handles;
mod kinds;
mod layer;
mod model;
pub mod plugin;
mod tensor;
mod value;
mod weights;

pub use handles::{Conditional, Layer, Loop, Network, NetworkTensor};

use pyo3::prelude::*;

/// Adds the classes of networks to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Network>()?;
    m.add_class::<NetworkTensor>()?;
    m.add_class::<Layer>()?;
    m.add_class::<Loop>()?;
    m.add_class::<Conditional>()?;
    m.add("RefusedNodes", m.py().get_type::<model::RefusedNodes>())?;
    m.add_function(wrap_pyfunction!(model::onnx_operators, m)?)
}
