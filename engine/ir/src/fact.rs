//! Facts of a tensor before it is computed.

use crate::dim::Dim;
use crate::tensor::{Elems, Tensor};
use crate::ty::TensorType;

/// Contents of integer tensors longer than this are not followed symbolically.
pub const MAX_CONTENT: usize = 256;

/// The terms and factors of the contents of one tensor that are followed together; in larger contents, elements of more
/// than [`LARGE_ELEMENT`] become opaque.
const MAX_CONTENT_SIZE: usize = 1 << 14;

const LARGE_ELEMENT: usize = 32;

/// Facts of a tensor before it is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Element type and dimensions.
    pub ty: TensorType,
    /// The contents, if known.
    pub value: Option<Value>,
}

/// Known contents.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// All elements.
    Const(Tensor),
    /// The elements of a small integer tensor as functions of symbols, row-major.
    Dims(Vec<Dim>),
}

impl Fact {
    /// A fact with a type, without contents.
    pub fn of(ty: TensorType) -> Fact {
        Fact { ty, value: None }
    }

    /// A constant.
    pub fn constant(t: Tensor) -> Fact {
        Fact { ty: t.ty(), value: Some(Value::Const(t)) }
    }

    /// An integer tensor of known elements; becomes a constant if all are numbers.
    pub fn contents(ty: TensorType, dims: Vec<Dim>) -> Fact {
        let numbers: Option<Vec<i64>> = dims.iter().map(Dim::as_const).collect();
        let constant = numbers
            .zip(ty.static_dims())
            .and_then(|(v, shape)| Tensor::from_elems(ty.dtype, &shape, &Elems::I(v)));
        match constant {
            Some(t) => Fact { ty, value: Some(Value::Const(t)) },
            None => Fact { ty, value: Some(Value::Dims(limited(dims))) },
        }
    }

    /// The constant, if it is one.
    pub fn as_const(&self) -> Option<&Tensor> {
        match &self.value {
            Some(Value::Const(t)) => Some(t),
            _ => None,
        }
    }

    /// The elements of an integer tensor as dimensions, if known and at most [`MAX_CONTENT`].
    pub fn as_dims(&self) -> Option<Vec<Dim>> {
        match &self.value {
            Some(Value::Dims(d)) => Some(d.clone()),
            Some(Value::Const(t)) if !t.dtype().is_float() && t.len() <= MAX_CONTENT => {
                Some(t.to_i64().into_iter().map(Dim::new).collect())
            }
            _ => None,
        }
    }
}

/// Contents whose expressions together are not too large.
fn limited(dims: Vec<Dim>) -> Vec<Dim> {
    match dims.iter().map(Dim::size).sum::<usize>() <= MAX_CONTENT_SIZE {
        true => dims,
        false => dims.iter().map(|d| d.at_most(LARGE_ELEMENT)).collect(),
    }
}
