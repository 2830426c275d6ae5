//! ONNX models as networks.

use kiln_onnx::{ImportOptions, Model, ModelFile, OnnxError};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::Path;

create_exception!(
    kiln._kiln,
    RefusedNodes,
    PyValueError,
    "Nodes of a model that can't be converted; `nodes` has (name, operator, domain, version, reason) of each."
);

/// The network of a model in memory, its tensors named as the model's values, and the importer's notes.
pub(super) fn import(data: &[u8], folder: Option<&Path>) -> Result<(kiln::Network, Vec<String>), OnnxError> {
    let file = ModelFile::from_bytes(data.to_vec(), folder)?;
    let mut done = kiln_onnx::convert::import(&Model::check(&file)?, &ImportOptions::default())?;
    for (name, id) in done.values {
        let network = &mut done.network;
        if network.producer(id).is_some() && !network.is_taken(&name) && !network.outputs().contains(&id) {
            // A name that is not allowed leaves the tensor its own.
            let _ = network.set_tensor_name(id, &name);
        }
    }
    Ok((done.network, done.report.notes))
}

/// The exception for a model that can't be converted.
pub(super) fn fail(py: Python<'_>, e: &OnnxError) -> PyErr {
    let text = kiln_ir::describe(e);
    let OnnxError::Refused(refused) = e else {
        return PyValueError::new_err(text);
    };
    let nodes: Vec<_> = refused
        .0
        .iter()
        .map(|n| (n.node.clone(), n.op.clone(), n.domain.clone(), n.opset, n.reason.to_string()))
        .collect();
    let exception = RefusedNodes::new_err(text);
    match exception.value(py).setattr("nodes", nodes) {
        Ok(()) => exception,
        Err(e) => e,
    }
}

/// Names of the ONNX operators that the importer converts; those of other domains have them in front, with a dot.
#[pyfunction]
pub(super) fn onnx_operators() -> Vec<&'static str> {
    kiln_onnx::ops::supported()
}
