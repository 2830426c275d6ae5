//! Changing a graph.

use super::{Graph, Meta, Node, NodeId, Source, ValueId};
use crate::error::IrError;
use crate::infer::Fact;
use crate::op::Op;
use std::collections::{HashMap, HashSet};

/// Readers of values: `(node, input position)`.
pub type Uses = HashMap<ValueId, Vec<(NodeId, usize)>>;

impl Graph {
    /// Adds a node before position `at` of the order; see [`Graph::add_node`].
    pub fn insert_node(
        &mut self,
        at: usize,
        name: &str,
        op: Op,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, IrError> {
        let facts: Vec<Option<Fact>> = inputs.iter().map(|v| v.map(|v| self.value(v).fact.clone())).collect();
        let out = op.infer(&facts, name).map_err(|e| IrError::layer(name, op.name(), e))?;
        let id = NodeId(self.nodes.len() as u32);
        let single = out.len() == 1;
        let outputs: Vec<ValueId> = out
            .into_iter()
            .enumerate()
            .map(|(i, fact)| {
                let port = op.def().outputs.get(i).copied().unwrap_or("out");
                let name = if single { name.to_owned() } else { format!("{name}.{port}") };
                self.add_value(&self.unique_name(&name), fact, Source::Node(id, i))
            })
            .collect();
        self.nodes.push(Some(Node {
            name: name.to_owned(),
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            regions: Vec::new(),
            meta: Meta::default(),
        }));
        self.order.insert(at.min(self.order.len()), id);
        Ok(outputs)
    }

    /// Readers of every value: `(node, input position)`.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (id, node) in self.nodes() {
            for (i, v) in node.inputs.iter().enumerate() {
                if let Some(v) = v {
                    uses.entry(*v).or_default().push((id, i));
                }
            }
        }
        uses
    }

    /// Makes every reader of `from`, outputs of the graph included, read `to`.
    pub fn replace_uses(&mut self, from: ValueId, to: ValueId) {
        for node in self.nodes.iter_mut().flatten() {
            for v in node.inputs.iter_mut().flatten().filter(|v| **v == from) {
                *v = to;
            }
        }
        for v in self.outputs.iter_mut().filter(|v| **v == from) {
            *v = to;
        }
    }

    /// Removes a node; its outputs become dead. Nothing may read them any more.
    pub fn remove_node(&mut self, n: NodeId) {
        self.forget_node(n);
        if let Some(at) = self.order.iter().position(|&x| x == n) {
            self.order.remove(at);
        }
    }

    /// Removes many nodes at once. Outputs that were given another source meanwhile keep it, the others become dead.
    pub fn remove_nodes(&mut self, gone: &HashSet<NodeId>) {
        gone.iter().for_each(|&n| self.forget_node(n));
        self.order.retain(|n| !gone.contains(n));
    }

    fn forget_node(&mut self, n: NodeId) {
        let node = self.nodes.get_mut(n.0 as usize).and_then(Option::take);
        for v in node.map_or(Vec::new(), |n| n.outputs) {
            if matches!(self.value(v).source, Source::Node(by, _) if by == n) {
                self.value_mut(v).source = Source::Dead;
            }
        }
    }

    /// Removes nodes whose outputs nobody reads, unless they have side effects. Returns how many.
    pub fn remove_dead(&mut self) -> usize {
        let mut live: HashSet<ValueId> = self.outputs.iter().copied().collect();
        let mut dead = HashSet::new();
        for (id, node) in self.nodes().rev() {
            if node.op.def().traits.side_effect || node.outputs.iter().any(|v| live.contains(v)) {
                live.extend(node.inputs.iter().flatten());
            } else {
                dead.insert(id);
            }
        }
        self.remove_nodes(&dead);
        dead.len()
    }

    /// Sorts the nodes so that each comes after those it reads; keeps the present order where it can. An error names
    /// a node on a cycle.
    pub fn sort(&mut self) -> Result<(), IrError> {
        let mut waiting: HashMap<NodeId, usize> = HashMap::new();
        let mut readers: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for (id, node) in self.nodes() {
            let from: Vec<NodeId> =
                node.inputs.iter().flatten().filter_map(|&v| Some(self.producer(v)?.0)).collect();
            waiting.insert(id, from.len());
            from.into_iter().for_each(|p| readers.entry(p).or_default().push(id));
        }
        let rank: HashMap<NodeId, usize> = self.order.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        let mut ready: std::collections::BTreeSet<(usize, NodeId)> =
            waiting.iter().filter(|(_, c)| **c == 0).map(|(&n, _)| (rank[&n], n)).collect();
        let mut order = Vec::with_capacity(self.order.len());
        while let Some((_, n)) = ready.pop_first() {
            order.push(n);
            for r in readers.get(&n).into_iter().flatten() {
                if let Some(c) = waiting.get_mut(r) {
                    *c -= 1;
                    if *c == 0 {
                        ready.insert((rank[r], *r));
                    }
                }
            }
        }
        if order.len() < self.order.len() {
            let done: HashSet<NodeId> = order.into_iter().collect();
            let stuck = self.nodes().find(|(n, _)| !done.contains(n)).map_or("", |(_, n)| &n.name);
            return Err(IrError::Structure(format!("layer \"{stuck}\" is on a cycle, or reads one")));
        }
        self.order = order;
        Ok(())
    }
}
