//! Declarations of a model about its values.

use std::fmt;

use crate::error::{OnnxError, TensorFault};
use crate::proto::{TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto};
use crate::tensor::DataType;

/// One declared dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known size.
    Fixed(u64),
    /// An unknown size that is the same wherever the name stands.
    Named(String),
    /// An unknown size.
    Unknown,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Named(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// A declared type. Models may leave out any part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueType {
    /// No declaration.
    Unknown,
    /// A dense tensor; its element type, and its dimensions unless the rank is unknown.
    Tensor(Option<DataType>, Option<Vec<Dim>>),
    /// A sparse tensor, described alike.
    SparseTensor(Option<DataType>, Option<Vec<Dim>>),
    /// A list of values of one type.
    Sequence(Box<ValueType>),
    /// A value that may be absent.
    Optional(Box<ValueType>),
    /// A map from keys to values.
    Map(DataType, Box<ValueType>),
    /// A type that only its users know, by domain and name.
    Opaque(String, String),
}

impl ValueType {
    /// The element type, if this is a tensor of declared type.
    pub fn dtype(&self) -> Option<DataType> {
        match self {
            ValueType::Tensor(dtype, _) => *dtype,
            _ => None,
        }
    }

    /// The dimensions, if this is a tensor of declared rank.
    pub fn dims(&self) -> Option<&[Dim]> {
        match self {
            ValueType::Tensor(_, dims) => dims.as_deref(),
            _ => None,
        }
    }

    /// Reads a type declared for `value`. Depth is bounded by that of the encoded messages.
    pub(super) fn read(proto: Option<&TypeProto>, value: &str) -> Result<Self, OnnxError> {
        use type_proto::Value;
        let Some(kind) = proto.and_then(|proto| proto.value.as_ref()) else { return Ok(ValueType::Unknown) };
        let inner = |inner: Option<&TypeProto>| Self::read(inner, value).map(Box::new);
        Ok(match kind {
            Value::TensorType(t) => ValueType::Tensor(dtype(t.elem_type, value)?, dims(t.shape.as_ref())),
            Value::SparseTensorType(t) => {
                ValueType::SparseTensor(dtype(t.elem_type, value)?, dims(t.shape.as_ref()))
            }
            Value::SequenceType(t) => ValueType::Sequence(inner(t.elem_type.as_deref())?),
            Value::OptionalType(t) => ValueType::Optional(inner(t.elem_type.as_deref())?),
            Value::MapType(t) => {
                let key = dtype(t.key_type, value)?.ok_or_else(|| OnnxError::BadType {
                    value: value.to_owned(),
                    reason: "is a map without a key type".into(),
                })?;
                ValueType::Map(key, inner(t.value_type.as_deref())?)
            }
            Value::OpaqueType(t) => ValueType::Opaque(t.domain.clone(), t.name.clone()),
        })
    }
}

fn dtype(number: i32, value: &str) -> Result<Option<DataType>, OnnxError> {
    if number == 0 {
        return Ok(None);
    }
    let bad =
        |fault| OnnxError::BadType { value: value.to_owned(), reason: format!("cannot be read: {fault}") };
    DataType::from_number(number).ok_or(TensorFault::UnknownType(number)).map(Some).map_err(bad)
}

/// Declared dimensions. A negative size is what some exporters write for an unknown one.
fn dims(shape: Option<&TensorShapeProto>) -> Option<Vec<Dim>> {
    use tensor_shape_proto::dimension::Value;
    let dim = |dim: &tensor_shape_proto::Dimension| match &dim.value {
        Some(Value::DimValue(size)) => u64::try_from(*size).map_or(Dim::Unknown, Dim::Fixed),
        Some(Value::DimParam(name)) if !name.is_empty() => Dim::Named(name.clone()),
        _ => Dim::Unknown,
    };
    Some(shape?.dim.iter().map(dim).collect())
}

/// A named value and its declared type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueInfo {
    /// The name of the value.
    pub name: String,
    /// Declared type.
    pub ty: ValueType,
}

impl ValueInfo {
    /// Reads a declaration under the name that the value has in the checked graph.
    pub(super) fn read(proto: &ValueInfoProto, name: String) -> Result<Self, OnnxError> {
        let ty = ValueType::read(proto.r#type.as_ref(), &name)?;
        Ok(Self { name, ty })
    }
}
