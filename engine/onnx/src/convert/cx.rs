//! Context of a handler: the node that it converts, and the network.

use std::cell::RefCell;
use std::collections::BTreeSet;

use kiln_ir::{DType, Dim, Fact, Tensor, TensorType};
use kiln_network::TensorId;

use super::importer::Importer;
use crate::error::NodeFault;
use crate::error::{Refusal, unsupported};
use crate::model::{Attribute, Node};
use crate::tensor::TensorData;

/// The outputs of a node, in order; trailing ones that nobody asked for may be left out.
pub(crate) type Outs = Result<Vec<TensorId>, Refusal>;

/// The conversion of one node.
pub(crate) struct Cx<'a> {
    pub(super) importer: &'a mut Importer,
    pub(super) node: &'a Node,
    inputs: Vec<Option<TensorId>>,
    /// Number of layers that the node has so far.
    pub(super) layers: usize,
    /// Attributes that the handler has read, or skips on purpose.
    read: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Cx<'a> {
    pub(super) fn new(importer: &'a mut Importer, node: &'a Node, inputs: Vec<Option<TensorId>>) -> Self {
        Self { importer, node, inputs, layers: 0, read: RefCell::default() }
    }

    /// The conversion of a node whose first layers are written: further ones have names of their own.
    pub(super) fn later(importer: &'a mut Importer, node: &'a Node) -> Self {
        Self { importer, node, inputs: Vec::new(), layers: 1, read: RefCell::default() }
    }

    /// The node itself.
    pub(crate) fn node(&self) -> &'a Node {
        self.node
    }

    /// An attribute as it is, if it is there.
    pub(crate) fn attribute(&self, name: &str) -> Option<&'a Attribute> {
        let (name, value) = self.node.attributes.get_key_value(name)?;
        self.read.borrow_mut().insert(name);
        Some(value)
    }

    /// Takes note that results do not depend on an attribute here, whatever it says.
    pub(crate) fn skip(&self, name: &str) {
        self.attribute(name);
    }

    /// An attribute that was neither read nor skipped.
    pub(super) fn ignored(&self) -> Option<&'a str> {
        let read = self.read.borrow();
        self.node.attributes.keys().map(String::as_str).find(|name| !read.contains(name))
    }

    /// The version of the operator set that the node is written against.
    pub(crate) fn version(&self) -> i64 {
        self.node.opset
    }

    /// Number of outputs that the node names, absent ones in between included.
    pub(crate) fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether this output is asked for.
    pub(crate) fn wants(&self, output: usize) -> bool {
        self.node.output(output).is_some()
    }

    /// Number of inputs that the node names, absent ones in between included.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// An input, if it is present.
    pub(crate) fn opt(&self, i: usize) -> Option<TensorId> {
        self.inputs.get(i).copied().flatten()
    }

    /// An input that has to be present.
    pub(crate) fn input(&self, i: usize) -> Result<TensorId, Refusal> {
        let missing = NodeFault::MissingInput { input: "required", index: i };
        self.opt(i).ok_or_else(|| self.node.error(missing).into())
    }

    /// All inputs, which all have to be present.
    pub(crate) fn inputs(&self) -> Result<Vec<TensorId>, Refusal> {
        (0..self.inputs.len().max(1)).map(|i| self.input(i)).collect()
    }

    /// All inputs as they are.
    pub(crate) fn all(&self) -> Vec<Option<TensorId>> {
        self.inputs.clone()
    }

    /// Facts of a tensor.
    pub(crate) fn fact(&self, t: TensorId) -> &Fact {
        self.importer.net.fact(t)
    }

    /// A tensor's type.
    pub(crate) fn ty(&self, t: TensorId) -> &TensorType {
        self.importer.net.ty(t)
    }

    /// A tensor's element type.
    pub(crate) fn dtype(&self, t: TensorId) -> DType {
        self.ty(t).dtype
    }

    /// A tensor's rank.
    pub(crate) fn rank(&self, t: TensorId) -> usize {
        self.ty(t).rank()
    }

    /// A tensor's dimension.
    pub(crate) fn dim(&self, t: TensorId, axis: usize) -> Option<Dim> {
        self.ty(t).dims.get(axis).cloned()
    }

    /// The contents of a tensor, if they are known now.
    pub(crate) fn value(&self, t: TensorId) -> Option<&Tensor> {
        self.fact(t).as_const()
    }

    /// The contents of an integer tensor, if they are known now.
    pub(crate) fn ints_of(&self, t: TensorId) -> Option<Vec<i64>> {
        self.value(t).map(Tensor::to_i64)
    }

    /// The contents of an integer input that have to be known now.
    pub(crate) fn need_ints(&self, i: usize, what: &str) -> Result<Vec<i64>, Refusal> {
        match self.ints_of(self.input(i)?) {
            Some(values) => Ok(values),
            None => unsupported(format!("input {i} ({what}) that is not constant")),
        }
    }

    /// The single number of an optional input that has to be known now, if it is present.
    pub(crate) fn scalar_input(&self, i: usize, what: &str) -> Result<Option<f64>, Refusal> {
        let Some(t) = self.opt(i) else { return Ok(None) };
        match self.value(t).and_then(Tensor::scalar_f64) {
            Some(value) => Ok(Some(value)),
            None => unsupported(format!("input {i} ({what}) that is not a constant of one element")),
        }
    }

    /// An axis counted from the end if negative.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Refusal> {
        let r = rank as i64;
        if (-r..r).contains(&axis) {
            return Ok(axis.rem_euclid(r) as usize);
        }
        Err(self.bad_attr("axis", &format!("is {axis}: wanted -{rank} to {rank} exclusive")))
    }

    /// The error for an attribute of this node whose value does not make sense.
    pub(crate) fn bad_attr(&self, attribute: &str, reason: &str) -> Refusal {
        let fault = NodeFault::BadAttribute { attribute: attribute.into(), reason: reason.into() };
        self.node.error(fault).into()
    }

    /// A tensor of an attribute.
    pub(crate) fn tensor(&mut self, data: &TensorData) -> Result<Tensor, Refusal> {
        let label = self.node.output(0).unwrap_or_default();
        self.importer.tensor(data, label)
    }

    /// Reports a decision to the user, once.
    pub(crate) fn note(&mut self, text: String) {
        self.importer.report.note(text);
    }
}
