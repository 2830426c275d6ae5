//! Edits that can be taken back: a rewrite is tried on the graph itself, and undone where it does not hold.

use super::{Graph, Node, NodeId, ValueDef, ValueId};
use std::collections::HashMap;

/// State of a graph when an attempt began, as far as it was changed since.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    /// Values and nodes from these numbers on are new.
    values: usize,
    nodes: usize,
    order: Vec<NodeId>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    old_values: HashMap<ValueId, ValueDef>,
    old_nodes: HashMap<NodeId, Option<Node>>,
}

impl Graph {
    /// Edits the graph, and takes the edits back where `edit` returns false or an error. Much cheaper than a copy of the
    /// graph where little changes.
    pub fn attempt<E>(&mut self, edit: impl FnOnce(&mut Graph) -> Result<bool, E>) -> Result<bool, E> {
        if self.journal.is_some() {
            // An attempt inside of one works on a copy.
            let mut changed = self.clone();
            let done = edit(&mut changed)?;
            if done {
                *self = changed;
            }
            return Ok(done);
        }
        self.journal = Some(Box::new(Journal {
            values: self.values.len(),
            nodes: self.nodes.len(),
            order: self.order.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            old_values: HashMap::new(),
            old_nodes: HashMap::new(),
        }));
        let result = edit(self);
        match (&result, self.journal.take()) {
            (Ok(true), _) | (_, None) => {}
            (_, Some(journal)) => self.restore(*journal),
        }
        result
    }

    fn restore(&mut self, journal: Journal) {
        let Journal { values, nodes, order, inputs, outputs, old_values, old_nodes } = journal;
        self.values.truncate(values);
        self.nodes.truncate(nodes);
        (self.order, self.inputs, self.outputs) = (order, inputs, outputs);
        for (v, old) in old_values {
            *self.value_mut(v) = old;
        }
        for (n, old) in old_nodes {
            if let Some(node) = self.nodes.get_mut(n.0 as usize) {
                *node = old;
            }
        }
    }

    /// Notes a value before it changes.
    pub(super) fn note_value(&mut self, v: ValueId) {
        if let Some(j) = self.journal.as_mut().filter(|j| (v.0 as usize) < j.values)
            && let Some(def) = self.values.get(v.0 as usize)
        {
            j.old_values.entry(v).or_insert_with(|| def.clone());
        }
    }

    /// Notes a node before it changes.
    pub(super) fn note_node(&mut self, n: NodeId) {
        if let Some(j) = self.journal.as_mut().filter(|j| (n.0 as usize) < j.nodes)
            && let Some(node) = self.nodes.get(n.0 as usize)
        {
            j.old_nodes.entry(n).or_insert_with(|| node.clone());
        }
    }

    /// Notes everything, before an edit that may change any value or node.
    pub(super) fn note_all(&mut self) {
        if self.journal.is_some() {
            self.value_ids().for_each(|v| self.note_value(v));
            (0..self.nodes.len() as u32).for_each(|n| self.note_node(NodeId(n)));
        }
    }
}
