//! Parts of ONNX models between tensors.

use kiln_onnx::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Place of a tensor's elements that are in a file beside the model.
const EXTERNAL: i32 = 1;

/// Depth of bodies that is looked into.
const DEPTH: usize = 64;

/// A model whose nodes are in an order in which each comes behind what it reads.
pub struct Parts {
    model: ModelProto,
    /// Tensors that each node reads, those of its bodies as well.
    reads: Vec<Vec<String>>,
    /// The node that makes each tensor.
    maker: HashMap<String, usize>,
}

/// Tensors that a node reads from outside, its bodies included.
fn reads(node: &NodeProto, depth: usize) -> Vec<String> {
    let mut all: Vec<String> = node.input.iter().filter(|i| !i.is_empty()).cloned().collect();
    if depth == 0 {
        return all;
    }
    let bodies = node.attribute.iter().flat_map(|a| a.g.iter().map(|g| &**g).chain(&a.graphs));
    for body in bodies {
        let mut own: HashSet<&str> = body.input.iter().map(|v| v.name.as_str()).collect();
        own.extend(body.initializer.iter().map(|t| t.name.as_str()));
        own.extend(body.node.iter().flat_map(|n| n.output.iter().map(String::as_str)));
        let inside = body.node.iter().flat_map(|n| reads(n, depth - 1));
        all.extend(
            inside.chain(body.output.iter().map(|v| v.name.clone())).filter(|n| !own.contains(n.as_str())),
        );
    }
    all
}

impl Parts {
    /// Parts of a model. Nodes that are not in order (which ONNX wants) stay where they are.
    pub fn of(model: ModelProto) -> Parts {
        let nodes = model.graph.as_ref().map(|g| g.node.as_slice()).unwrap_or_default();
        let reads = nodes.iter().map(|n| reads(n, DEPTH)).collect();
        let outputs =
            nodes.iter().enumerate().flat_map(|(i, n)| n.output.iter().map(move |o| (o.clone(), i)));
        let maker = outputs.filter(|(o, _)| !o.is_empty()).collect();
        Parts { model, reads, maker }
    }

    fn graph(&self) -> Option<&GraphProto> {
        self.model.graph.as_ref()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// Names of all nodes; of those without one, operator and first output.
    pub fn labels(&self) -> Vec<String> {
        let label = |n: &NodeProto| match n.name.is_empty() {
            true => format!("{} {}", n.op_type, n.output.first().map_or("", String::as_str)),
            false => n.name.clone(),
        };
        self.graph().map(|g| g.node.iter().map(label).collect()).unwrap_or_default()
    }

    /// Whether weights are in files beside the model.
    pub fn has_external_data(&self) -> bool {
        self.graph().is_some_and(|g| g.initializer.iter().any(|t| t.data_location == EXTERNAL))
    }

    /// Names of the tensors that a node makes.
    pub fn made(&self, node: usize) -> Vec<String> {
        let found = self.graph().and_then(|g| g.node.get(node));
        found.map(|n| n.output.iter().filter(|o| !o.is_empty()).cloned().collect()).unwrap_or_default()
    }

    /// Names of the model's outputs.
    pub fn outputs(&self) -> Vec<String> {
        self.graph().map(|g| g.output.iter().map(|o| o.name.clone()).collect()).unwrap_or_default()
    }

    /// The nodes that these tensors need, in order, without what is in front of the tensors of `cut`.
    pub fn needed(&self, outputs: &[String], cut: &BTreeSet<String>) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = outputs.iter().map(String::as_str).collect();
        while let Some(name) = open.pop() {
            let Some(&node) = self.maker.get(name).filter(|_| !cut.contains(name)) else { continue };
            if seen.insert(node) {
                open.extend(self.reads[node].iter().map(String::as_str));
            }
        }
        seen.into_iter().collect()
    }

