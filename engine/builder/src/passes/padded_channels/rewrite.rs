//! Pads the channels of one set.

use super::anchors::{Anchor, is_depthwise};
use super::set::{Set, channels};
use crate::BuildError;
use kiln_ir::{Attrs, Dim, Graph, IrError, NodeId, Op, Tensor, ValueId};
use kiln_ops::slice::SLICE;
use kiln_ops::slice::pad::PAD;
use std::collections::HashMap;

/// Pads all values of a set in place: layers keep their numbers. False, and nothing changed, where the graph has
/// changed since the set was found.
pub fn apply(g: &mut Graph, set: &Set) -> Result<bool, BuildError> {
    let there = |(&v, &axis): (&ValueId, &usize)| channels(g, v, axis) == Some(set.channels);
    if !set.values.iter().all(there) || !set.nodes.iter().all(|&n| g.get(n).is_some()) {
        return Ok(false);
    }
    g.attempt(|g| {
        let mut rewrite = Rewrite { g, set, constants: HashMap::new() };
        rewrite.layers()?;
        rewrite.values()?;
        Ok(true)
    })
}

struct Rewrite<'a> {
    g: &'a mut Graph,
    set: &'a Set,
    /// Constants that have more channels already, by what they were, the axis, and the number there.
    constants: HashMap<(ValueId, usize, bool), ValueId>,
}

