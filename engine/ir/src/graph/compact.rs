//! The canonical numbering of values and nodes, and what it serves: compaction, equality, stored forms.

use super::{Graph, Node, NodeId, Source, ValueDef, ValueId};
use crate::error::IrError;

/// New numbers of values: inputs in order, then weights in order, then outputs of nodes in execution order.
pub(crate) struct Numbering {
    /// New numbers by old id; `None` for dead values.
    pub(crate) new: Vec<Option<ValueId>>,
    /// Old ids by new number.
    pub(crate) old: Vec<ValueId>,
}

impl Numbering {
    fn give(&mut self, v: ValueId) -> Result<(), IrError> {
        let next = ValueId(self.old.len() as u32);
        match self.new.get_mut(v.0 as usize) {
            Some(slot @ None) => *slot = Some(next),
            Some(_) => return Err(IrError::Structure(format!("{v:?} is defined twice"))),
            None => return Err(IrError::Structure(format!("{v:?} is no value of this graph"))),
        }
        self.old.push(v);
        Ok(())
    }

    /// The new number of a value; an error names the layer that reads it undefined.
    pub(crate) fn of(&self, v: ValueId, reader: &str) -> Result<ValueId, IrError> {
        self.new.get(v.0 as usize).copied().flatten().ok_or_else(|| {
            IrError::Structure(format!("{reader} reads {v:?}, which nothing defines before it"))
        })
    }
}

impl Graph {
    /// The canonical numbering; an error where a value is defined twice, or read before it is defined.
    pub(crate) fn numbering(&self) -> Result<Numbering, IrError> {
        let mut n = Numbering { new: vec![None; self.values.len()], old: Vec::new() };
        self.inputs.iter().try_for_each(|&v| n.give(v))?;
        let weights = self.value_ids().filter(|&v| self.weight(v).is_some());
        weights.into_iter().try_for_each(|v| n.give(v))?;
        for (_, node) in self.nodes() {
            for &v in node.inputs.iter().flatten() {
                n.of(v, &format!("layer \"{}\"", node.name))?;
            }
            node.outputs.iter().try_for_each(|&v| n.give(v))?;
        }
        self.outputs.iter().try_for_each(|&v| n.of(v, "the list of outputs").map(drop))?;
        Ok(n)
    }

    /// Drops dead values and removed nodes and numbers the rest anew: inputs in order, weights in order, outputs of
    /// nodes in execution order; nodes by execution order. Regions are compacted too. Returns the new ids by old id.
    /// Equal graphs are then numbered equally, whatever passes did to them.
    pub fn compact(&mut self) -> Result<Vec<Option<ValueId>>, IrError> {
        self.note_all();
        let n = self.numbering()?;
        let mut values: Vec<ValueDef> = n.old.iter().map(|&v| self.value(v).clone()).collect();
        let mut nodes = Vec::with_capacity(self.order.len());
        for (_, node) in self.nodes() {
            let id = NodeId(nodes.len() as u32);
            let mut node: Node = node.clone();
            for v in node.inputs.iter_mut().flatten() {
                *v = n.of(*v, "a layer")?;
            }
            for (k, v) in node.outputs.iter_mut().enumerate() {
                *v = n.of(*v, "a layer")?;
                values[v.0 as usize].source = Source::Node(id, k);
            }
            node.regions.iter_mut().try_for_each(|r| r.compact().map(drop))?;
            nodes.push(Some(node));
        }
        self.inputs = (0..self.inputs.len() as u32).map(ValueId).collect();
        self.outputs = self.outputs.iter().map(|&v| n.of(v, "an output")).collect::<Result<_, _>>()?;
        self.order = (0..nodes.len() as u32).map(NodeId).collect();
        self.values = values;
        self.names.rebuild(&self.values);
        self.nodes = nodes;
        Ok(n.new)
    }
}

impl PartialEq for Graph {
    /// Equal after [`Graph::compact`]: the same names, types, weights, operators and order, whatever the ids. A graph
    /// that can't be compacted equals none.
    fn eq(&self, o: &Graph) -> bool {
        let (mut a, mut b) = (self.clone(), o.clone());
        if a.compact().is_err() || b.compact().is_err() {
            return false;
        }
        a.name == b.name
            && a.strong_types == b.strong_types
            && a.weight_uses == b.weight_uses
            && a.ranges == b.ranges
            && a.debug == b.debug
            && a.allowed_formats == b.allowed_formats
            && a.packings == b.packings
            && a.values == b.values
            && a.nodes == b.nodes
            && a.inputs == b.inputs
            && a.outputs == b.outputs
    }
}
