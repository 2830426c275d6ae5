//! The objects of the network-definition API: a network, and places in it by their ids. Their methods are in files of their own.

use crate::errors::Raise;
use crate::scope::try_lock;
use kiln_network::{IfId, LayerId, LoopId, NetworkError, TensorId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Mutex;
use std::time::Duration;

/// Time between two looks at a network that another thread uses.
const WAIT: Duration = Duration::from_micros(200);

/// A network that is written layer by layer. `add_<kind>(tensor, …, parameter=…)` adds a layer of any kind.
#[pyclass(frozen, module = "kiln._kiln")]
#[derive(Debug)]
pub struct Network {
    /// The network; builds lock it for as long as they lower it.
    pub inner: Mutex<kiln::Network>,
}

impl Network {
    /// Calls `f` with the network. Whoever has it may wait for the interpreter, to call a layer of Python. Waiting for it leaves
    /// the interpreter to others.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut kiln::Network) -> T) -> T {
        loop {
            if let Some(mut network) = try_lock(&self.inner) {
                return f(&mut network);
            }
            Python::attach(|py| py.detach(|| std::thread::sleep(WAIT)));
        }
    }

    pub(super) fn run<T>(
        &self,
        f: impl FnOnce(&mut kiln::Network) -> Result<T, NetworkError>,
    ) -> PyResult<T> {
        self.with(f).map_err(fail)
    }
}

impl Network {
    /// The id of a tensor of this network.
    pub(super) fn own(&self, slf: &Bound<'_, Network>, tensor: &NetworkTensor) -> PyResult<TensorId> {
        if tensor.net.is(slf) {
            return Ok(tensor.id);
        }
        let name = tensor.get(|n| n.tensor_name(tensor.id).to_owned());
        Err(PyValueError::new_err(format!("tensor \"{name}\" is of another network")))
    }

    /// The id of a tensor, or none for None.
    pub(super) fn id_or_none(
        &self,
        slf: &Bound<'_, Network>,
        v: &Bound<'_, PyAny>,
    ) -> PyResult<Option<TensorId>> {
        if v.is_none() {
            return Ok(None);
        }
        self.own(slf, &v.cast::<NetworkTensor>()?.borrow()).map(Some)
    }
}

/// A tensor of a network.
#[pyclass(frozen, module = "kiln._kiln")]
#[derive(Debug)]
pub struct NetworkTensor {
    pub(super) net: Py<Network>,
    pub(super) id: TensorId,
}

impl NetworkTensor {
    pub(super) fn get<T>(&self, f: impl FnOnce(&mut kiln::Network) -> T) -> T {
        self.net.get().with(f)
    }
}

/// A layer of a network.
#[pyclass(frozen, module = "kiln._kiln")]
#[derive(Debug)]
pub struct Layer {
    pub(super) net: Py<Network>,
    pub(super) id: LayerId,
}

/// A loop: its limits, iterators, recurrences and outputs. What depends on them is inside.
#[pyclass(frozen, module = "kiln._kiln")]
#[derive(Debug)]
pub struct Loop {
    pub(super) net: Py<Network>,
    pub(super) id: LoopId,
}

/// A conditional: its condition, inputs and outputs. What an output needs and depends on an input is inside.
#[pyclass(frozen, module = "kiln._kiln")]
#[derive(Debug)]
pub struct Conditional {
    pub(super) net: Py<Network>,
    pub(super) id: IfId,
}

/// The exception for an error of the network.
pub(super) fn fail(e: NetworkError) -> PyErr {
    Python::attach(|py| kiln::Error::from(e).raise(py))
}
