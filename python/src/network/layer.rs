//! Layers of a network: their tensors, parameters, types and names.

use super::handles::{Layer, Network, NetworkTensor, fail};
use super::value::{Value, unknown};
use super::{boundary, kinds};
use kiln::{DType, WeightsRole};
use kiln_network::{NetworkError, TensorId};
use pyo3::prelude::*;
use pyo3::types::PyDict;

impl Layer {
    fn run<T>(&self, f: impl FnOnce(&mut kiln::Network) -> Result<T, NetworkError>) -> PyResult<T> {
        self.net.get().run(f)
    }

    fn fixed(&self, given: &Bound<'_, PyDict>) -> PyResult<()> {
        self.net.get().with(|n| {
            let layer = n.layer(self.id).map_err(fail)?;
            for (kind, key, input) in kiln_kinds::TAKEN_OVER {
                let taken = layer.inputs().get(input).is_some_and(Option::is_some);
                if taken && layer.kind() == kind && given.contains(key)? {
                    let (layer, what) = (layer.name().to_owned(), key.to_owned());
                    return Err(fail(NetworkError::Irreversible { layer, what }));
                }
            }
            Ok(())
        })
    }
}

/// A layer's result as a tensor of its network.
fn output(net: &Py<Network>, py: Python<'_>, id: TensorId) -> NetworkTensor {
    NetworkTensor { net: net.clone_ref(py), id }
}

fn role(name: &str) -> PyResult<WeightsRole> {
    let known: Vec<&str> = WeightsRole::ALL.iter().map(|r| r.name()).collect();
    let found = WeightsRole::ALL.into_iter().find(|r| r.name() == name);
    found.ok_or_else(|| unknown("a role of weights", name, &known))
}

