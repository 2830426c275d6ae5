//! Putting a region in the place of its node.

use super::{Graph, Node, NodeId, Source, ValueId};
use crate::error::IrError;
use crate::op::Op;
use std::collections::HashMap;

impl Graph {
    /// Replaces a node by one of its regions: `given` stand for the region's inputs, its outputs for the node's, in
    /// order. Outputs of this graph keep their names. Facts that follow from the node's are not inferred again.
    pub fn inline_region(&mut self, n: NodeId, region: usize, given: &[ValueId]) -> Result<(), IrError> {
        let fits = |node: &&Node| {
            let r = node.regions.get(region);
            r.is_some_and(|r| r.inputs.len() == given.len() && r.outputs.len() == node.outputs.len())
        };
        if self.get(n).filter(fits).is_none() {
            return Err(IrError::Structure(format!("node {} has no region {region} of this layout", n.0)));
        }
        self.note_all();
        let Some(mut node) = self.nodes.get_mut(n.0 as usize).and_then(Option::take) else { return Ok(()) };
        let mut at = self.order.iter().position(|&o| o == n).unwrap_or(self.order.len());
        self.order.retain(|&o| o != n);
        let region = node.regions.swap_remove(region);
        let mut map: HashMap<ValueId, ValueId> =
            region.inputs.iter().copied().zip(given.iter().copied()).collect();
        let lost = || IrError::Structure(format!("region \"{}\" reads what it does not have", region.name));
        for v in region.value_ids() {
            if let Some(w) = region.weight(v) {
                let name = self.unique_name(&region.value(v).name);
                map.insert(v, self.add_weight(&name, w.clone()));
            }
        }
        for (_, inner) in region.nodes() {
            let id = NodeId(self.nodes.len() as u32);
            let read = |v: &Option<ValueId>| v.map(|v| map.get(&v).copied().ok_or_else(lost)).transpose();
            let inputs = inner.inputs.iter().map(read).collect::<Result<_, _>>()?;
            let mut outputs = Vec::with_capacity(inner.outputs.len());
            for (i, &v) in inner.outputs.iter().enumerate() {
                let def = region.value(v);
                let name = self.unique_name(&def.name);
                let new = self.add_value(&name, def.fact.clone(), Source::Node(id, i));
                map.insert(v, new);
                outputs.push(new);
            }
            self.nodes.push(Some(Node { inputs, outputs, ..inner.clone() }));
            self.order.insert(at, id);
            at += 1;
        }
        for (&old, v) in node.outputs.iter().zip(&region.outputs) {
            let mut new = map.get(v).copied().ok_or_else(lost)?;
            self.value_mut(old).source = Source::Dead;
            if self.outputs.contains(&old) {
                new = self.named_as(old, new, at)?;
            }
            self.replace_uses(old, new);
        }
        Ok(())
    }

    /// A value that is `new` under the name of `old`: `new` itself, where it may be renamed, or a copy.
    fn named_as(&mut self, old: ValueId, new: ValueId, at: usize) -> Result<ValueId, IrError> {
        let name = std::mem::take(&mut self.value_mut(old).name);
        let own = matches!(self.value(new).source, Source::Node(..)) && !self.outputs.contains(&new);
        if own {
            self.value_mut(new).name = name;
            return Ok(new);
        }
        let made = self.insert_node(at, &name, Op::new("identity", crate::Attrs::new())?, &[Some(new)])?;
        made.first().copied().ok_or_else(|| IrError::Structure("a copy has no output".into()))
    }
}
