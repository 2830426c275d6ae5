//! Loops and conditionals.

use super::handles::{Conditional, Layer, Loop, Network, NetworkTensor};
use super::value::Value;
use kiln_network::{LayerId, LoopOutputKind, NetworkError, TensorId, TripLimitKind};
use pyo3::prelude::*;

/// Checks tensors and adds a boundary layer over them.
fn boundary<const N: usize>(
    net: &Py<Network>,
    py: Python<'_>,
    tensors: [&NetworkTensor; N],
    add: impl FnOnce(&mut kiln::Network, [TensorId; N]) -> Result<LayerId, NetworkError>,
) -> PyResult<Layer> {
    let bound = net.bind(py);
    let mut ids = tensors.map(|t| t.id);
    for (id, t) in ids.iter_mut().zip(tensors) {
        *id = bound.get().own(bound, t)?;
    }
    let id = net.get().run(|n| add(n, ids))?;
    Ok(Layer { net: net.clone_ref(py), id })
}

#[pymethods]
impl Loop {
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.net.get().run(|n| Ok(n.loop_name(self.id)?.to_owned()))
    }

    #[setter]
    fn set_name(&self, name: &str) -> PyResult<()> {
        self.net.get().run(|n| n.set_loop_name(self.id, name))
    }

    /// Limits the iterations by a count or a condition.
    fn add_trip_limit(
        &self,
        py: Python<'_>,
        tensor: &NetworkTensor,
        kind: &Bound<'_, PyAny>,
    ) -> PyResult<Layer> {
        let kind: TripLimitKind = Value::read(kind)?;
        boundary(&self.net, py, [tensor], |n, [t]| Ok(n.add_trip_limit(self.id, t, kind)?.id()))
    }

    /// Yields one slice of a tensor an iteration.
    #[pyo3(signature = (tensor, axis = 0, reverse = false))]
    fn add_iterator(
        &self,
        py: Python<'_>,
        tensor: &NetworkTensor,
        axis: usize,
        reverse: bool,
    ) -> PyResult<Layer> {
        boundary(&self.net, py, [tensor], |n, [t]| Ok(n.add_iterator(self.id, t, axis, reverse)?.id()))
    }

    /// Carries a value from iteration to iteration; the next one is input 1.
    fn add_recurrence(&self, py: Python<'_>, initial: &NetworkTensor) -> PyResult<Layer> {
        boundary(&self.net, py, [initial], |n, [t]| Ok(n.add_recurrence(self.id, t)?.id()))
    }

    /// A result of the loop; the length of concatenations is input 1.
    #[pyo3(signature = (tensor, kind, axis = 0))]
    fn add_output(
        &self,
        py: Python<'_>,
        tensor: &NetworkTensor,
        kind: &Bound<'_, PyAny>,
        axis: usize,
    ) -> PyResult<Layer> {
        let kind: LoopOutputKind = Value::read(kind)?;
        boundary(&self.net, py, [tensor], |n, [t]| Ok(n.add_loop_output(self.id, t, kind, axis)?.id()))
    }
}

#[pymethods]
impl Conditional {
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.net.get().run(|n| Ok(n.conditional_name(self.id)?.to_owned()))
    }

    #[setter]
    fn set_name(&self, name: &str) -> PyResult<()> {
        self.net.get().run(|n| n.set_conditional_name(self.id, name))
    }

    /// Sets the condition, a scalar of bool. Once only.
    fn set_condition(&self, py: Python<'_>, condition: &NetworkTensor) -> PyResult<Layer> {
        boundary(&self.net, py, [condition], |n, [t]| Ok(n.set_condition(self.id, t)?.id()))
    }

    /// Passes a tensor on to the branches.
    fn add_input(&self, py: Python<'_>, tensor: &NetworkTensor) -> PyResult<Layer> {
        boundary(&self.net, py, [tensor], |n, [t]| Ok(n.add_if_input(self.id, t)?.id()))
    }

    /// A result: one tensor if the condition is true, another otherwise.
    fn add_output(
        &self,
        py: Python<'_>,
        when_true: &NetworkTensor,
        when_false: &NetworkTensor,
    ) -> PyResult<Layer> {
        boundary(&self.net, py, [when_true, when_false], |n, [a, b]| Ok(n.add_if_output(self.id, a, b)?.id()))
    }
}
