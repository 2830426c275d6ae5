//! Networks: their inputs, outputs and layers.

use super::handles::{Conditional, Layer, Loop, Network, NetworkTensor};
use super::{kinds, model, plugin, value, weights};
use kiln_network::{Activation, TensorId, Typing};
use pyo3::exceptions::{PyAttributeError, PyIndexError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Mutex;

#[pymethods]
impl Network {
    #[new]
    #[pyo3(signature = (name = "", *, strongly_typed = false))]
    fn new(name: &str, strongly_typed: bool) -> Network {
        let make = if strongly_typed { kiln::Network::strongly_typed } else { kiln::Network::new };
        Network { inner: Mutex::new(make(name)) }
    }

    #[getter]
    fn name(&self) -> String {
        self.with(|n| n.name().to_owned())
    }

    #[setter]
    fn set_name(&self, name: &str) {
        self.with(|n| n.set_name(name));
    }

    /// Whether types are as written.
    #[getter]
    fn strongly_typed(&self) -> bool {
        self.with(|n| n.typing() == Typing::Strong)
    }

    /// Adds an input; -1 stands for a dimension that is not known yet.
    fn add_input(
        slf: Py<Self>,
        name: &str,
        dtype: &Bound<'_, PyAny>,
        shape: Vec<i64>,
    ) -> PyResult<NetworkTensor> {
        let dtype = value::Value::read(dtype)?;
        let id = slf.get().run(|n| n.add_input(name, kiln::TensorType::new(dtype, shape)))?;
        Ok(NetworkTensor { net: slf, id })
    }

    /// Adds a constant that is not a layer; a name makes it refittable.
    #[pyo3(signature = (weights, name = None))]
    fn add_weights(slf: Py<Self>, weights: &Bound<'_, PyAny>, name: Option<&str>) -> PyResult<NetworkTensor> {
        let tensor = weights::read(weights)?;
        let id = slf.get().run(|n| n.add_weights(name, tensor))?;
        Ok(NetworkTensor { net: slf, id })
    }

    /// Adds a layer of a kind, by its inputs (tensors or None) and parameters.
    #[pyo3(signature = (kind, *inputs, **params))]
    fn add(
        slf: Bound<'_, Self>,
        kind: &str,
        inputs: &Bound<'_, PyTuple>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Layer> {
        let given = params.map_or_else(|| Ok(PyDict::new(slf.py())), |p| p.copy())?;
        let inputs: Vec<Option<TensorId>> =
            inputs.iter().map(|t| slf.get().id_or_none(&slf, &t)).collect::<PyResult<_>>()?;
        if kind == "activation" && !given.contains("alpha")? && !given.contains("beta")? {
            let mut def = <Activation as kinds::Params>::new()?;
            if let Some(v) = given.get_item("type")? {
                def.kind = value::Value::read(&v)?;
            }
            let (alpha, beta) = def.kind.defaults();
            given.set_item("alpha", alpha)?;
            given.set_item("beta", beta)?;
        }
        let id = slf.get().with(|n| kinds::add(n, kind, &inputs, &given))?;
        Ok(Layer { net: slf.unbind(), id })
    }

    /// `add_<kind>` is [`Network::add`] with the kind given.
    fn __getattr__(slf: Bound<'_, Self>, name: &str) -> PyResult<Py<PyAny>> {
        let kind = name.strip_prefix("add_").filter(|k| kinds::NAMES.contains(k));
        let Some(kind) = kind else {
            return Err(PyAttributeError::new_err(format!("networks have no attribute {name}")));
        };
        let partial = slf.py().import("functools")?.getattr("partial")?;
        Ok(partial.call1((slf.getattr("add")?, kind))?.unbind())
    }

    /// All inputs.
    #[getter]
    fn inputs(slf: Py<Self>, py: Python<'_>) -> Vec<NetworkTensor> {
        let ids = slf.get().with(|n| n.inputs().to_vec());
        tensors(py, &slf, ids)
    }

    /// All outputs, those for shapes not among them.
    #[getter]
    fn outputs(slf: Py<Self>, py: Python<'_>) -> Vec<NetworkTensor> {
        let ids = slf.get().with(|n| n.outputs().to_vec());
        tensors(py, &slf, ids)
    }

    /// Outputs whose elements are known before a run.
    #[getter]
    fn outputs_for_shapes(slf: Py<Self>, py: Python<'_>) -> Vec<NetworkTensor> {
        let ids = slf.get().with(|n| n.outputs_for_shapes().to_vec());
        tensors(py, &slf, ids)
    }

    /// Tensors that runs report to a debug listener.
    #[getter]
    fn debug_tensors(slf: Py<Self>, py: Python<'_>) -> Vec<NetworkTensor> {
        let ids = slf.get().with(|n| n.debug_tensors().to_vec());
        tensors(py, &slf, ids)
    }

    /// All layers, in the order in which they were added.
    #[getter]
    fn layers(slf: Py<Self>, py: Python<'_>) -> Vec<Layer> {
        let ids: Vec<_> = slf.get().with(|n| n.layer_ids().collect());
        ids.into_iter().map(|id| Layer { net: slf.clone_ref(py), id }).collect()
    }

    fn __repr__(&self) -> String {
        self.with(|n| format!("kiln.Network({:?}, {} layers)", n.name(), n.layer_ids().count()))
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kiln._html")?.call_method1("network", (slf,))
    }

    /// Number of layers.
    fn __len__(&self) -> usize {
        self.with(|n| n.layer_ids().count())
    }

    /// A layer by its position.
    fn __getitem__(slf: Py<Self>, index: usize) -> PyResult<Layer> {
        let found = slf.get().with(|n| n.layer_ids().nth(index));
        let none = || PyIndexError::new_err(format!("there is no layer {index}"));
        found.map(|id| Layer { net: slf, id }).ok_or_else(none)
    }

    /// The tensor of this name.
    fn find_tensor(slf: Py<Self>, name: &str) -> Option<NetworkTensor> {
        let id = slf.get().with(|n| n.find(name))?;
        Some(NetworkTensor { net: slf, id })
    }

    /// The layer of this name.
    fn find_layer(slf: Py<Self>, name: &str) -> Option<Layer> {
        let id = slf.get().with(|n| n.find_layer(name))?;
        Some(Layer { net: slf, id })
    }

    /// Makes a tensor an output, under this name or its own.
    #[pyo3(signature = (tensor, name = ""))]
    fn mark_output(slf: &Bound<'_, Self>, tensor: &NetworkTensor, name: &str) -> PyResult<()> {
        let id = slf.get().own(slf, tensor)?;
        slf.get().run(|n| n.mark_output(id, name))
    }

    /// Takes an output back.
    fn unmark_output(slf: &Bound<'_, Self>, tensor: &NetworkTensor) -> PyResult<()> {
        let id = slf.get().own(slf, tensor)?;
        slf.get().run(|n| n.unmark_output(id))
    }

    /// Makes a tensor an output whose elements are known before a run.
    fn mark_output_for_shapes(slf: &Bound<'_, Self>, tensor: &NetworkTensor) -> PyResult<()> {
        let id = slf.get().own(slf, tensor)?;
        slf.get().run(|n| n.mark_output_for_shapes(id))
    }

    /// Takes such an output back; returns whether it was one.
    fn unmark_output_for_shapes(slf: &Bound<'_, Self>, tensor: &NetworkTensor) -> PyResult<bool> {
        let id = slf.get().own(slf, tensor)?;
        Ok(slf.get().with(|n| n.unmark_output_for_shapes(id)))
    }

    /// Lets runs report a tensor to a debug listener.
    fn mark_debug(slf: &Bound<'_, Self>, tensor: &NetworkTensor) -> PyResult<()> {
        let id = slf.get().own(slf, tensor)?;
        slf.get().run(|n| n.mark_debug(id))
    }

    /// Ends that; returns whether it was marked.
    fn unmark_debug(slf: &Bound<'_, Self>, tensor: &NetworkTensor) -> PyResult<bool> {
        let id = slf.get().own(slf, tensor)?;
        Ok(slf.get().with(|n| n.unmark_debug(id)))
    }

    /// Removes an input or a constant that nothing reads.
    fn remove_tensor(slf: &Bound<'_, Self>, tensor: &NetworkTensor) -> PyResult<()> {
        let id = slf.get().own(slf, tensor)?;
        slf.get().run(|n| n.remove_tensor(id))
    }

    /// Adds a loop.
    fn add_loop(slf: Py<Self>) -> PyResult<Loop> {
        let id = slf.get().run(|n| n.add_loop())?;
        Ok(Loop { net: slf, id })
    }

    /// Adds a conditional.
    fn add_conditional(slf: Py<Self>) -> PyResult<Conditional> {
        let id = slf.get().run(|n| n.add_if_conditional())?;
        Ok(Conditional { net: slf, id })
    }

    /// Adds a layer that a plug-in defines.
    #[pyo3(signature = (inputs, name, *, namespace = "", version = None, fields = None))]
    fn add_plugin(
        slf: Bound<'_, Self>,
        inputs: Vec<PyRef<'_, NetworkTensor>>,
        name: &str,
        namespace: &str,
        version: Option<&str>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Layer> {
        let ids: Vec<TensorId> = inputs.iter().map(|t| slf.get().own(&slf, t)).collect::<PyResult<_>>()?;
        let spec = plugin::spec(namespace, name, version, fields)?;
        let id = slf.get().run(|n| Ok(n.add_plugin(&ids, spec)?.id()))?;
        Ok(Layer { net: slf.unbind(), id })
    }

    /// Replaces what is in this network by an ONNX model; returns the importer's notes. `folder` holds external data.
    #[pyo3(signature = (data, folder = None))]
    fn parse_onnx(
        &self,
        py: Python<'_>,
        data: &[u8],
        folder: Option<std::path::PathBuf>,
    ) -> PyResult<Vec<String>> {
        let (network, notes) =
            py.detach(|| model::import(data, folder.as_deref())).map_err(|e| model::fail(py, &e))?;
        self.with(|n| *n = network);
        Ok(notes)
    }
}

fn tensors(py: Python<'_>, net: &Py<Network>, ids: Vec<TensorId>) -> Vec<NetworkTensor> {
    ids.into_iter().map(|id| NetworkTensor { net: net.clone_ref(py), id }).collect()
}
