//! The graph that passes work on: SSA values, nodes in topological order, nested graphs for control flow.

mod attempt;
mod compact;
pub(crate) mod control;
mod edit;
mod infer;
mod inline;
pub(crate) mod names;
mod role;
mod verify;

pub(crate) use compact::Numbering;
pub use control::infer::{extent, join};
pub use control::{LoopOut, LoopOutputKind, LoopShape, element, stack};
pub use edit::Uses;
pub use names::first_free;
pub use role::{WeightUse, WeightsRole};

use crate::error::IrError;
use crate::format::{Formats, Packing};
use crate::infer::Fact;
use crate::op::Op;
use crate::tensor::Tensor;
use crate::ty::TensorType;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct ValueId(#[n(0)] pub u32);

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct NodeId(#[n(0)] pub u32);

/// A graph. Ids are positions and stay valid: removing a node leaves a hole until [`Graph::compact`].
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The name of the network, or of what a region does.
    pub name: String,
    /// Whether types are as written: only casts, quantize and dequantize layers of the graph change them.
    pub strong_types: bool,
    /// Layers that the network's named weights belong to, by which a refit finds them. Passes do not read them.
    pub weight_uses: Vec<WeightUse>,
    /// Ranges of tensors by name, the least and the greatest value: builds that permit i8 quantize by them.
    pub ranges: BTreeMap<String, [f32; 2]>,
    /// Names of tensors for debugging: of a finished graph they are written to memory, so that a run can report them. Passes
    /// do not read them.
    pub debug: BTreeSet<String>,
    /// Formats that a build may give to inputs and outputs, by name. Of others the linear one.
    pub allowed_formats: BTreeMap<String, Formats>,
    /// Formats that inputs and outputs of a program have, by name: their dimensions are those in memory. Of others the linear one.
    pub packings: BTreeMap<String, Packing>,
    pub(crate) values: Vec<ValueDef>,
    names: names::Names,
    pub(crate) nodes: Vec<Option<Node>>,
    /// Execution order of the nodes that exist.
    pub(crate) order: Vec<NodeId>,
    /// Inputs in order.
    pub inputs: Vec<ValueId>,
    /// Outputs in order. A value may be both input and output, and may be given twice.
    pub outputs: Vec<ValueId>,
    /// State before the edits of [`Graph::attempt`].
    journal: Option<Box<attempt::Journal>>,
}

/// Definition and facts of one value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueDef {
    /// Unique in its graph.
    pub name: String,
    /// Type, dimensions and, where followed, contents.
    pub fact: Fact,
    /// Source of the value.
    pub source: Source,
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// An input of the graph.
    Input,
    /// A constant, perhaps a named weight.
    Weight(Weight),
    /// An output of a node.
    Node(NodeId, usize),
    /// No source: its node was removed.
    Dead,
}

/// A constant of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The elements.
    pub tensor: Tensor,
    /// The name by which it can be refitted; `None` for constants that nobody named.
    pub name: Option<Arc<str>>,
    /// Recipe from named weights, if the weight is derived.
    pub recipe: Option<Arc<Recipe>>,
}

/// Recipe of a derived weight: a graph whose inputs are named source weights and whose single output it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The computation; evaluated by the oracle.
    pub graph: Graph,
    /// Name of the source weight for each input of the graph.
    pub sources: Vec<Arc<str>>,
}

/// One application of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The layer's name; fused nodes join names with " + ".
    pub name: String,
    /// Operator.
    pub op: Op,
    /// Values read; `None` where an optional input is absent.
    pub inputs: Vec<Option<ValueId>>,
    /// Values defined.
    pub outputs: Vec<ValueId>,
    /// Bodies of control flow, in the order that the operator defines. Captured values are explicit inputs.
    pub regions: Vec<Graph>,
    /// Type constraints and notes that travel with the layer.
    pub meta: Meta,
}

