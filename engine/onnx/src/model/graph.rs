//! A checked graph.

use std::collections::BTreeMap;

use super::{Node, SparseTensor, ValueInfo, ValueType};
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
    /// What is declared about values inside the graph.
    pub values: BTreeMap<String, ValueType>,
    /// For the graph of an attribute: the values that it or a graph in it reads from outside, sorted. Names defined in
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

    /// What is declared about a value of this graph, wherever it is declared.
    pub fn declared(&self, name: &str) -> Option<&ValueType> {
        let ends = self.inputs.iter().chain(&self.outputs);
        let end = ends.filter(|info| info.ty != ValueType::Unknown).find(|info| info.name == name);
        end.map(|info| &info.ty).or_else(|| self.values.get(name))
    }
}
