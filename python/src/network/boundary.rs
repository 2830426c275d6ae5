//! Parameters of layers that no table of kinds has: boundaries of control flow, operators, plug-in layers.

use super::handles::fail;
use super::plugin;
use super::value::{Value, unknown};
use kiln_network::{LayerId, LoopIterator, LoopOutput, Operator, Plugin, Recurrence, TripLimit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Attributes of an operator, or fields of a plug-in layer; nothing for other kinds.
pub(super) fn shown<'py>(
    py: Python<'py>,
    net: &mut kiln::Network,
    id: LayerId,
) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(layer) = net.layer_of::<Operator>(id) {
        return plugin::show(py, layer.params().map_err(fail)?.op().attrs());
    }
    match net.layer_of::<Plugin>(id) {
        Ok(layer) => plugin::show(py, layer.params().map_err(fail)?.fields()),
        Err(_) => params(py, net, id),
    }
}

/// Parameters of boundary layers.
fn params<'py>(py: Python<'py>, net: &mut kiln::Network, id: LayerId) -> PyResult<Bound<'py, PyDict>> {
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
