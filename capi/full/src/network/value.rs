//! Parameters of layers out of the values that a program set.

use super::params::Param;
use kiln::{DType, Tensor};
use kiln_ir::attr::{Attr, Attrs};
use kiln_kinds::kiln_network::{
    ActivationKind, AttentionNorm, BoundingBoxFormat, CausalMask, ElementwiseOp, FillOp, FillValue,
    GatherMode, InterpolationMode, LoopOutputKind, MatrixOp, PaddingMode, PoolingKind, ReduceOp,
    ResizeCoordinates, ResizeRounding, ResizeSelector, ResizeTarget, SampleMode, ScaleMode, ScatterMode,
    TopKOp, TripLimitKind, UnaryOp,
};
use std::collections::BTreeMap;

/// A parameter of a layer.
pub(crate) trait Value: Sized {
    /// Reads it; the error says what was found and wanted.
    fn read(v: &Param) -> Result<Self, String>;
}

fn wanted<T>(v: &Param, what: &str) -> Result<T, String> {
    Err(format!("it is {}, wanted {what}", v.describe()))
}

impl Value for i64 {
    fn read(v: &Param) -> Result<i64, String> {
        match v {
            Param::Int(v) => Ok(*v),
            _ => wanted(v, "an integer"),
        }
    }
}

/// Integers that i64 is a superset of.
macro_rules! integers {
    ($($t:ty, $what:literal);*) => {$(
        impl Value for $t {
            fn read(v: &Param) -> Result<$t, String> {
                i64::read(v)?.try_into().or_else(|_| wanted(v, $what))
            }
        }
        impl Value for Vec<$t> {
            fn read(v: &Param) -> Result<Vec<$t>, String> {
                let all: Result<_, _> = Vec::<i64>::read(v)?.into_iter().map(<$t>::try_from).collect();
                all.or_else(|_| wanted(v, concat!("a list, each ", $what)))
            }
        }
    )*};
}
integers!(usize, "an integer that is not negative"; u32, "an integer of 32 bits that is not negative");

impl Value for f64 {
    fn read(v: &Param) -> Result<f64, String> {
        match v {
            Param::Float(v) => Ok(*v),
            Param::Int(v) => Ok(*v as f64),
            _ => wanted(v, "a number"),
        }
    }
}

impl Value for bool {
    fn read(v: &Param) -> Result<bool, String> {
        match v {
            Param::Bool(v) => Ok(*v),
            Param::Int(0) => Ok(false),
            Param::Int(1) => Ok(true),
            _ => wanted(v, "a switch"),
        }
    }
}

impl Value for String {
    fn read(v: &Param) -> Result<String, String> {
        match v {
            Param::Text(v) => Ok(v.clone()),
            _ => wanted(v, "a text"),
        }
    }
}

impl Value for Vec<i64> {
    fn read(v: &Param) -> Result<Vec<i64>, String> {
        match v {
            Param::Ints(v) => Ok(v.clone()),
            _ => wanted(v, "a list of integers"),
        }
    }
}

impl Value for Vec<f32> {
    fn read(v: &Param) -> Result<Vec<f32>, String> {
        match v {
            Param::Floats(v) => Ok(v.iter().map(|&x| x as f32).collect()),
            Param::Ints(v) => Ok(v.iter().map(|&x| x as f32).collect()),
            _ => wanted(v, "a list of numbers"),
        }
    }
}

impl<T: Value> Value for Option<T> {
    fn read(v: &Param) -> Result<Self, String> {
        T::read(v).map(Some)
    }
}

impl Value for Tensor {
    fn read(v: &Param) -> Result<Tensor, String> {
        match v {
            Param::Tensor(v) => Ok(v.clone()),
            _ => wanted(v, "a tensor"),
        }
    }
}

impl Value for DType {
    fn read(v: &Param) -> Result<DType, String> {
        match v {
            Param::Type(v) => Ok(*v),
            Param::Text(name) => name.parse::<DType>().map_err(|e| e.to_string()),
            _ => wanted(v, "an element type"),
        }
    }
}

/// Two names with a comma between them.
impl Value for [MatrixOp; 2] {
    fn read(v: &Param) -> Result<Self, String> {
        let text = String::read(v)?;
        let Some((a, b)) = text.split_once(',') else {
            return wanted(v, "two operations, as \"none,transpose\"");
        };
        let one = |name: &str| MatrixOp::read(&Param::Text(name.trim().to_owned()));
        Ok([one(a)?, one(b)?])
    }
}

impl Value for FillValue {
    fn read(v: &Param) -> Result<Self, String> {
        match v {
            Param::Int(v) => Ok(FillValue::Int(*v)),
            Param::Float(v) => Ok(FillValue::Float(*v)),
            _ => wanted(v, "a number"),
        }
    }
}

/// Integers are sizes, other numbers scales.
impl Value for ResizeTarget {
    fn read(v: &Param) -> Result<Self, String> {
        match v {
            Param::Ints(_) => Value::read(v).map(ResizeTarget::Dims),
            Param::Floats(_) => Value::read(v).map(ResizeTarget::Scales),
            _ => wanted(v, "sizes (integers) or scales (other numbers)"),
        }
    }
}

/// Enumerations by the names of their members.
macro_rules! names {
    ($($t:ident, $what:literal: { $($name:literal $member:ident),* })*) => {
        $(impl Value for $t {
            fn read(v: &Param) -> Result<$t, String> {
                match String::read(v)?.as_str() {
                    $($name => Ok($t::$member),)*
                    _ => wanted(v, concat!($what, ": one of", $(" ", $name),*)),
                }
            }
        })*
    };
}
kiln_kinds::enum_names!(names);

/// Fields of a plug-in layer.
pub(crate) fn fields(given: &BTreeMap<String, Param>) -> Result<Attrs, String> {
    let mut fields = Attrs::new();
    for (name, value) in given {
        let attr = match value {
            Param::Int(v) => Attr::Int(*v),
            Param::Float(v) => Attr::Float(*v),
            Param::Bool(v) => Attr::Bool(*v),
            Param::Text(v) => Attr::Str(v.clone()),
            Param::Ints(v) => Attr::Ints(v.clone()),
            Param::Floats(v) => Attr::Floats(v.clone()),
            Param::Type(v) => Attr::DType(*v),
            Param::Tensor(_) => return Err(format!("field \"{name}\" is a tensor: make it an input")),
        };
        fields.set(name, attr);
    }
    Ok(fields)
}
