//! The walk over the nodes of a graph.

use kiln_network::TensorId;

use super::cx::{Cx, Outs};
use super::declared::Contradiction;
use super::dtype::caution;
use super::importer::{Importer, Listed};
use super::options::Imported;
use super::plugin;
use crate::error::{OnnxError, Refusal, RefusedNodes, unsupported};
use crate::model::{Graph, Node};
use crate::ops;
use crate::schema;
use crate::tensor::DataType;

impl Importer {
    /// Converts every node of a graph. Nodes that read from refused ones are passed over.
    pub(super) fn nodes(&mut self, graph: &Graph) {
        for (i, node) in graph.nodes.iter().enumerate() {
            let reads: Vec<_> = node.reads().map(|name| self.lookup(name)).collect();
            if reads.iter().any(|r| matches!(r, Some(None))) {
                // Unknown because of a refusal that is on the list; an operator without handler is news still.
                if ops::find(&node.domain, &node.op).is_none() && plugin::layer(node).is_none() {
                    self.refused.push(node.refused(Refusal::UnknownOperator));
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
                        self.refused.push(node.refused(reason));
                    }
                    self.define_outputs(node, &[]);
                }
            }
        }
    }

    pub(super) fn node(&mut self, node: &Node) -> Outs {
        match ops::find(&node.domain, &node.op).filter(|_| !plugin::is_named(node)) {
            Some(operator) => self.convert(node, operator),
            None => self.plugin(node),
        }
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

    /// Marks the outputs, or returns the list of everything refused.
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
        let values = self.values();
        Ok(Imported { network: self.net, report: self.report, values })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kiln_ir::Tensor;

    use super::*;
    use crate::model::Attribute;

    #[test]
    fn an_attribute_that_no_handler_reads_is_refused() {
        let mut importer = Importer::new(&Graph::default(), false);
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