/// Notes and settings of the user for a layer, apart from its mathematics.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Meta {
    /// Preferred compute type.
    #[n(0)]
    pub precision: Option<crate::dtype::DType>,
    /// Preferred types of outputs, by position.
    #[cbor(n(1), skip_if = "Vec::is_empty")]
    pub output_types: Vec<Option<crate::dtype::DType>>,
    /// Free text shown by the inspector.
    #[cbor(n(2), skip_if = "String::is_empty")]
    pub metadata: String,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Graph {
        Graph { name: name.to_owned(), ..Graph::default() }
    }

    /// A value's definition. Ids of another graph give the dead value's definition.
    pub fn value(&self, v: ValueId) -> &ValueDef {
        &self.values[v.0 as usize]
    }

    /// A value's definition, to change.
    pub fn value_mut(&mut self, v: ValueId) -> &mut ValueDef {
        self.note_value(v);
        self.names.touch(v);
        &mut self.values[v.0 as usize]
    }

    /// A value's type.
    pub fn ty(&self, v: ValueId) -> &TensorType {
        &self.value(v).fact.ty
    }

    /// All values, dead ones included.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// Number of values, dead ones included.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// A node, unless it was removed.
    pub fn get(&self, n: NodeId) -> Option<&Node> {
        self.nodes.get(n.0 as usize)?.as_ref()
    }

    /// A node that exists, to change.
    pub fn get_mut(&mut self, n: NodeId) -> Option<&mut Node> {
        self.note_node(n);
        self.nodes.get_mut(n.0 as usize)?.as_mut()
    }

    /// Nodes in execution order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.order.iter().filter_map(|&n| Some((n, self.get(n)?)))
    }

    /// Ids of the nodes in execution order.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// The node that defines a value.
    pub fn producer(&self, v: ValueId) -> Option<(NodeId, &Node)> {
        match self.value(v).source {
            Source::Node(n, _) => Some((n, self.get(n)?)),
            _ => None,
        }
    }

    /// The constant that a value is.
    pub fn weight(&self, v: ValueId) -> Option<&Weight> {
        match &self.value(v).source {
            Source::Weight(w) => Some(w),
            _ => None,
        }
    }

    /// Adds an input.
    pub fn add_input(&mut self, name: &str, fact: Fact) -> ValueId {
        let v = self.add_value(name, fact, Source::Input);
        self.inputs.push(v);
        v
    }

    /// Adds a constant.
    pub fn add_weight(&mut self, name: &str, weight: Weight) -> ValueId {
        let fact = Fact::constant(weight.tensor.clone());
        self.add_value(name, fact, Source::Weight(weight))
    }

    /// Adds a constant that nobody named.
    pub fn add_constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        self.add_weight(name, Weight { tensor, name: None, recipe: None })
    }

    /// The id that the next node gets.
    pub fn next_node(&self) -> NodeId {
        NodeId(self.nodes.len() as u32)
    }

    /// Adds a node at the end of the order without inference: its outputs are values that [`Graph::add_value`] made with
    /// [`Graph::next_node`] as their source.
    pub fn push_node(&mut self, node: Node) -> NodeId {
        let id = self.next_node();
        self.nodes.push(Some(node));
        self.order.push(id);
        id
    }

    /// Adds a value of known facts; [`Graph::verify`] checks that its source has it.
    pub fn add_value(&mut self, name: &str, fact: Fact, source: Source) -> ValueId {
        self.values.push(ValueDef { name: name.to_owned(), fact, source });
        self.names.added(&self.values);
        ValueId(self.values.len() as u32 - 1)
    }

    /// Adds a node at the end of the order, its outputs inferred; returns their values. Output values are named
    /// after the node: `name` for a single one, `name.port` else.
    pub fn add_node(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, IrError> {
        let at = self.order.len();
        self.insert_node(at, name, op, inputs)
    }

    /// Adds a node with required inputs only and a single output.
    pub fn add(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, IrError> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        Ok(self.add_node(name, op, &inputs)?[0])
    }
}
