//! Values of layers' parameters in Python: numbers, lists, names of enumerations, element types, constants.

use super::weights;
use kiln::{DType, Tensor};
use kiln_network::{
    ActivationKind, AttentionNorm, BoundingBoxFormat, CausalMask, ElementwiseOp, FillOp, FillValue,
    GatherMode, InterpolationMode, MatrixOp, PaddingMode, PoolingKind, ReduceOp, ResizeCoordinates,
    ResizeRounding, ResizeSelector, ResizeTarget, SampleMode, ScaleMode, ScatterMode, TopKOp, UnaryOp,
};
use kiln_network::{LoopOutputKind, TripLimitKind};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A parameter that goes between Python and a layer.
pub(super) trait Value: Sized {
    /// Reads it from Python.
    fn read(v: &Bound<'_, PyAny>) -> PyResult<Self>;
    /// Shows it to Python.
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// Types that PyO3 converts both ways.
macro_rules! plain {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn read(v: &Bound<'_, PyAny>) -> PyResult<$t> {
                v.extract()
            }
            fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.clone().into_py_any(py)
            }
        }
    )*};
}
plain!(i64, u32, usize, f64, bool, String, Vec<i64>, Vec<usize>, Vec<f32>);

impl<T: Value> Value for Option<T> {
    fn read(v: &Bound<'_, PyAny>) -> PyResult<Self> {
        if v.is_none() { Ok(None) } else { T::read(v).map(Some) }
    }
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.as_ref().map_or_else(|| Ok(py.None()), |v| v.show(py))
    }
}

impl Value for Tensor {
    fn read(v: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        weights::read(v)
    }
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        weights::show(py, self)
    }
}

impl Value for DType {
    fn read(v: &Bound<'_, PyAny>) -> PyResult<DType> {
        crate::dtype::of_object(v)
    }
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.name().into_py_any(py)
    }
}

impl Value for [MatrixOp; 2] {
    fn read(v: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok([MatrixOp::read(&v.get_item(0)?)?, MatrixOp::read(&v.get_item(1)?)?])
    }
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        (self[0].show(py)?, self[1].show(py)?).into_py_any(py)
    }
}

impl Value for FillValue {
    fn read(v: &Bound<'_, PyAny>) -> PyResult<Self> {
        v.extract::<i64>().map(FillValue::Int).or_else(|_| v.extract().map(FillValue::Float))
    }
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            FillValue::Int(v) => v.into_py_any(py),
            FillValue::Float(v) => v.into_py_any(py),
        }
    }
}

/// `None`, `("dims", [...])` or `("scales", [...])`.
impl Value for ResizeTarget {
    fn read(v: &Bound<'_, PyAny>) -> PyResult<Self> {
        if v.is_none() {
            return Ok(ResizeTarget::Same);
        }
        let (what, list): (String, Bound<'_, PyAny>) = v.extract()?;
        match what.as_str() {
            "dims" => Ok(ResizeTarget::Dims(list.extract()?)),
            "scales" => Ok(ResizeTarget::Scales(list.extract()?)),
            _ => Err(unknown("a size", &what, &["dims", "scales"])),
        }
    }
    fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            ResizeTarget::Same => Ok(py.None()),
            ResizeTarget::Dims(v) => ("dims", v.clone()).into_py_any(py),
            ResizeTarget::Scales(v) => ("scales", v.clone()).into_py_any(py),
        }
    }
}

/// The error for a name outside a closed list.
pub(super) fn unknown(what: &str, found: &str, known: &[&str]) -> PyErr {
    PyValueError::new_err(format!("\"{found}\" is not {what}; wants one of {}", known.join(", ")))
}

fn named<T: Copy>(v: &Bound<'_, PyAny>, what: &str, list: &[(&str, T)]) -> PyResult<T> {
    let text: String = v.extract()?;
    let found = list.iter().find(|(name, _)| *name == text).map(|&(_, value)| value);
    found.ok_or_else(|| unknown(what, &text, &list.iter().map(|(name, _)| *name).collect::<Vec<_>>()))
}

/// Enumerations by the names of their members.
macro_rules! names {
    ($($t:ident, $what:literal: { $($name:literal $member:ident),* })*) => {$(
        impl Value for $t {
            fn read(v: &Bound<'_, PyAny>) -> PyResult<$t> {
                named(v, $what, &[$(($name, $t::$member)),*])
            }
            fn show(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                match self { $($t::$member => $name),* }.into_py_any(py)
            }
        }
    )*};
}

kiln_kinds::enum_names!(names);
