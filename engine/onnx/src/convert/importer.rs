//! The state of an import: what names mean in the graph that is being converted and in those around it.

use std::collections::{BTreeMap, HashMap, HashSet};

use kiln_ir::Tensor;
use kiln_network::{IfId, Network, TensorId};

use super::dtype::{self, followed};
use super::options::Report;
use crate::error::{Refusal, RefusedNode, unsupported};
use crate::model::Graph;
use crate::tensor::{DataType, TensorData};

/// Names of one graph. `None` stands for a value whose node was refused.
type Scope = HashMap<String, Option<TensorId>>;

pub(crate) struct Importer {
    pub(super) net: Network,
    pub(super) report: Report,
    /// Names that belong to inputs, outputs and weights of the main graph, so that layers keep off them.
    pub(super) reserved: HashSet<String>,
    /// Small constants thavailablelers made, to be used again.
    pub(super) small: HashMap<(kiln_ir::DType, Vec<usize>, Vec<u8>), TensorId>,
    /// The graph being converted last, those around it before.
    scopes: Vec<Scope>,
    pub(super) refused: Vec<RefusedNode>,
    /// Results of conditionals that have two ranks.
    pub(super) splits: Splits,
    /// Values whose type in the model is held in another one.
    pub(super) held: HeldTypes,
    /// Values that are lists of tensors.
    pub(super) sequences: Sequences,
    /// Whether the user gave sizes that the model declares otherwise.
    pub(super) overridden: bool,
}

impl Importer {
    /// The import of a main graph; `overridden` says whether the user gave sizes that the model declares otherwise.
    pub(super) fn new(graph: &Graph, overridden: bool) -> Self {
        let ends = graph.inputs.iter().chain(&graph.outputs).map(|info| info.name.clone());
        let constants = graph.nodes.iter().filter(|n| n.op == "Constant").flat_map(|n| n.outputs.clone());
        Self {
            net: Network::new(&graph.name),
            report: Report::default(),
            reserved: ends.chain(constants).chain(graph.initializers.keys().cloned()).collect(),
            small: HashMap::new(),
            scopes: vec![Scope::new()],
            refused: Vec::new(),
            splits: Splits::default(),
            held: HeldTypes::default(),
            sequences: Sequences::default(),
            overridden,
        }
    }

