//! Layers that Python functions define.

use crate::errors::argument;
use crate::network::plugin;
use crate::scope::{keep_for_call, lock};
use crate::tensor::{Stream, Tensor, view};
use kiln::{DType, TensorType};
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ops::plugin::record::{LayerFunctions, LayerName, LayerRecord, LayerRun, Library};
use kiln_ops::plugin::registry;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Name of the library that these layers seem to come from.
const LIBRARY: &str = "python";

/// Objects of layers by their names. A record lives as long as the process; its object may be replaced or taken away.
static LAYERS: Mutex<Vec<(LayerName, Arc<Functions>)>> = Mutex::new(Vec::new());

/// The functions of a layer: methods of an object.
struct Functions {
    name: LayerName,
    object: Mutex<Option<Py<PyAny>>>,
}

impl Functions {
    /// Calls `f` with the object. An exception also becomes that of the call which this thread is in.
    fn ask<T>(&self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, OpError> {
        let answer = Python::try_attach(|py| {
            let object = lock(&self.object).as_ref().map(|o| o.clone_ref(py));
            let object = object.ok_or_else(|| {
                OpError::Unsupported(format!("plug-in layer {} was taken back; define it again", self.name))
            })?;
            f(object.bind(py)).map_err(|e| {
                let text = format!("plug-in layer {} in Python raised {e}", self.name);
                keep_for_call(e);
                OpError::Value(text)
            })
        });
        answer.unwrap_or_else(|| {
            Err(OpError::Unsupported("the interpreter ends; its layers are no longer called".into()))
        })
    }
}

/// Types and dimensions, -1 for a dimension that is not known.
fn described<'py>(py: Python<'py>, types: &[TensorType]) -> PyResult<Bound<'py, PyList>> {
    let one = |t: &TensorType| {
        let dims = t.dims.iter().map(|d| d.as_const().unwrap_or(-1));
        Ok((t.dtype.name(), PyTuple::new(py, dims.collect::<Vec<_>>())?))
    };
    PyList::new(py, types.iter().map(one).collect::<PyResult<Vec<_>>>()?)
}

impl LayerFunctions for Functions {
    fn check(&self, fields: &Attrs) -> Result<(), OpError> {
        self.complete(fields).map(drop)
    }

    fn complete(&self, given: &Attrs) -> Result<Attrs, OpError> {
        self.ask(|o| {
            let py = o.py();
            let all = o.call_method1(intern!(py, "complete"), (plugin::show(py, given)?,))?;
            plugin::fields(all.cast::<PyDict>()?)
        })
    }

    fn output_types(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<Vec<DType>, OpError> {
        self.ask(|o| {
            let py = o.py();
            let arguments = (plugin::show(py, fields)?, described(py, inputs)?);
            let types = o.call_method1(intern!(py, "output_types"), arguments)?;
            types.try_iter()?.map(|t| crate::dtype::of_object(&t?)).collect()
        })
    }

    fn describe(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<String, OpError> {
        self.ask(|o| {
            let py = o.py();
            let arguments = (plugin::show(py, fields)?, described(py, inputs)?);
            o.call_method1(intern!(py, "describe"), arguments)?.extract()
        })
    }

    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<kiln::Tensor>, OpError> {
        let bounds = run.outputs.iter().map(bound).collect::<Result<Vec<_>, _>>()?;
        let made = self.ask(|o| {
            let py = o.py();
            let inputs = run.inputs.iter().map(|t| Bound::new(py, Tensor::shared(t)));
            let inputs = PyList::new(py, inputs.collect::<PyResult<Vec<_>>>()?)?;
            let outputs: Vec<_> = run.outputs.iter().map(|t| t.dtype.name()).zip(bounds).collect();
            let fields = plugin::show(py, run.fields)?;
            let made = o.call_method1(intern!(py, "run"), (fields, inputs, outputs))?;
            let made = made.try_iter()?.map(|t| view(&t?, Stream::default())?.copied());
            let made = made.collect::<PyResult<Vec<_>>>()?;
            match made.len() == run.outputs.len() {
                true => Ok(made),
                false => Err(argument(format!(
                    "run returned {} tensors, the layer has {} outputs",
                    made.len(),
                    run.outputs.len()
                ))),
            }
        })?;
        self.same_sizes(&made, run.outputs)?;
        Ok(made)
    }
}

impl Functions {
    /// Refuses two values of one size that the layer finds.
    fn same_sizes(&self, made: &[kiln::Tensor], types: &[TensorType]) -> Result<(), OpError> {
        let mut found = HashMap::new();
        for (t, ty) in made.iter().zip(types) {
            for (&n, d) in t.shape().iter().zip(&ty.dims).filter(|(_, d)| d.as_const().is_none()) {
                let first = *found.entry(d.to_string()).or_insert(n);
                if first != n {
                    return Err(OpError::Value(format!(
                        "plug-in layer {} made {first} and {n} of the size {d}",
                        self.name
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The greatest dimensions of an output.
fn bound(ty: &TensorType) -> Result<Vec<i64>, OpError> {
    let one = |d: &kiln_ir::dim::Dim| {
        let bound = d.as_const().or_else(|| d.upper_bound().and_then(|b| b.as_const()));
        bound.ok_or_else(|| OpError::Value(format!("the size {d} of an output has no bound that is known")))
    };
    ty.dims.iter().map(one).collect()
}

/// Defines a layer by an object with the methods `complete`, `output_types`, `describe` and `run`; one of this name is replaced.
#[pyfunction]
#[pyo3(signature = (name, object, *, namespace = "", version = "1"))]
pub fn define_layer(name: &str, object: Bound<'_, PyAny>, namespace: &str, version: &str) -> PyResult<()> {
    let name = LayerName { space: namespace.into(), name: name.into(), version: version.into() };
    let mut layers = lock(&LAYERS);
    if let Some((_, known)) = layers.iter().find(|l| l.0 == name) {
        let old = lock(&known.object).replace(object.unbind());
        drop(layers);
        drop(old);
        return Ok(());
    }
    let functions = Arc::new(Functions { name: name.clone(), object: Mutex::new(Some(object.unbind())) });
    let record = LayerRecord {
        name: name.clone(),
        doc: String::new(),
        fields: Vec::new(),
        types: Vec::new(),
        shapes: None,
        aliases: Vec::new(),
        workspace: String::new(),
        expression: None,
        tolerance: String::new(),
        kernels: Vec::new(),
        natives: Vec::new(),
        patterns: Vec::new(),
        library: Library { name: LIBRARY.into(), version: version.into(), ..Library::default() },
        functions: functions.clone(),
    };
    record.check().map_err(|e| argument(format!("layer {name}: {e}")))?;
    registry::register(record).map_err(|by| {
        let by = by.library.path.display().to_string();
        argument(format!("layer {name} is there already, of the library {by}"))
    })?;
    layers.push((name, functions));
    Ok(())
}

/// Takes a layer back, so that plans which need it no longer run; returns whether it was there.
#[pyfunction]
#[pyo3(signature = (name, *, namespace = "", version = "1"))]
pub fn undefine_layer(name: &str, namespace: &str, version: &str) -> bool {
    let name = LayerName { space: namespace.into(), name: name.into(), version: version.into() };
    let found = lock(&LAYERS).iter().find(|l| l.0 == name).map(|l| l.1.clone());
    let old = found.and_then(|f| lock(&f.object).take());
    old.is_some()
}
