//! The state of an import and its walk over graphs.

use std::collections::{HashMap, HashSet};

use kiln_ir::Tensor;
use kiln_network::{Network, TensorId};

use super::cx::{Cx, Outs};
use super::declared::{Contradiction, overridden};
use super::dtype;
use super::held::{HeldTypes, caution};
use super::options::{ImportOptions, Imported, Report};
use super::refusal::{Refusal, RefusedNode, RefusedNodes, unsupported};
use super::sequence::{Listed, Sequences};
use super::split::Splits;
use crate::error::OnnxError;
use crate::model::{Graph, Node};
use crate::ops;
use crate::schema;
use crate::tensor::{DataType, TensorData};

/// What names mean in one graph. `None` stands for a value whose node was refused.
type Scope = HashMap<String, Option<TensorId>>;

pub(crate) struct Importer {
    pub(super) net: Network,
    pub(super) report: Report,
    /// Names that belong to inputs, outputs and weights of the main graph, so that layers keep off them.
    pub(super) reserved: HashSet<String>,
    /// Small constants that handlers made, to be used again.
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
    overridden: bool,
}

impl Importer {
    pub(super) fn new(graph: &Graph, options: &ImportOptions) -> Result<Self, OnnxError> {
        let ends = graph.inputs.iter().chain(&graph.outputs).map(|info| info.name.clone());
        let constants = graph.nodes.iter().filter(|n| n.op == "Constant").flat_map(|n| n.outputs.clone());
        let mut importer = Self {
            net: Network::new(&graph.name),
            report: Report::default(),
            reserved: ends.chain(constants).chain(graph.initializers.keys().cloned()).collect(),
            small: HashMap::new(),
            scopes: vec![Scope::new()],
            refused: Vec::new(),
            splits: Splits::default(),
            held: HeldTypes::default(),
            sequences: Sequences::default(),
            overridden: overridden(graph, options),
        };
        importer.inputs(graph, options)?;
        Ok(importer)
    }

