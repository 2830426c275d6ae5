//! The table of layer kinds: default parameters of each, and the names that its parameters have in Python.

use super::boundary::shown;
use super::handles::fail;
use super::value::{Value, unknown};
use kiln::DType;
use kiln_network::*;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// A kind of layer whose parameters Python reads and writes by name.
pub(super) trait Params: LayerDef + Clone {
    /// The parameters of a new layer, before any is given.
    fn new() -> PyResult<Self>;
    /// Sets one; false where there is none of this name.
    fn set(&mut self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool>;
    /// Shows all of them.
    fn all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;
    /// Names of the parameters.
    const KEYS: &'static [&'static str];
}

/// Sets all that is given, each of a known name.
fn apply<P: Params>(p: &mut P, kind: &str, given: &Bound<'_, PyDict>) -> PyResult<()> {
    for (key, value) in given {
        let key = key.cast::<PyString>()?.to_string();
        if !p.set(&key, &value)? {
            return Err(unknown(&format!("a parameter of {kind} layers"), &key, P::KEYS));
        }
    }
    Ok(())
}

macro_rules! kinds {
    ($($name:literal $t:ty = $default:expr => { $($key:literal $($field:ident).+),* })*) => {
        $(impl Params for $t {
            fn new() -> PyResult<Self> {
                Ok($default)
            }
            fn set(&mut self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
                match key {
                    $($key => {
                        self.$($field).+ = Value::read(value)?;
                        Ok(true)
                    })*
                    _ => {
                        let _ = value;
                        Ok(false)
                    }
                }
            }
            fn all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let all = PyDict::new(py);
                $(all.set_item($key, self.$($field).+.show(py)?)?;)*
                Ok(all)
            }
            const KEYS: &'static [&'static str] = &[$($key),*];
        })*

        /// The kinds.
        pub(super) const NAMES: &[&str] = &[$($name),*];

        /// Adds a layer of a kind.
        pub(super) fn add(
            net: &mut Network,
            kind: &str,
            inputs: &[Option<TensorId>],
            given: &Bound<'_, PyDict>,
        ) -> PyResult<LayerId> {
            match kind {
                $($name => {
                    let mut p = <$t as Params>::new()?;
                    apply(&mut p, kind, given)?;
                    Ok(net.add_kind_opt(p, inputs).map_err(fail)?.id())
                })*
                _ => Err(unknown("a kind of layer", kind, NAMES)),
            }
        }

        /// Changes parameters and inputs of a layer, all at once; on an error nothing has changed.
        pub(super) fn set(
            net: &mut Network,
            id: LayerId,
            given: &Bound<'_, PyDict>,
            inputs: &[(usize, TensorId)],
        ) -> PyResult<()> {
            match net.layer(id).map_err(fail)?.kind() {
                $($name => {
                    let layer = net.layer_of::<$t>(id).map_err(fail)?;
                    let mut p = layer.params().map_err(fail)?.clone();
                    apply(&mut p, $name, given)?;
                    layer.change_with(inputs, |old| *old = p).map_err(fail)?;
                    Ok(())
                })*
                kind => Err(unknown("a kind of layer with parameters that can be changed", kind, NAMES)),
            }
        }

        /// The parameters of a layer by name; those of an operator are its attributes.
        pub(super) fn all<'py>(py: Python<'py>, net: &mut Network, id: LayerId) -> PyResult<Bound<'py, PyDict>> {
            match net.layer(id).map_err(fail)?.kind() {
                $($name if net.layer_of::<$t>(id).is_ok() => {
                    net.layer_of::<$t>(id).map_err(fail)?.params().map_err(fail)?.all(py)
                })*
                _ => shown(py, net, id),
            }
        }
    };
}

kiln_kinds::layer_kinds!(kinds);

/// No elements, to be replaced.
fn empty() -> PyResult<kiln::Tensor> {
    kiln::Tensor::zeros(DType::F32, &[0]).map_err(|e| pyo3::exceptions::PyMemoryError::new_err(e.to_string()))
}
