//! Layers that plug-ins define: their fields between Python and Kiln.

use super::value::Value;
use kiln::DType;
use kiln_ir::attr::{Attr, Attrs};
use kiln_network::PluginSpec;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};

/// Name, version and fields of a plug-in layer of a network.
pub(super) fn spec(
    namespace: &str,
    name: &str,
    version: Option<&str>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<PluginSpec> {
    let mut spec = PluginSpec::new(namespace, name);
    spec.version = version.map(str::to_owned);
    if let Some(given) = fields {
        spec.fields = self::fields(given)?;
    }
    Ok(spec)
}

/// Fields of a dictionary.
pub fn fields(given: &Bound<'_, PyDict>) -> PyResult<Attrs> {
    let mut fields = Attrs::new();
    for (key, value) in given {
        fields.set(&key.extract::<String>()?, read(&value)?);
    }
    Ok(fields)
}

fn read(v: &Bound<'_, PyAny>) -> PyResult<Attr> {
    if v.is_instance_of::<PyBool>() {
        return v.extract().map(Attr::Bool);
    }
    if v.is_instance_of::<PyInt>() {
        return v.extract().map(Attr::Int);
    }
    if v.is_instance_of::<PyFloat>() {
        return v.extract().map(Attr::Float);
    }
    if v.is_instance_of::<PyString>() {
        return v.extract().map(Attr::Str);
    }
    if let Ok(bytes) = v.cast::<PyBytes>() {
        return Ok(Attr::Bytes(bytes.as_bytes().to_vec()));
    }
    let ints = v.extract::<Vec<i64>>().map(Attr::Ints);
    let lists = ints.or_else(|_| v.extract().map(Attr::Floats)).or_else(|_| v.extract().map(Attr::Strs));
    lists.map_err(|_| {
        let found = v.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!(
            "a field can't be a {found}; wants a number, text, bytes or a list of one kind"
        ))
    })
}

fn value(py: Python<'_>, v: &Attr) -> PyResult<Py<PyAny>> {
    match v {
        Attr::Int(v) => v.into_py_any(py),
        Attr::Float(v) => v.into_py_any(py),
        Attr::Bool(v) => v.into_py_any(py),
        Attr::Str(v) => v.into_py_any(py),
        Attr::Ints(v) => v.clone().into_py_any(py),
        Attr::Floats(v) => v.clone().into_py_any(py),
        Attr::Strs(v) => v.clone().into_py_any(py),
        Attr::DType(v) => DType::show(v, py),
        Attr::Bytes(v) => PyBytes::new(py, v).into_py_any(py),
        other => Err(PyTypeError::new_err(format!("{} has no form in Python", other.kind()))),
    }
}

/// Attributes by name.
pub fn show<'py>(py: Python<'py>, attrs: &Attrs) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, v) in attrs.iter() {
        all.set_item(name, value(py, v)?)?;
    }
    Ok(all)
}
