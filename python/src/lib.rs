//! The module `kiln._kiln`: the native half of Kiln's Python package, over the façade `kiln`.

mod build;
mod building;
mod callbacks;
mod command;
mod context;
mod dtype;
mod engine;
mod errors;
mod header;
mod io;
mod layers;
mod log;
mod model;
mod network;
mod options;
mod plugins;
mod refit;
mod report;
mod scope;
mod streaming;
mod tensor;
mod times;

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

/// Fills the module.
#[pymodule]
fn _kiln(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(m)?;
    m.add_class::<tensor::Tensor>()?;
    m.add_class::<io::Target>()?;
    m.add_class::<io::IoTensor>()?;
    m.add_class::<header::PlanHeader>()?;
    m.add_class::<model::Model>()?;
    m.add_class::<report::StepReport>()?;
    m.add_class::<report::BuildReport>()?;
    m.add_class::<build::Built>()?;
    m.add_class::<engine::Engine>()?;
    m.add_class::<context::ExecutionContext>()?;
    m.add_class::<refit::NamedWeight>()?;
    m.add_class::<refit::RefitReport>()?;
    m.add_class::<refit::Refitter>()?;
    m.add_class::<refit::RefitTask>()?;
    m.add_class::<plugins::BackendInfo>()?;
    m.add_class::<plugins::PluginLayer>()?;
    m.add_function(wrap_pyfunction!(build::build_native, m)?)?;
    m.add_function(wrap_pyfunction!(build::calibrate_native, m)?)?;
    m.add_function(wrap_pyfunction!(build::refused_layers_native, m)?)?;
    m.add_function(wrap_pyfunction!(build::compare_native, m)?)?;
    m.add_function(wrap_pyfunction!(build::read_calibration, m)?)?;
    m.add_function(wrap_pyfunction!(plugins::add_libraries, m)?)?;
    m.add_function(wrap_pyfunction!(plugins::backends, m)?)?;
    m.add_function(wrap_pyfunction!(plugins::element_types, m)?)?;
    m.add_function(wrap_pyfunction!(plugins::load_plugin, m)?)?;
    m.add_function(wrap_pyfunction!(plugins::plugin_layers, m)?)?;
    m.add_function(wrap_pyfunction!(layers::define_layer, m)?)?;
    m.add_function(wrap_pyfunction!(layers::undefine_layer, m)?)?;
    m.add_function(wrap_pyfunction!(log::set_log, m)?)?;
    m.add_function(wrap_pyfunction!(command::run_command, m)?)?;
    m.add_function(wrap_pyfunction!(command::memory_limit, m)?)?;
    m.add_function(wrap_pyfunction!(command::strip_plan, m)?)?;
    streaming::register(m)?;
    times::register(m)?;
    network::register(m)
}