    /// Gives a name its meaning in the innermost graph.
    pub(super) fn define(&mut self, name: &str, value: Option<TensorId>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), value);
        }
    }

    /// The meaning of a name: `None` if it has none, `Some(None)` if its node was refused.
    pub(super) fn lookup(&self, name: &str) -> Option<Option<TensorId>> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
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

    /// Converts every node of a graph. Nodes that read from refused ones are passed over.
    pub(super) fn nodes(&mut self, graph: &Graph) {
        for (i, node) in graph.nodes.iter().enumerate() {
            let reads: Vec<_> = node.reads().map(|name| self.lookup(name)).collect();
            if reads.iter().any(|r| matches!(r, Some(None))) {
                // Unknown because of a refusal that is on the list; an operator without handler is news still.
                if ops::find(&node.domain, &node.op).is_none() {
                    self.refused.push(RefusedNode::new(node, Refusal::UnknownOperator));
                }
                self.define_outputs(node, &[]);
                continue;
            }
            let made = match self.split_at(node, &graph.nodes[i + 1..]) {
                Some(of) => self.split(node, of),
                None => self.node(node),
            };
            let made = made.and_then(|outputs| self.check_declared(graph, node, outputs));
            match made {
                Ok(outputs) => {
                    self.follow(node, &outputs);
                    self.define_outputs(node, &outputs);
                }
                Err(reason) => {
                    if !matches!(reason, Refusal::Branch) {
                        self.refused.push(RefusedNode::new(node, reason));
                    }
                    self.define_outputs(node, &[]);
                }
            }
        }
    }

    pub(super) fn node(&mut self, node: &Node) -> Outs {
        let operator = ops::find(&node.domain, &node.op).ok_or(Refusal::UnknownOperator)?;
        self.convert(node, operator)
    }

    /// Converts a node that its version allows. An attribute that the handler does not read is refused.
    fn convert(&mut self, node: &Node, operator: &ops::Operator) -> Outs {
        let inputs = node
            .inputs
            .iter()
            .map(|name| if name.is_empty() { None } else { self.lookup(name).flatten() })
            .collect();
        self.check_lists(node)?;
        self.check_types(node)?;
        let mut cx = Cx::new(self, node, inputs);
        schema::check(&cx, operator)?;
        let outputs = (operator.handler)(&mut cx)?;
        if let Some(attribute) = cx.ignored() {
            return Err(Refusal::IgnoredAttribute { attribute: attribute.to_owned() });
        }
        let outputs = self.settle_types(node, outputs)?;
        if let Some(i) = (outputs.len()..node.outputs.len())
            .find(|&i| node.output(i).is_some_and(|name| !self.sequences.defines(name)))
        {
            return unsupported(format!("output {i} of this operator"));
        }
        *self.report.nodes.entry(node.op.clone()).or_default() += 1;
        Ok(outputs)
    }

    /// Compares the outputs of a node with what the graph declares of values inside of it.
    fn check_declared(&mut self, graph: &Graph, node: &Node, made: Vec<TensorId>) -> Outs {
        for (name, &t) in node.outputs.iter().zip(&made) {
            if let Some(declared) = graph.values.get(name) {
                self.check_inside(name, t, declared)?;
            }
        }
        Ok(made)
    }

    fn define_outputs(&mut self, node: &Node, made: &[TensorId]) {
        for (i, name) in node.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            if made.is_empty() && self.sequences.defines(name) {
                continue;
            }
            self.define(name, made.get(i).copied());
            let of = self.held.node.get(i).copied().flatten();
            self.held.set(name, of);
        }
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

    /// Marks the outputs, or gives the list of everything refused.
    pub(super) fn finish(mut self, graph: &Graph) -> Result<Imported, OnnxError> {
        if !self.refused.is_empty() {
            return Err(OnnxError::Refused(RefusedNodes(self.refused)));
        }
        for info in &graph.outputs {
            let bad = |reason: String| OnnxError::BadOutput { output: info.name.clone(), reason };
            let value = self.lookup(&info.name).flatten();
            let value = value.ok_or_else(|| match self.sequences.get(&info.name) {
                Some(Listed::Tensors(list)) => {
                    let why = "which no network gives; make each tensor an output (SequenceAt), or concatenate them";
                    bad(format!("is a sequence of {} tensors, {why}", list.len()))
                }
                _ => bad("is not defined by the graph".into()),
            })?;
            if let Some(why) = self.ranks_differ(value) {
                return Err(bad(why));
            }
            match self.contradiction(value, &info.ty) {
                Some(Contradiction::Shape(_)) if self.overridden => {}
                Some(Contradiction::Shape(declared) | Contradiction::Type(declared)) => {
                    let found = self.net.ty(value);
                    let advice = "correct the declaration, or the node that makes it";
                    return Err(bad(format!("is {found}, where the model declares {declared}: {advice}")));
                }
                None => {}
            }
            let of = info.ty.dtype().filter(|of| *of == DataType::Double).or(self.held.get(&info.name));
            if let Some(text) = of.and_then(caution) {
                self.report.note(format!("output '{}' is {text}", info.name));
            }
            self.net.mark_any_output(value, &info.name).map_err(|e| bad(e.to_string()))?;
        }
        Ok(Imported { network: self.net, report: self.report })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::Attribute;

    #[test]
    fn an_attribute_that_no_handler_reads_is_refused() {
        let mut importer = Importer::new(&Graph::default(), &ImportOptions::default()).unwrap();
        let x = importer.named_weight("x", Tensor::f32(&[1], &[1.0]).unwrap()).unwrap();
        importer.define("x", Some(x));
        let alpha = [("alpha".to_owned(), Attribute::Float(2.0))];
        let node = Node {
            name: "n".into(),
            op: "Elu".into(),
            domain: String::new(),
            opset: 22,
            inputs: vec!["x".into()],
            outputs: vec!["y".into()],
            attributes: BTreeMap::from(alpha),
        };
        assert!(importer.node(&node).is_ok());
        let deaf = ops::Operator { name: "Elu", versions: &[22], handler: |cx| Ok(vec![cx.input(0)?]) };
        let refused = importer.convert(&node, &deaf);
        assert!(matches!(refused, Err(Refusal::IgnoredAttribute { attribute }) if attribute == "alpha"));
        let older = ops::Operator { versions: &[1, 6], ..deaf };
        let refused = importer.convert(&node, &older);
        assert!(matches!(refused, Err(Refusal::UnknownVersion { since: 22, .. })));
    }
}