#[pymethods]
impl Layer {
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.run(|n| Ok(n.layer(self.id)?.name().to_owned()))
    }

    #[setter]
    fn set_name(&self, name: &str) -> PyResult<()> {
        self.run(|n| n.layer(self.id)?.set_name(name).map(drop))
    }

    /// Kind of the layer: one of those that `add` takes, "plugin", a boundary of control flow, or an operator's name.
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        self.run(|n| Ok(n.layer(self.id)?.kind()))
    }

    /// Position among the network's layers.
    #[getter]
    fn index(&self) -> usize {
        self.net.get().with(|n| n.layer_ids().position(|id| id == self.id)).unwrap_or(0)
    }

    /// Inputs; None for those that are absent.
    #[getter]
    fn inputs(&self, py: Python<'_>) -> PyResult<Vec<Option<NetworkTensor>>> {
        let ids = self.run(|n| Ok(n.layer(self.id)?.inputs().to_vec()))?;
        Ok(ids.into_iter().map(|id| id.map(|id| output(&self.net, py, id))).collect())
    }

    #[getter]
    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<NetworkTensor>> {
        let ids = self.run(|n| Ok(n.layer(self.id)?.outputs().to_vec()))?;
        Ok(ids.into_iter().map(|id| output(&self.net, py, id)).collect())
    }

    /// One of the outputs.
    #[pyo3(signature = (index = 0))]
    fn output(&self, py: Python<'_>, index: usize) -> PyResult<NetworkTensor> {
        let id = self.run(|n| n.layer(self.id)?.output(index))?;
        Ok(output(&self.net, py, id))
    }

    /// Replaces inputs, all at once and with parameters where some are given: `{index: tensor}`.
    #[pyo3(signature = (inputs, **params))]
    fn set_inputs(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyDict>,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let net = self.net.bind(py);
        let mut new = Vec::new();
        for (index, tensor) in inputs {
            let tensor = tensor.cast::<NetworkTensor>()?;
            new.push((index.extract::<usize>()?, net.get().own(net, tensor.get())?));
        }
        match params {
            Some(given) => net.get().with(|n| kinds::set(n, self.id, given, &new)),
            None => self.run(|n| n.layer(self.id)?.set_inputs(&new).map(drop)),
        }
    }

    /// The parameters by name.
    #[getter]
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.net.get().with(|n| kinds::all(py, n, self.id))
    }

    /// Changes parameters, all at once.
    #[pyo3(signature = (**params))]
    fn set(&self, py: Python<'_>, params: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let empty = PyDict::new(py);
        let given = params.unwrap_or(&empty);
        self.fixed(given)?;
        self.net.get().with(|n| {
            if boundary::set(n, self.id, given)? { Ok(()) } else { kinds::set(n, self.id, given, &[]) }
        })
    }

    /// Namespace, name and version of the plug-in layer that this is; None of other layers.
    #[getter]
    fn plugin(&self) -> Option<(String, String, String)> {
        self.net.get().with(|n| {
            let layer = n.layer_of::<kiln_network::Plugin>(self.id).ok()?;
            let name = &layer.params().ok()?.record().name;
            Some((name.space.clone(), name.name.clone(), name.version.clone()))
        })
    }

    /// Replaces the fields of a plug-in layer.
    fn set_fields(&self, fields: &Bound<'_, PyDict>) -> PyResult<()> {
        let fields = super::plugin::fields(fields)?;
        self.run(|n| n.layer_of::<kiln_network::Plugin>(self.id)?.set_fields(fields).map(drop))
    }

    /// Makes the new dimension of a loop's output as long as there are iterations.
    fn set_exact_length(&self) -> PyResult<()> {
        self.run(|n| n.layer_of::<kiln_network::LoopOutput>(self.id)?.set_exact_length().map(drop))
    }

    /// Quantizes an attention's normalized scores to a type, by a scale.
    fn set_normalization_quantize(
        &self,
        py: Python<'_>,
        to: &Bound<'_, PyAny>,
        scale: &NetworkTensor,
    ) -> PyResult<()> {
        let (net, to) = (self.net.bind(py), Value::read(to)?);
        let scale = net.get().own(net, scale)?;
        self.run(|n| {
            n.layer_of::<kiln_network::Attention>(self.id)?.set_normalization_quantize(to, scale).map(drop)
        })
    }

    /// Type to compute in, if one was asked for.
    #[getter]
    fn precision(&self) -> PyResult<Option<&'static str>> {
        self.run(|n| Ok(n.layer(self.id)?.precision().map(DType::name)))
    }

    #[setter]
    fn set_precision(&self, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let dtype = dtype.map(Value::read).transpose()?;
        self.run(|n| match dtype {
            Some(dtype) => n.layer(self.id)?.set_precision(dtype).map(drop),
            None => n.layer(self.id).map(|l| {
                l.reset_precision();
            }),
        })
    }

    /// Type that was asked for an output.
    fn output_type(&self, index: usize) -> PyResult<Option<&'static str>> {
        self.run(|n| Ok(n.layer(self.id)?.output_type(index).map(DType::name)))
    }

    /// Asks for the type of an output; None takes that back.
    fn set_output_type(&self, index: usize, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let dtype = dtype.map(Value::read).transpose()?;
        self.run(|n| match dtype {
            Some(dtype) => n.layer(self.id)?.set_output_type(index, dtype).map(drop),
            None => n.layer(self.id)?.reset_output_type(index).map(drop),
        })
    }

    /// Text that the inspector shows.
    #[getter]
    fn metadata(&self) -> PyResult<String> {
        self.run(|n| Ok(n.layer(self.id)?.metadata().to_owned()))
    }

    #[setter]
    fn set_metadata(&self, text: &str) -> PyResult<()> {
        self.run(|n| {
            n.layer(self.id)?.set_metadata(text);
            Ok(())
        })
    }

    /// Names weights that the layer holds, for refits; None takes that back.
    fn set_weights_name(&self, role: &str, name: Option<&str>) -> PyResult<()> {
        let role = self::role(role)?;
        self.run(|n| match name {
            Some(name) => n.layer(self.id)?.set_weights_name(role, name).map(drop),
            None => n.layer(self.id)?.reset_weights_name(role).map(drop),
        })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Layer>().is_ok_and(|o| o.get().net.is(&self.net) && o.get().id == self.id)
    }

    fn __hash__(&self) -> isize {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut h = DefaultHasher::new();
        (self.net.as_ptr() as usize, self.id).hash(&mut h);
        h.finish() as isize
    }

    fn __repr__(&self) -> PyResult<String> {
        self.run(|n| n.layer(self.id).map(|l| format!("Layer({:?}, {})", l.name(), l.kind())))
    }
}
