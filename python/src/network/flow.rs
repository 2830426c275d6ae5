//! Loops and conditionals.

use super::value::{Value, unknown};
use super::{Layer, Network, NetworkTensor, fail};
use kiln_network::{
    IfId, LayerId, LoopId, LoopIterator, LoopOutput, LoopOutputKind, NetworkError, Recurrence, TensorId,
};
use kiln_network::{TripLimit, TripLimitKind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

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

/// Parameters of boundary layers.
pub(super) fn params<'py>(
    py: Python<'py>,
    net: &mut kiln::Network,
    id: LayerId,
) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    if let Ok(l) = net.layer_of::<LoopIterator>(id) {
        let p = l.params().map_err(fail)?;
        all.set_item("axis", p.axis)?;
        all.set_item("reverse", p.reverse)?;
    } else if let Ok(l) = net.layer_of::<LoopOutput>(id) {
        let p = l.params().map_err(fail)?;
        all.set_item("axis", p.axis)?;
        all.set_item("kind", p.kind().show(py)?)?;
    } else if let Ok(l) = net.layer_of::<TripLimit>(id) {
        all.set_item("kind", l.params().map_err(fail)?.kind().show(py)?)?;
    } else if let Ok(l) = net.layer_of::<Recurrence>(id) {
        all.set_item("varying", l.params().map_err(fail)?.varying())?;
    }
    Ok(all)
}

/// Changes parameters of boundary layers; false for other kinds.
pub(super) fn set(net: &mut kiln::Network, id: LayerId, given: &Bound<'_, PyDict>) -> PyResult<bool> {
    const KNOWN: [&str; 3] = ["axis", "reverse", "varying"];
    let kind = net.layer(id).map_err(fail)?.kind();
    if !["iterator", "loop_output", "recurrence", "trip_limit", "condition", "if_input", "if_output"]
        .contains(&kind)
    {
        return Ok(false);
    }
    for (key, value) in given {
        let key: String = key.extract()?;
        match (kind, key.as_str()) {
            ("iterator", "axis") => {
                let axis = value.extract()?;
                net.layer_of::<LoopIterator>(id).and_then(|l| l.set_axis(axis)).map_err(fail)?;
            }
            ("iterator", "reverse") => {
                let reverse = value.extract()?;
                net.layer_of::<LoopIterator>(id).and_then(|l| l.set_reverse(reverse)).map_err(fail)?;
            }
            ("loop_output", "axis") => {
                let axis = value.extract()?;
                net.layer_of::<LoopOutput>(id).and_then(|l| l.set_axis(axis)).map_err(fail)?;
            }
            ("recurrence", "varying") => {
                let axes: Vec<usize> = value.extract()?;
                net.layer_of::<Recurrence>(id).and_then(|l| l.set_varying(&axes)).map_err(fail)?;
            }
            _ => return Err(unknown(&format!("a parameter of {kind} layers"), &key, &KNOWN)),
        }
    }
    Ok(true)
}
