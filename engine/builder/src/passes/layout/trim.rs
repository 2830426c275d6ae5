//! The border of an island of channels last. Transposes go where values are small, so that layers at the border may be left out that
//! gain nothing by it.

use super::roles::{gains, image_inputs};
use crate::passes::bytes;
use kiln_ir::graph::Uses;
use kiln_ir::{Graph, NodeId, ValueId};
use std::collections::HashSet;

/// Leaves layers out of an island, from its border on, as long as what is transposed gets smaller.
pub fn trim(g: &Graph, uses: &Uses, island: Vec<NodeId>) -> Vec<NodeId> {
    let mut border = Border { g, uses, members: island.iter().copied().collect() };
    for &id in island.iter().rev().chain(&island) {
        border.leave_out_from(id);
    }
    island.into_iter().filter(|id| border.members.contains(id)).collect()
}

/// An island, and what is around it.
struct Border<'a> {
    g: &'a Graph,
    uses: &'a Uses,
    members: HashSet<NodeId>,
}

impl Border<'_> {
    /// Leaves out this layer and those that then are at the border, up to where the fewest bytes are transposed. The island stays as it
    /// was if none are saved.
    fn leave_out_from(&mut self, start: NodeId) {
        let (mut left, mut next) = (Vec::new(), vec![start]);
        let (mut sum, mut least, mut kept) = (0, 0, 0);
        while let Some(id) = next.pop() {
            let Some(more) = self.without(id).filter(|&more| more <= 0) else { continue };
            self.members.remove(&id);
            left.push(id);
            sum += more;
            if sum < least {
                (least, kept) = (sum, left.len());
            }
            next.extend(self.neighbours(id));
        }
        self.members.extend(left.drain(kept..));
    }

    /// Bytes more that are transposed without a layer, which is at the border and gains nothing by channels last.
    fn without(&self, id: NodeId) -> Option<i64> {
        let node = self.g.get(id).filter(|n| self.members.contains(&id) && !gains(n))?;
        let images: HashSet<ValueId> =
            image_inputs(self.g, node).into_iter().filter_map(|i| node.inputs[i]).collect();
        let within = |v: &ValueId| self.g.producer(*v).is_some_and(|(p, _)| self.members.contains(&p));
        let read = |v: &ValueId| self.uses.of_value(*v).iter().any(|(n, _)| self.members.contains(n));
        if images.iter().any(within) && node.outputs.iter().any(read) {
            return None;
        }
        let mut more = 0i64;
        for &v in images.iter().chain(&node.outputs) {
            let size = i64::try_from(self.transposed(v)?).ok()?;
            let is = |without: Option<NodeId>| i64::from(self.crosses(v, without)) * size;
            more = more.checked_add(is(Some(id)) - is(None))?;
        }
        Some(more)
    }

    /// Bytes of a value, none where a transpose moves nothing.
    fn transposed(&self, v: ValueId) -> Option<u64> {
        let dims = self.g.ty(v).static_dims()?;
        let still = dims.get(1).is_none_or(|&c| c == 1) || dims.iter().skip(2).all(|&n| n == 1);
        if still { Some(0) } else { bytes(self.g, v) }
    }

    /// Whether a value is wanted in another form than it is made in, if a layer is left out.
    fn crosses(&self, v: ValueId, without: Option<NodeId>) -> bool {
        let inside = |n: &NodeId| Some(*n) != without && self.members.contains(n);
        let image = |n: &NodeId, i: &usize| {
            self.g.get(*n).is_some_and(|node| inside(n) && image_inputs(self.g, node).contains(i))
        };
        let readers = self.uses.of_value(v);
        match self.g.producer(v).filter(|(p, _)| inside(p)) {
            Some(_) => self.g.outputs.contains(&v) || readers.iter().any(|(n, i)| !image(n, i)),
            None => self.g.weight(v).is_none() && readers.iter().any(|(n, i)| image(n, i)),
        }
    }

    /// Members that make what a layer reads, or read what it makes.
    fn neighbours(&self, id: NodeId) -> Vec<NodeId> {
        let Some(node) = self.g.get(id) else { return Vec::new() };
        let makers = node.inputs.iter().flatten().filter_map(|&v| Some(self.g.producer(v)?.0));
        let readers = node.outputs.iter().flat_map(|&v| self.uses.of_value(v)).map(|(n, _)| *n);
        makers.chain(readers).filter(|n| self.members.contains(n)).collect()
    }
}