    /// Binds a name in the innermost graph.
    pub(super) fn define(&mut self, name: &str, value: Option<TensorId>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// The meaning of a name: `None` if it has none, `Some(None)` if its node was refused.
    pub(super) fn lookup(&self, name: &str) -> Option<Option<TensorId>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    /// Tensors of the graph being converted, by their names in the model.
    pub(super) fn values(&self) -> BTreeMap<String, TensorId> {
        let scope = self.scopes.last().into_iter().flatten();
        scope.filter_map(|(name, value)| Some((name.clone(), (*value)?))).collect()
    }

    /// Adds the initializers of a graph. One that cannot be a weight is refused like a node.
    pub(super) fn weights(&mut self, graph: &Graph) {
        for (name, data) in &graph.initializers {
            let made = self.weight(name, data);
            self.settle_weight(name, made);
            self.held.set(name, Some(data.dtype));
        }
        for name in graph.sparse_initializers.keys() {
            self.settle_weight(name, unsupported("a sparse initializer"));
        }
    }

    fn settle_weight(&mut self, name: &str, made: Result<TensorId, Refusal>) {
        if let Err(reason) = made {
            self.define(name, None);
            self.refused.push(RefusedNode {
                node: name.to_owned(),
                op: "initializer".into(),
                domain: String::new(),
                opset: 0,
                reason,
            });
            return;
        }
        self.define(name, made.ok());
    }

    /// A weight of this name, which makes it refittable; a name that is taken gets a number.
    pub(super) fn weight(&mut self, name: &str, data: &TensorData) -> Result<TensorId, Refusal> {
        let tensor = self.tensor(data, name)?;
        self.named_weight(name, tensor)
    }

    /// A tensor of the model, with a note if its type changes; `label` names it there.
    pub(super) fn tensor(&mut self, data: &TensorData, label: &str) -> Result<Tensor, Refusal> {
        let (tensor, note) = dtype::tensor(data, label)?;
        if let Some(note) = note {
            self.report.note(note);
        }
        Ok(tensor)
    }

    pub(super) fn named_weight(&mut self, name: &str, tensor: Tensor) -> Result<TensorId, Refusal> {
        self.report.weights += 1;
        let mut free = name.to_owned();
        let mut n = 1;
        while self.net.is_taken(&free) {
            n += 1;
            free = format!("{name}.{n}");
        }
        Ok(self.net.add_weights(Some(&free), tensor)?)
    }

    /// Enters a graph in which some names are bound.
    pub(super) fn enter(&mut self, bound: Vec<(String, TensorId)>) {
        self.scopes.push(bound.into_iter().map(|(name, t)| (name, Some(t))).collect());
        self.held.enter();
        self.sequences.enter();
    }

    /// Leaves the graph that was entered last.
    pub(super) fn leave(&mut self) {
        self.scopes.pop();
        self.held.leave();
        self.sequences.leave();
    }
}

/// The held types of the values in scope, by name. Types that Kiln has are `None`.
pub(super) struct HeldTypes {
    scopes: Vec<HashMap<String, Option<DataType>>>,
    /// Types of the outputs of the graph that was converted last.
    pub(super) region: Vec<Option<DataType>>,
    /// Types of the outputs of the node that was converted last.
    pub(super) node: Vec<Option<DataType>>,
}

impl Default for HeldTypes {
    fn default() -> Self {
        Self { scopes: vec![HashMap::new()], region: Vec::new(), node: Vec::new() }
    }
}

impl HeldTypes {
    /// Sets the type of a name in the innermost graph.
    pub(super) fn set(&mut self, name: &str, of: Option<DataType>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), of.filter(|of| followed(*of)));
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<DataType> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied().flatten()
    }

    pub(super) fn enter(&mut self) {
        self.scopes.push(HashMap::new());
    }

    pub(super) fn leave(&mut self) {
        self.scopes.pop();
    }

    /// Notes the types of a graph's outputs, before it is left.
    pub(super) fn close_region(&mut self, graph: &Graph) {
        self.region = graph.outputs.iter().map(|o| self.get(&o.name)).collect();
    }
}

/// A value that is not a tensor.
#[derive(Clone, Debug)]
pub(super) enum Listed {
    /// A sequence.
    Tensors(Vec<TensorId>),
    /// An optional value without an element.
    Absent,
}

/// Sequences and absent values in scope, by name.
pub(super) struct Sequences(Vec<HashMap<String, Listed>>);

impl Default for Sequences {
    fn default() -> Self {
        Self(vec![HashMap::new()])
    }
}

impl Sequences {
    pub(super) fn get(&self, name: &str) -> Option<&Listed> {
        self.0.iter().rev().find_map(|scope| scope.get(name))
    }

    /// Whether the innermost graph has a sequence of this name.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.0.last().is_some_and(|scope| scope.contains_key(name))
    }

    pub(super) fn set(&mut self, name: &str, value: Listed) {
        if let Some(scope) = self.0.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    pub(super) fn enter(&mut self) {
        self.0.push(HashMap::new());
    }

    pub(super) fn leave(&mut self) {
        self.0.pop();
    }
}

/// Values of a name in both branches of a conditional.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    pub(super) of: IfId,
    pub(super) on_true: TensorId,
    pub(super) on_false: TensorId,
}

/// Values that depend on the branches of conditionals with results of two ranks.
#[derive(Clone, Default)]
pub(crate) struct Splits {
    /// Values of two ranks, by what stands for them: their value in the true branch.
    pub(super) open: HashMap<TensorId, Sides>,
    /// Values of one rank that have been converted in both branches.
    pub(super) joined: HashMap<TensorId, Sides>,
    /// Values that follow from those.
    pub(super) after: HashMap<TensorId, HashSet<IfId>>,
    /// Nodes that became these conditionals.
    pub(super) names: HashMap<IfId, String>,
}

impl Splits {
    /// Conditionals whose results a value follows from.
    pub(super) fn behind(&self, t: TensorId) -> HashSet<IfId> {
        let own = self.joined.get(&t).map(|s| s.of);
        own.into_iter().chain(self.after.get(&t).into_iter().flatten().copied()).collect()
    }

    pub(super) fn name(&self, of: IfId) -> &str {
        self.names.get(&of).map_or("If", String::as_str)
    }
}