impl Rewrite<'_> {
    /// Weights and other constants of the set's layers get more channels.
    fn layers(&mut self) -> Result<(), IrError> {
        for &id in &self.set.makers {
            let axis = self.g.get(id).and_then(|n| Anchor::of(self.g, n)).map(|a| a.to);
            self.constant(id, 1, axis.unwrap_or(0), None)?;
            self.constant(id, 2, 0, None)?;
        }
        for &id in &self.set.readers {
            let axis = self.g.get(id).and_then(|n| Anchor::of(self.g, n)).map(|a| a.from);
            self.constant(id, 1, axis.unwrap_or(0), None)?;
        }
        for (&id, pads) in &self.set.through {
            let Some(node) = self.g.get(id) else { continue };
            if is_depthwise(self.g, node) {
                let attrs = node.op.attrs().clone().with("groups", self.set.padded as i64);
                let op = Op::new(node.op.name(), attrs)?;
                self.constant(id, 1, 0, None)?;
                self.constant(id, 2, 0, None)?;
                if let Some(node) = self.g.get_mut(id) {
                    node.op = op;
                }
                continue;
            }
            let rank = node.outputs.first().map_or(0, |&y| self.g.ty(y).rank());
            let axis = node.outputs.first().and_then(|y| self.set.values.get(y)).copied().unwrap_or(0);
            for (&at, number) in pads {
                let own = self.input(id, at).map_or(0, |v| self.g.ty(v).rank());
                self.constant(id, at, (axis + own).saturating_sub(rank), Some(number))?;
            }
        }
        Ok(())
    }

    /// Values get more channels: by a layer behind those that no layer of the set makes. Who else reads a value
    /// gets it without them.
    fn values(&mut self) -> Result<(), IrError> {
        for (&v, &axis) in &self.set.values {
            let maker = self.g.producer(v).map(|(n, _)| n);
            let made =
                maker.is_some_and(|n| self.set.makers.contains(&n) || self.set.through.contains_key(&n));
            let uses = self.g.uses();
            let of_set = |n: NodeId, i: usize| match self.set.through.contains_key(&n) {
                true => true,
                false => i == 0 && self.set.readers.contains(&n),
            };
            let (own, others): (Vec<_>, Vec<_>) =
                uses.of_value(v).iter().copied().partition(|&(n, i)| of_set(n, i));
            let at = self.behind(v);
            if !made {
                let wide = self.pad(v, axis, None, at)?;
                self.give(&own, wide);
                continue;
            }
            let outputs: Vec<usize> = (0..self.g.outputs.len()).filter(|&i| self.g.outputs[i] == v).collect();
            let fact = self.g.value(v).fact.clone();
            self.g.value_mut(v).fact.ty.dims[axis] = Dim::new(self.set.padded as i64);
            if others.is_empty() && outputs.is_empty() {
                continue;
            }
            let cut = self.cut(v, axis, at)?;
            self.g.value_mut(cut).fact = fact;
            let name = self.g.value(v).name.clone();
            let wide = self.g.unique_name(&format!("{name}.padded"));
            self.g.value_mut(v).name = wide;
            self.g.value_mut(cut).name = name;
            self.give(&others, cut);
            outputs.into_iter().for_each(|i| self.g.outputs[i] = cut);
        }
        Ok(())
    }

    /// The place in the order where a value is known.
    fn behind(&self, v: ValueId) -> usize {
        let maker = self.g.producer(v).map(|(n, _)| n);
        maker.and_then(|m| self.g.order().iter().position(|&n| n == m)).map_or(0, |p| p + 1)
    }

    fn input(&self, node: NodeId, at: usize) -> Option<ValueId> {
        self.g.get(node)?.inputs.get(at).copied().flatten()
    }

    /// A constant of a layer gets more channels, zeros or this number.
    fn constant(
        &mut self,
        node: NodeId,
        at: usize,
        axis: usize,
        number: Option<&Tensor>,
    ) -> Result<(), IrError> {
        let Some(v) = self.input(node, at) else { return Ok(()) };
        let other = number.is_some_and(|n| n.scalar_f64() != Some(0.0));
        let wide = match self.constants.get(&(v, axis, other)) {
            Some(&known) => known,
            None => {
                let wide = self.pad(v, axis, number.filter(|_| other), self.behind(v))?;
                self.constants.insert((v, axis, other), wide);
                wide
            }
        };
        self.give(&[(node, at)], wide);
        Ok(())
    }

    fn give(&mut self, readers: &[(NodeId, usize)], v: ValueId) {
        for &(n, i) in readers {
            if let Some(slot) = self.g.get_mut(n).and_then(|n| n.inputs.get_mut(i)) {
                *slot = Some(v);
            }
        }
    }

    /// A layer at a place of the order that adds channels.
    fn pad(
        &mut self,
        v: ValueId,
        axis: usize,
        number: Option<&Tensor>,
        at: usize,
    ) -> Result<ValueId, IrError> {
        let name = format!("{}.padded", self.g.value(v).name);
        let pads = self.numbers(&name, &[0, (self.set.padded - self.set.channels) as i64])?;
        let axes = self.numbers(&name, &[axis as i64])?;
        let number = number.map(|t| {
            let name = self.g.unique_name(&format!("{name}.value"));
            self.g.add_constant(&name, t.clone())
        });
        self.layer(at, &name, Op::new(PAD, Attrs::new())?, &[Some(v), Some(pads), number, Some(axes)])
    }

    /// A layer at a place of the order that takes the added channels away.
    fn cut(&mut self, v: ValueId, axis: usize, at: usize) -> Result<ValueId, IrError> {
        let name = format!("{}.cut", self.g.value(v).name);
        let (starts, ends) = (self.numbers(&name, &[0])?, self.numbers(&name, &[self.set.channels as i64])?);
        let axes = self.numbers(&name, &[axis as i64])?;
        self.layer(at, &name, Op::new(SLICE, Attrs::new())?, &[Some(v), Some(starts), Some(ends), Some(axes)])
    }

    fn numbers(&mut self, name: &str, list: &[i64]) -> Result<ValueId, IrError> {
        let t = Tensor::i64(&[list.len()], list);
        let t = t.ok_or_else(|| IrError::Structure("a list could not be made".into()))?;
        let name = self.g.unique_name(&format!("{name}.list"));
        Ok(self.g.add_constant(&name, t))
    }

    fn layer(
        &mut self,
        at: usize,
        name: &str,
        op: Op,
        inputs: &[Option<ValueId>],
    ) -> Result<ValueId, IrError> {
        let out = self.g.insert_node(at, name, op, inputs)?;
        out.first().copied().ok_or_else(|| IrError::Structure(format!("layer \"{name}\" has no output")))
    }
}