    /// Tensors that nodes of the list from `at` on read from nodes of it in front.
    pub fn crossing(&self, nodes: &[usize], at: usize) -> BTreeSet<String> {
        let (front, behind) = nodes.split_at(at.min(nodes.len()));
        let front: BTreeSet<usize> = front.iter().copied().collect();
        let reads = behind.iter().flat_map(|&n| &self.reads[n]);
        reads.filter(|r| self.maker.get(*r).is_some_and(|m| front.contains(m))).cloned().collect()
    }

    /// The model between these tensors: inputs that are new come with their types.
    pub fn between(&self, inputs: &[ValueInfoProto], outputs: &[String]) -> ModelProto {
        let mut model = self.model.clone();
        let Some(graph) = &mut model.graph else { return model };
        let cut: BTreeSet<String> = inputs.iter().map(|i| i.name.clone()).collect();
        let nodes = self.needed(outputs, &cut);
        let read: HashSet<&str> =
            nodes.iter().flat_map(|&n| self.reads[n].iter().map(String::as_str)).collect();
        let wanted = |name: &str| read.contains(name) || outputs.iter().any(|o| o == name);
        let keep: HashSet<usize> = nodes.iter().copied().collect();
        let mut i = 0;
        graph.node.retain(|_| {
            i += 1;
            keep.contains(&(i - 1))
        });
        graph.initializer.retain(|t| wanted(&t.name));
        graph.sparse_initializer.retain(|t| t.values.as_ref().is_none_or(|v| wanted(&v.name)));
        graph.input.retain(|v| wanted(&v.name) && !cut.contains(&v.name));
        graph.input.extend(inputs.iter().filter(|v| wanted(&v.name)).cloned());
        let known = |name: &String| {
            let mut declared = self.graph().into_iter().flat_map(|g| g.output.iter().chain(&g.value_info));
            let found = declared.find(|v| v.name == *name).cloned();
            found.unwrap_or_else(|| ValueInfoProto { name: name.clone(), ..Default::default() })
        };
        graph.output = outputs.iter().map(known).collect();
        model
    }

    /// The declared type of a tensor.
    pub fn declared(&self, name: &str) -> Option<ValueInfoProto> {
        let mut all =
            self.graph().into_iter().flat_map(|g| g.value_info.iter().chain(&g.output).chain(&g.input));
        all.find(|v| v.name == name && v.r#type.is_some()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(op: &str, input: &[&str], output: &str) -> NodeProto {
        NodeProto {
            op_type: op.into(),
            name: format!("n_{output}"),
            input: input.iter().map(|i| (*i).to_owned()).collect(),
            output: vec![output.into()],
            ..Default::default()
        }
    }

    fn value(name: &str) -> ValueInfoProto {
        ValueInfoProto { name: name.into(), ..Default::default() }
    }

    /// x → a → b → d, and x → c → d; e reads d and y.
    fn parts() -> Parts {
        let nodes = [
            node("Exp", &["x"], "a"),
            node("Abs", &["a"], "b"),
            node("Neg", &["x"], "c"),
            node("Add", &["b", "c"], "d"),
            node("Mul", &["d", "y"], "e"),
        ];
        let graph = GraphProto {
            node: nodes.to_vec(),
            input: vec![value("x"), value("y")],
            output: vec![value("e")],
            ..Default::default()
        };
        Parts::of(ModelProto { graph: Some(graph), ..Default::default() })
    }

    #[test]
    fn parts_hold_what_their_outputs_need() {
        let p = parts();
        let none = BTreeSet::new();
        assert_eq!(p.needed(&["b".into()], &none), [0, 1]);
        assert_eq!(p.needed(&["e".into()], &["b".into()].into()), [2, 3, 4]);
        assert_eq!(p.crossing(&[0, 1, 2, 3], 2), ["b".to_owned()].into());
        assert_eq!((p.made(3), p.outputs(), p.len()), (vec!["d".to_owned()], vec!["e".to_owned()], 5));
        let g = p.between(&[value("b")], &["d".into()]).graph.unwrap();
        let names = |v: &[ValueInfoProto]| v.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
        assert_eq!(g.node.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["n_c", "n_d"]);
        assert_eq!((names(&g.input), names(&g.output)), (vec!["x".into(), "b".into()], vec!["d".to_owned()]));
    }
}
