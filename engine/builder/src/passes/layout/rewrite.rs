//! Rewrites one island to channels last.

use super::SUFFIX;
use super::roles::{Role, image_inputs, role};
use kiln_ir::{Attr, Attrs, Graph, IrError, Node, NodeId, Op, Tensor, ValueId};
use kiln_ops::layout::{moved_inputs, to_first, to_last};
use kiln_ops::shape::RESHAPE;
use kiln_ops::transpose::TRANSPOSE;
use std::collections::{HashMap, HashSet};

/// Rewrites the layers of an island to channels last, with transposes where values enter and leave it. Values
/// inside get new names; those that leave keep theirs.
pub fn apply(g: &mut Graph, island: &[NodeId]) -> Result<(), IrError> {
    let mut r = Rewrite { g, at: 0, last: HashMap::new() };
    for &id in island {
        r.layer(id)?;
    }
    let members: HashSet<NodeId> = island.iter().copied().collect();
    for &id in island {
        r.leave(id, &members)?;
    }
    for &id in island.iter().rev() {
        r.g.remove_node(id);
    }
    Ok(())
}

struct Rewrite<'a> {
    g: &'a mut Graph,
    /// Position at which the next layer is inserted.
    at: usize,
    /// Values with channels last, by what they are in the linear layout.
    last: HashMap<ValueId, ValueId>,
}

impl Rewrite<'_> {
    /// Adds the layer in its new form behind the old one.
    fn layer(&mut self, id: NodeId) -> Result<(), IrError> {
        let Some(node) = self.g.get(id).cloned() else { return Ok(()) };
        let Some(role) = role(self.g, &node) else {
            return Err(IrError::Structure(format!("layer \"{}\" can't have channels last", node.name)));
        };
        self.at = self.g.order().iter().position(|&n| n == id).map_or(0, |p| p + 1);
        let rank = self.g.ty(node.outputs[0]).rank();
        let mut inputs = node.inputs.clone();
        for i in image_inputs(self.g, &node) {
            if let Some(v) = node.inputs[i] {
                inputs[i] = Some(self.enter(v)?);
            }
        }
        let attrs = node.op.attrs().clone();
        let attrs = match role {
            Role::Layout => {
                for slot in inputs.iter_mut().take(moved_inputs(node.op.def())).skip(1) {
                    *slot = slot.map(|v| self.enter(v)).transpose()?;
                }
                attrs.with("layout", "channels_last")
            }
            Role::Attrs(new) => new,
            Role::Pointwise => {
                self.spread(&node, &mut inputs, rank)?;
                attrs
            }
            Role::Axes { at, axes } => {
                let axes = self.numbers(&format!("{}.axes", node.name), &axes)?;
                inputs.resize(inputs.len().max(at + 1), None);
                inputs[at] = Some(axes);
                attrs
            }
        };
        let y = self.add(&node.name, Op::new(node.op.name(), attrs)?, &inputs)?;
        if let Some(new) = self.g.producer(y).map(|(n, _)| n).and_then(|n| self.g.get_mut(n)) {
            new.meta = node.meta;
        }
        let name = self.g.unique_name(&format!("{}{SUFFIX}", self.g.value(node.outputs[0]).name));
        self.g.value_mut(y).name = name;
        self.last.insert(node.outputs[0], y);
        Ok(())
    }

    /// A value with channels last.
    fn enter(&mut self, v: ValueId) -> Result<ValueId, IrError> {
        if let Some(&known) = self.last.get(&v) {
            return Ok(known);
        }
        let name = format!("{}{SUFFIX}", self.g.value(v).name);
        let y = self.transpose(&name, v, &to_last(self.g.ty(v).rank()))?;
        self.last.insert(v, y);
        Ok(y)
    }

    /// Constants of lower rank get leading dimensions, so that they broadcast along the same ones as before.
    fn spread(&mut self, node: &Node, inputs: &mut [Option<ValueId>], rank: usize) -> Result<(), IrError> {
        for (i, slot) in inputs.iter_mut().enumerate() {
            let Some(v) = node.inputs[i] else { continue };
            let dims = self.g.ty(v).static_dims().unwrap_or_default();
            if dims.is_empty() || self.g.ty(v).rank() == rank {
                continue;
            }
            let lead = std::iter::repeat_n(1, rank.saturating_sub(dims.len()));
            let shape: Vec<i64> = lead.chain(dims.iter().map(|&d| d as i64)).collect();
            let shape = self.numbers(&format!("{}.shape{i}", node.name), &shape)?;
            let op = Op::new(RESHAPE, Attrs::new().with("allow_zero", Attr::Bool(true)))?;
            let wide = self.add(&format!("{}.in{i}", node.name), op, &[Some(v), Some(shape)])?;
            *slot = Some(self.transpose(&format!("{}.in{i}{SUFFIX}", node.name), wide, &to_last(rank))?);
        }
        Ok(())
    }

    /// If anything outside reads a layer's result, it gets it in the linear layout, under its name.
    fn leave(&mut self, id: NodeId, members: &HashSet<NodeId>) -> Result<(), IrError> {
        let Some(y) = self.g.get(id).and_then(|n| n.outputs.first().copied()) else { return Ok(()) };
        let outside = |(n, node): (NodeId, &Node)| !members.contains(&n) && node.inputs.contains(&Some(y));
        if !self.g.outputs.contains(&y) && !self.g.nodes().any(outside) {
            return Ok(());
        }
        let Some(&last) = self.last.get(&y) else { return Ok(()) };
        let after = self.g.producer(last).map(|(n, _)| n);
        self.at = self.g.order().iter().position(|&n| Some(n) == after).map_or(0, |p| p + 1);
        let name = std::mem::take(&mut self.g.value_mut(y).name);
        let back = self.transpose(&name, last, &to_first(self.g.ty(last).rank()))?;
        // The rule of a moved layer may know less of its result.
        let fact = self.g.value(y).fact.clone();
        self.g.value_mut(back).fact = fact;
        self.g.replace_uses(y, back);
        Ok(())
    }

    fn transpose(&mut self, name: &str, v: ValueId, perm: &[usize]) -> Result<ValueId, IrError> {
        let perm: Vec<i64> = perm.iter().map(|&p| p as i64).collect();
        self.add(name, Op::new(TRANSPOSE, Attrs::new().with("perm", perm))?, &[Some(v)])
    }

    fn numbers(&mut self, name: &str, v: &[i64]) -> Result<ValueId, IrError> {
        let t = Tensor::i64(&[v.len()], v)
            .ok_or_else(|| IrError::Structure("a list could not be made".into()))?;
        let name = self.g.unique_name(name);
        Ok(self.g.add_constant(&name, t))
    }

    fn add(&mut self, name: &str, op: Op, inputs: &[Option<ValueId>]) -> Result<ValueId, IrError> {
        let out = self.g.insert_node(self.at, name, op, inputs)?;
        self.at += 1;
        out.first().copied().ok_or_else(|| IrError::Structure(format!("layer \"{name}\" has no output")))
    }
}
