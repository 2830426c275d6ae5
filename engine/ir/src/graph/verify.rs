//! The verifier: what must hold of a graph after every pass.

use super::{Graph, Node, Source, ValueId};
use crate::error::IrError;
use std::collections::HashSet;

impl Graph {
    /// Checks that ids exist, names are unique, each value is defined once and before it is read, and arities
    /// fit. Inference must still yield the element types and ranks on record.
    pub fn verify(&self) -> Result<(), IrError> {
        self.verify_names()?;
        let mut defined: HashSet<ValueId> = self
            .value_ids()
            .filter(|&v| matches!(self.value(v).source, Source::Input | Source::Weight(_)))
            .collect();
        if let Some(v) = self.inputs.iter().find(|v| !defined.contains(v)) {
            return Err(IrError::Structure(format!("input {v:?} is not a value of kind input")));
        }
        for (id, node) in self.nodes() {
            self.verify_node(node, &defined)?;
            for (i, &v) in node.outputs.iter().enumerate() {
                let right = v.0 < self.values.len() as u32
                    && matches!(self.value(v).source, Source::Node(n, k) if n == id && k == i);
                if !right || !defined.insert(v) {
                    return Err(IrError::Structure(format!(
                        "layer \"{}\": output {i} is defined elsewhere",
                        node.name
                    )));
                }
            }
        }
        match self.outputs.iter().find(|v| !defined.contains(v)) {
            Some(v) => Err(IrError::Structure(format!("output {v:?} is never defined"))),
            None => Ok(()),
        }
    }

    fn verify_names(&self) -> Result<(), IrError> {
        let mut seen = HashSet::new();
        match self.values.iter().find(|v| !matches!(v.source, Source::Dead) && !seen.insert(&v.name)) {
            Some(v) => Err(IrError::DuplicateName(v.name.clone())),
            None => Ok(()),
        }
    }

    fn verify_node(&self, node: &Node, defined: &HashSet<ValueId>) -> Result<(), IrError> {
        let wrap = |e| IrError::layer(&node.name, node.op.name(), e);
        if let Some(v) = node.inputs.iter().flatten().find(|v| !defined.contains(v)) {
            return Err(IrError::Structure(format!(
                "layer \"{}\" reads {v:?} before it is defined",
                node.name
            )));
        }
        node.op.check_arity(&node.inputs.iter().map(Option::is_some).collect::<Vec<_>>()).map_err(wrap)?;
        let facts: Vec<_> = node.inputs.iter().map(|v| v.map(|v| self.value(v).fact.clone())).collect();
        node.regions.iter().try_for_each(Graph::verify)?;
        let outs = node.infer(&facts)?;
        for (f, &v) in outs.iter().zip(&node.outputs) {
            let on_record = self.ty(v);
            if f.ty.dtype != on_record.dtype || f.ty.rank() != on_record.rank() {
                return Err(IrError::Structure(format!(
                    "layer \"{}\": \"{}\" is {on_record} on record, {} by inference",
                    node.name,
                    self.value(v).name,
                    f.ty
                )));
            }
        }
        if outs.len() != node.outputs.len() {
            return Err(IrError::Structure(format!(
                "layer \"{}\" has {} outputs, wants {}",
                node.name,
                node.outputs.len(),
                outs.len()
            )));
        }
        Ok(())
    }
}
