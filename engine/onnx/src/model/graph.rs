//! A checked graph: its nodes, and their attributes, which may hold graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{SparseTensor, ValueInfo, ValueType};
use crate::error::{NodeFault, OnnxError, Refusal, RefusedNode};
use crate::tensor::TensorData;

/// A graph whose every value has one definition and whose nodes come after what they read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// The name.
    pub name: String,
    /// The inputs in order. Some may also be initializers, which then are their default values.
    pub inputs: Vec<ValueInfo>,
    /// The outputs in order. Each is defined in this graph.
    pub outputs: Vec<ValueInfo>,
    /// The constant tensors by name.
    pub initializers: BTreeMap<String, TensorData>,
    /// The sparse constant tensors by name.
    pub sparse_initializers: BTreeMap<String, SparseTensor>,
    /// The nodes in topological order: that of the file where it was one.
    pub nodes: Vec<Node>,
    /// Declarations of values inside the graph.
    pub values: BTreeMap<String, ValueType>,
    /// Values that the graph of an attribute, or a graph in it, reads from outside, sorted. Names defined in
    /// the graph hide outer ones.
    pub captures: Vec<String>,
}

impl Graph {
    /// The inputs that a run has to supply: those without a default value.
    pub fn required_inputs(&self) -> impl Iterator<Item = &ValueInfo> {
        self.inputs.iter().filter(|input| !self.is_constant(&input.name))
    }

    /// Whether an initializer of this graph, dense or sparse, has this name.
    pub fn is_constant(&self, name: &str) -> bool {
        self.initializers.contains_key(name) || self.sparse_initializers.contains_key(name)
    }

    /// Declaration of a value of this graph, wherever it stands.
    pub fn declared(&self, name: &str) -> Option<&ValueType> {
        let ends = self.inputs.iter().chain(&self.outputs);
        let end = ends.filter(|info| info.ty != ValueType::Unknown).find(|info| info.name == name);
        end.map(|info| &info.ty).or_else(|| self.values.get(name))
    }
}

/// A node of a checked graph. Empty input and output names stand for absent ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The name, which may be empty or not unique; see [`Node::label`].
    pub name: String,
    /// The operator.
    pub op: String,
    /// The operator's domain; "" is the standard one.
    pub domain: String,
    /// The version of the domain's operator set that defines the node: that of the model, or of the function
    /// that the node came from.
    pub opset: i64,
    /// The names of the values read, by position.
    pub inputs: Vec<String>,
    /// The names of the values defined, by position.
    pub outputs: Vec<String>,
    /// The attributes by name, none of them a reference.
    pub attributes: BTreeMap<String, Attribute>,
}

impl Node {
    /// The name, or for a nameless node its operator and first output.
    pub fn label(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let output = self.outputs.iter().find(|output| !output.is_empty());
        format!("{}({})", self.op, output.map_or("", String::as_str))
    }

    /// An input, if it is present.
    pub fn input(&self, index: usize) -> Option<&str> {
        self.inputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// An input that has to be present; `input` is its name in the operator's documentation.
    pub fn require_input(&self, index: usize, input: &'static str) -> Result<&str, OnnxError> {
        self.input(index).ok_or_else(|| self.error(NodeFault::MissingInput { input, index }))
    }

    /// An output, if it is asked for.
    pub fn output(&self, index: usize) -> Option<&str> {
        self.outputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// An output that has to be asked for; `output` is its name in the operator's documentation.
    pub fn require_output(&self, index: usize, output: &'static str) -> Result<&str, OnnxError> {
        self.output(index).ok_or_else(|| self.error(NodeFault::MissingOutput { output, index }))
    }

    /// An attribute as a Rust type, as `node.attr::<&[i64]>("pads")?`; an error if it is of another type.
    pub fn attr<'a, T: FromAttribute<'a>>(&'a self, name: &str) -> Result<Option<T>, OnnxError> {
        let Some(attribute) = self.attributes.get(name) else { return Ok(None) };
        let value = T::from_attribute(attribute).ok_or_else(|| {
            self.error(NodeFault::AttributeType {
                attribute: name.to_owned(),
                found: attribute.kind(),
                wanted: T::WANTED,
            })
        })?;
        Ok(Some(value))
    }

    /// An attribute, or `default` if it is not there.
    pub fn attr_or<'a, T: FromAttribute<'a>>(&'a self, name: &str, default: T) -> Result<T, OnnxError> {
        Ok(self.attr(name)?.unwrap_or(default))
    }

    /// An attribute that has to be there.
    pub fn require_attr<'a, T: FromAttribute<'a>>(&'a self, name: &str) -> Result<T, OnnxError> {
        self.attr(name)?.ok_or_else(|| {
            self.error(NodeFault::MissingAttribute { attribute: name.to_owned(), wanted: T::WANTED })
        })
    }

    /// The graphs that the attributes hold.
    pub fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.attributes.values().flat_map(|attribute| attribute.graphs()).map(|graph| &**graph)
    }

    /// Every name that the node needs before it can run: its inputs, and what its graphs read from outside them.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        let inputs = self.inputs.iter().filter(|name| !name.is_empty());
        inputs.chain(self.graphs().flat_map(|graph| &graph.captures)).map(String::as_str)
    }

    /// A fault of this node as an error that names it.
    pub fn error(&self, fault: NodeFault) -> OnnxError {
        OnnxError::BadNode { node: self.label(), op: self.op.clone(), fault }
    }

    /// The entry of this node in the list of those that could not be converted.
    pub(crate) fn refused(&self, reason: Refusal) -> RefusedNode {
        RefusedNode {
            node: self.label(),
            op: self.op.clone(),
            domain: self.domain.clone(),
            opset: self.opset,
            reason,
        }
    }

    /// About how much memory the node takes, shared parts left out.
    pub(super) fn weight(&self) -> u64 {
        let names = self.inputs.iter().chain(&self.outputs).chain([&self.name, &self.op, &self.domain]);
        let names = names.map(|name| name.len() + size_of::<String>()).sum::<usize>();
        let attributes = self.attributes.iter().map(|(name, value)| name.len() as u64 + 32 + value.weight());
        (size_of::<Self>() + names) as u64 + attributes.sum::<u64>()
    }
}

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
    /// Kind of its value, for messages.
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
    /// Wanted kind, for messages.
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
