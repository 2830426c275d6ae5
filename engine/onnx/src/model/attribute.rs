//! Attributes of nodes and how importers read them.

use std::sync::Arc;

use bytes::Bytes;

use super::{Graph, SparseTensor, ValueType};
use crate::tensor::TensorData;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Attribute {
    Float(f32),
    Int(i64),
    String(Bytes),
    Tensor(TensorData),
    Graph(Arc<Graph>),
    SparseTensor(Box<SparseTensor>),
    Type(Box<ValueType>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Bytes>),
    Tensors(Vec<TensorData>),
    Graphs(Vec<Arc<Graph>>),
    SparseTensors(Vec<SparseTensor>),
    Types(Vec<ValueType>),
}

impl Attribute {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Attribute::Float(_) => "a float",
            Attribute::Int(_) => "an integer",
            Attribute::String(_) => "a string",
            Attribute::Tensor(_) => "a tensor",
            Attribute::Graph(_) => "a graph",
            Attribute::SparseTensor(_) => "a sparse tensor",
            Attribute::Type(_) => "a type",
            Attribute::Floats(_) => "a list of floats",
            Attribute::Ints(_) => "a list of integers",
            Attribute::Strings(_) => "a list of strings",
            Attribute::Tensors(_) => "a list of tensors",
            Attribute::Graphs(_) => "a list of graphs",
            Attribute::SparseTensors(_) => "a list of sparse tensors",
            Attribute::Types(_) => "a list of types",
        }
    }

    /// The graphs that it holds.
    pub fn graphs(&self) -> &[Arc<Graph>] {
        match self {
            Attribute::Graph(graph) => std::slice::from_ref(graph),
            Attribute::Graphs(graphs) => graphs,
            _ => &[],
        }
    }

    /// About how much memory the value itself takes, shared parts left out.
    pub(super) fn weight(&self) -> u64 {
        let heap = match self {
            Attribute::Floats(list) => list.len() * 4,
            Attribute::Ints(list) => list.len() * 8,
            Attribute::Strings(list) => size_of_val(&list[..]),
            Attribute::Tensors(list) => {
                size_of_val(&list[..]) + list.iter().map(tensor_weight).sum::<usize>()
            }
            Attribute::Tensor(tensor) => tensor_weight(tensor),
            Attribute::SparseTensor(sparse) => sparse_weight(sparse),
            Attribute::SparseTensors(list) => list.iter().map(sparse_weight).sum(),
            Attribute::Graphs(list) => size_of_val(&list[..]),
            Attribute::Type(ty) => type_weight(ty),
            Attribute::Types(list) => list.iter().map(type_weight).sum(),
            Attribute::Float(_) | Attribute::Int(_) | Attribute::String(_) | Attribute::Graph(_) => 0,
        };
        (size_of::<Self>() + heap) as u64
    }
}

fn tensor_weight(tensor: &TensorData) -> usize {
    tensor.name.len() + tensor.dims.len() * 8
}

fn sparse_weight(sparse: &SparseTensor) -> usize {
    let parts = tensor_weight(&sparse.values) + tensor_weight(&sparse.indices);
    size_of::<SparseTensor>() + parts + sparse.dims.len() * 8
}

fn type_weight(ty: &ValueType) -> usize {
    let names = ty.dims().unwrap_or_default().iter().map(|dim| match dim {
        super::Dim::Named(name) => name.len(),
        _ => 0,
    });
    let inner = match ty {
        ValueType::Sequence(inner) | ValueType::Optional(inner) | ValueType::Map(_, inner) => {
            type_weight(inner)
        }
        _ => 0,
    };
    size_of_val(ty.dims().unwrap_or_default()) + names.sum::<usize>() + inner + size_of::<ValueType>()
}

/// A Rust type that an attribute can be read as.
pub trait FromAttribute<'a>: Sized {
    /// What is wanted, for messages.
    const WANTED: &'static str;

    /// The value, if the attribute is of this type.
    fn from_attribute(attribute: &'a Attribute) -> Option<Self>;
}

macro_rules! readable {
    ($($ty:ty, $wanted:literal, $pattern:pat => $value:expr;)*) => {$(
        impl<'a> FromAttribute<'a> for $ty {
            const WANTED: &'static str = $wanted;

            fn from_attribute(attribute: &'a Attribute) -> Option<Self> {
                match attribute {
                    $pattern => $value,
                    _ => None,
                }
            }
        }
    )*};
}

readable! {
    f32, "a float", Attribute::Float(value) => Some(*value);
    i64, "an integer", Attribute::Int(value) => Some(*value);
    bool, "an integer, 0 or 1", Attribute::Int(value @ 0..=1) => Some(*value == 1);
    &'a str, "a string in UTF-8", Attribute::String(text) => std::str::from_utf8(text).ok();
    &'a Bytes, "a string", Attribute::String(text) => Some(text);
    &'a TensorData, "a tensor", Attribute::Tensor(tensor) => Some(tensor);
    &'a SparseTensor, "a sparse tensor", Attribute::SparseTensor(tensor) => Some(tensor);
    &'a Arc<Graph>, "a graph", Attribute::Graph(graph) => Some(graph);
    &'a ValueType, "a type", Attribute::Type(ty) => Some(ty);
    &'a [f32], "a list of floats", Attribute::Floats(values) => Some(values);
    &'a [i64], "a list of integers", Attribute::Ints(values) => Some(values);
    &'a [Bytes], "a list of strings", Attribute::Strings(values) => Some(values);
    Vec<&'a str>, "a list of strings in UTF-8", Attribute::Strings(values) =>
        values.iter().map(|text| std::str::from_utf8(text).ok()).collect();
}
