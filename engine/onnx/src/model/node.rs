//! One call of an operator.

use std::collections::BTreeMap;

use super::attribute::FromAttribute;
use super::{Attribute, Graph};
use crate::error::{NodeFault, OnnxError};

/// A node of a checked graph. Empty input and output names stand for absent ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The name, which may be empty or not unique; see [`Node::label`].
    pub name: String,
    /// The operator.
    pub op: String,
    /// The operator's domain; "" is the standard one.
    pub domain: String,
    /// The version of the domain's operator set that gives the node its meaning: that of the model, or of the
    /// function that the node came from.
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

    /// About how much memory the node takes, shared parts left out.
    pub(super) fn weight(&self) -> u64 {
        let names = self.inputs.iter().chain(&self.outputs).chain([&self.name, &self.op, &self.domain]);
        let names = names.map(|name| name.len() + size_of::<String>()).sum::<usize>();
        let attributes = self.attributes.iter().map(|(name, value)| name.len() as u64 + 32 + value.weight());
        (size_of::<Self>() + names) as u64 + attributes.sum::<u64>()
    }
}
