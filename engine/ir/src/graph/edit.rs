//! Changing a graph.

use super::{Graph, Meta, Node, NodeId, Source, ValueId};
use crate::error::IrError;
use crate::infer::Fact;
use crate::op::Op;
use std::collections::{HashMap, HashSet};

/// Readers of a graph's values, as of when they were counted.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Start of the readers of each value in `readers`; one more than there are values.
    starts: Vec<u32>,
    /// `(node, input position)`, by value, in execution order.
    readers: Vec<(NodeId, usize)>,
    /// Values that are outputs of the graph, or for debugging.
    outputs: HashSet<ValueId>,
}

impl Uses {
    fn of(g: &Graph) -> Uses {
        let mut starts = vec![0u32; g.values.len() + 1];
        let inputs = || {
            g.nodes().flat_map(|(id, n)| {
                n.inputs.iter().enumerate().filter_map(move |(i, v)| Some(((*v)?, (id, i))))
            })
        };
        inputs().for_each(|(v, _)| starts[v.0 as usize + 1] += 1);
        for v in 1..starts.len() {
            starts[v] += starts[v - 1];
        }
        let mut next = starts.clone();
        let mut readers = vec![(NodeId(0), 0); starts.last().map_or(0, |&n| n as usize)];
        for (v, reader) in inputs() {
            let at = &mut next[v.0 as usize];
            readers[*at as usize] = reader;
            *at += 1;
        }
        Uses { starts, readers, outputs: g.kept().collect() }
    }

    /// Readers of a value: `(node, input position)`, in execution order.
    pub fn of_value(&self, v: ValueId) -> &[(NodeId, usize)] {
        let at = v.0 as usize;
        match self.starts.get(at..at + 2) {
            Some(&[from, to]) => self.readers.get(from as usize..to as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether the value is an output of the graph.
    pub fn is_output(&self, v: ValueId) -> bool {
        self.outputs.contains(&v)
    }

    /// Values that nodes read, with their readers.
    pub fn read(&self) -> impl Iterator<Item = (ValueId, &[(NodeId, usize)])> {
        let values = (0..self.starts.len().saturating_sub(1) as u32).map(ValueId);
        values.map(|v| (v, self.of_value(v))).filter(|(_, readers)| !readers.is_empty())
    }
}

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
        let single = out.len() == 1;
        let mut named = Vec::with_capacity(out.len());
        for (i, fact) in out.into_iter().enumerate() {
            let port = op.def().outputs.get(i).copied().unwrap_or("out");
            let name = if single { name.to_owned() } else { format!("{name}.{port}") };
            named.push((name, fact));
        }
        let id = NodeId(self.nodes.len() as u32);
        let outputs = named
            .into_iter()
            .enumerate()
            .map(|(i, (name, fact))| self.add_value(&self.unique_name(&name), fact, Source::Node(id, i)));
        let outputs: Vec<ValueId> = outputs.collect();
        self.put_node(at, name, op, inputs, &outputs);
        Ok(outputs)
    }

    fn put_node(&mut self, at: usize, name: &str, op: Op, inputs: &[Option<ValueId>], outputs: &[ValueId]) {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Some(Node {
            name: name.to_owned(),
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            regions: Vec::new(),
            meta: Meta::default(),
        }));
        self.order.insert(at.min(self.order.len()), id);
    }

    /// Adds a node at the end of the order whose outputs have these names and facts, which are what inference would find.
    /// Names must be free.
    pub fn add_inferred(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Option<ValueId>],
        outputs: impl IntoIterator<Item = (String, Fact)>,
    ) -> Vec<ValueId> {
        let id = NodeId(self.nodes.len() as u32);
        let add =
            |(i, (name, fact)): (usize, (String, Fact))| self.add_value(&name, fact, Source::Node(id, i));
        let outputs: Vec<ValueId> = outputs.into_iter().enumerate().map(add).collect();
        self.put_node(self.order.len(), name, op, inputs, &outputs);
        outputs
    }

    /// Readers of every value.
    pub fn uses(&self) -> Uses {
        Uses::of(self)
    }

    /// Makes every reader of `from`, outputs of the graph included, read `to`.
    pub fn replace_uses(&mut self, from: ValueId, to: ValueId) {
        for n in 0..self.nodes.len() {
            let reads = |node: &Node| node.inputs.contains(&Some(from));
            if !self.nodes[n].as_ref().is_some_and(reads) {
                continue;
            }
            let node = self.get_mut(NodeId(n as u32));
            let inputs = node.into_iter().flat_map(|n| n.inputs.iter_mut().flatten());
            inputs.filter(|v| **v == from).for_each(|v| *v = to);
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

    /// Puts the nodes into another order; an error unless it has each of them once.
    pub fn reorder(&mut self, order: Vec<NodeId>) -> Result<(), IrError> {
        let (mut old, mut new) = (self.order.clone(), order.clone());
        old.sort_unstable();
        new.sort_unstable();
        if old != new {
            return Err(IrError::Structure("another order lacks a node, or has one twice".into()));
        }
        self.order = order;
        Ok(())
    }

    fn forget_node(&mut self, n: NodeId) {
        self.note_node(n);
        let node = self.nodes.get_mut(n.0 as usize).and_then(Option::take);
        for v in node.map_or(Vec::new(), |n| n.outputs) {
            if matches!(self.value(v).source, Source::Node(by, _) if by == n) {
                self.value_mut(v).source = Source::Dead;
            }
        }
    }

    /// Removes nodes whose outputs nobody reads, unless they have side effects. Returns how many.
    pub fn remove_dead(&mut self) -> usize {
        let mut live = vec![false; self.values.len()];
        self.outputs.iter().for_each(|v| live[v.0 as usize] = true);
        let mut dead = HashSet::new();
        for (id, node) in self.nodes().rev() {
            if node.op.def().traits.side_effect || node.outputs.iter().any(|v| live[v.0 as usize]) {
                node.inputs.iter().flatten().for_each(|v| live[v.0 as usize] = true);
            } else {
                dead.insert(id);
            }
        }
        if dead.is_empty() {
            return 0;
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
