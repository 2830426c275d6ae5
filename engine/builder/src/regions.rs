//! Cuts a graph into regions. A region is one anchor with the pointwise layers after it, or pointwise layers
//! alone, with the views that these read. A layer that can read a moved operand at its old place forms a
//! region with the moves.
//!
//! Every region has one value that is read outside, which all its layers work for; so no two regions wait for each
//! other. The backend is asked whether it runs a grown region as one kernel; what it refuses is cut smaller. Nothing
//! here is needed for correctness: a region of one node always exists.

use kiln_backend::{Backend, Region, Target};
use kiln_ir::graph::Uses;
use kiln_ir::op::Movement;
use kiln_ir::{DimKind, Graph, Node, NodeId, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::quantize::DEQUANTIZE;
use kiln_ops::slice::insert::INSERT_SLICE;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Nodes of one region grow no further than this.
const MAX_NODES: usize = 24;

/// Regions in execution order; together they cover every node once.
pub fn form(g: &Graph, backend: &dyn Backend, target: &Target, fuse: bool) -> Vec<Vec<NodeId>> {
    let mut former = Former::new(g, backend, target);
    if fuse {
        for id in g.nodes().filter(|(_, n)| n.op.roles().reads_through_movement).map(|(id, _)| id) {
            let members = former.with_moves(id);
            former.settle(members);
        }
        let anchor = |id: &NodeId, n: &Node| {
            let roles = n.op.roles();
            roles.absorbs_pointwise && (roles.reads_through_movement || !former.of.contains_key(id))
        };
        let anchors: Vec<NodeId> =
            g.nodes().rev().filter(|(id, n)| anchor(id, n)).map(|(id, _)| id).collect();
        // The last anchor has the first choice: what it adds up is done when it runs.
        for &a in &anchors {
            former.grow_behind(a);
        }
        for &a in &anchors {
            former.take_in(a);
        }
        let pointwise: Vec<NodeId> =
            g.nodes().rev().filter(|(_, n)| n.op.is_pointwise()).map(|(id, _)| id).collect();
        for id in pointwise {
            if !former.of.contains_key(&id) {
                former.settle(vec![id]);
                former.take_in(id);
            }
        }
    }
    if fuse {
        for id in g.nodes().filter(|(_, n)| n.op.is(INSERT_SLICE)).map(|(id, _)| id) {
            former.store_in_place(id);
        }
    }
    for &id in g.order() {
        if !former.of.contains_key(&id) {
            former.settle(vec![id]);
        }
    }
    schedule(g, former.regions, &former.of)
}

struct Former<'a> {
    g: &'a Graph,
    backend: &'a dyn Backend,
    target: &'a Target,
    uses: Uses,
    /// Position of each node in the order of execution.
    rank: HashMap<NodeId, usize>,
    of: HashMap<NodeId, usize>,
    /// The anchor first, the others in the order of execution.
    regions: Vec<Vec<NodeId>>,
}

impl<'a> Former<'a> {
    fn new(g: &'a Graph, backend: &'a dyn Backend, target: &'a Target) -> Former<'a> {
        let rank = g.order().iter().enumerate().map(|(i, &n)| (n, i)).collect();
        Former { g, backend, target, uses: g.uses(), rank, of: HashMap::new(), regions: Vec::new() }
    }

    fn settle(&mut self, members: Vec<NodeId>) {
        self.of.extend(members.iter().map(|&n| (n, self.regions.len())));
        self.regions.push(members);
    }

    fn readers(&self, v: ValueId) -> impl Iterator<Item = NodeId> + '_ {
        self.uses.of_value(v).iter().map(|(n, _)| *n)
    }

    fn outputs(&self, id: NodeId) -> &'a [ValueId] {
        self.g.get(id).map_or(&[], |n| &n.outputs)
    }

    /// Whether a node may be computed where the elements of `like` are, in a region that is still to be made.
    fn joins(&self, id: NodeId, like: ValueId) -> bool {
        let fits = |n: &Node| {
            n.op.is_pointwise() && matches!(n.outputs[..], [y] if self.g.ty(y).dims == self.g.ty(like).dims)
        };
        !self.of.contains_key(&id) && self.g.get(id).is_some_and(fits)
    }

    /// Makes the region of an anchor, or the one that it has with moves in front, as large as layers behind it allow.
    fn grow_behind(&mut self, anchor: NodeId) {
        match self.of.get(&anchor).copied() {
            None => {
                let members = self.behind(anchor, vec![anchor]);
                self.settle(members);
            }
            Some(r) => {
                let members = self.behind(anchor, self.regions[r].clone());
                self.of.extend(members.iter().map(|&n| (n, r)));
                self.regions[r] = members;
            }
        }
    }

    /// The largest region of an anchor, these members and pointwise layers behind it that the backend runs.
    fn behind(&self, anchor: NodeId, with: Vec<NodeId>) -> Vec<NodeId> {
        let mut closed = Vec::new();
        let mut members = with.clone();
        let Some(&y) = self.outputs(anchor).first() else { return members };
        let mut next: BTreeSet<(usize, NodeId)> = self.candidates(anchor, y).collect();
        while let Some((_, id)) = next.pop_first()
            && members.len() < MAX_NODES
        {
            members.push(id);
            match self.exits(&members, y) {
                Exits::One => closed.push(members.len()),
                Exits::More => {}
                Exits::Never => break,
            }
            next.extend(self.candidates(id, y));
        }
        for n in closed.into_iter().rev() {
            members.truncate(n);
            let end = members.iter().rposition(|&n| n == anchor || !self.widens_for_readers(n, y));
            let narrow = &members[..end.map_or(n, |e| e + 1)];
            if narrow.len() < n && self.accepted(narrow) {
                return narrow.to_vec();
            }
            if self.accepted(&members) {
                return members;
            }
        }
        with
    }

    /// Whether a layer only widens elements for pointwise layers of other regions. These widen what they read themselves, so that the
    /// narrow elements are stored.
    fn widens_for_readers(&self, id: NodeId, like: ValueId) -> bool {
        let Some(node) = self.g.get(id).filter(|n| n.op.is(CAST) || n.op.is(DEQUANTIZE)) else {
            return false;
        };
        let (Some(&Some(x)), &[y]) = (node.inputs.first(), &node.outputs[..]) else { return false };
        let pointwise = |n: NodeId| {
            let fits = |n: &Node| {
                n.op.is_pointwise() && n.outputs.iter().all(|&z| self.g.ty(z).dims == self.g.ty(like).dims)
            };
            self.g.get(n).is_some_and(fits)
        };
        let wider = self.g.ty(y).dtype.bits() > self.g.ty(x).dtype.bits();
        wider && !self.uses.is_output(y) && self.readers(y).next().is_some() && self.readers(y).all(pointwise)
    }

    fn candidates(&self, id: NodeId, like: ValueId) -> impl Iterator<Item = (usize, NodeId)> + '_ {
        let readers = self.outputs(id).iter().flat_map(move |&v| self.readers(v));
        readers.filter(move |&n| self.joins(n, like)).filter_map(|n| Some((*self.rank.get(&n)?, n)))
    }

    /// Number of values of these nodes that are read outside, and whether those could become one.
    fn exits(&self, members: &[NodeId], like: ValueId) -> Exits {
        let (mut open, mut fixed) = (0, 0);
        for v in members.iter().flat_map(|&n| self.outputs(n)) {
            let mut outside = self.readers(*v).filter(|n| !members.contains(n)).peekable();
            let output = self.uses.is_output(*v);
            open += usize::from(output || outside.peek().is_some());
            fixed += usize::from(output || outside.any(|n| !self.joins(n, like)));
        }
        match (open, fixed) {
            (1, _) => Exits::One,
            (_, 0 | 1) => Exits::More,
            _ => Exits::Never,
        }
    }

    /// Takes layers into the region of a node that only work for it: all that there are, else one by one. A region that begins with
    /// moves stays as it is.
    fn take_in(&mut self, id: NodeId) {
        let Some(&r) = self.of.get(&id).filter(|r| self.regions[**r].first() == Some(&id)) else { return };
        let mut members = self.regions[r].clone();
        let mut refused = HashSet::new();
        let mut all = members.clone();
        while let Some(grown) = self.grown(&all, id, &refused) {
            all = grown;
        }
        if all.len() > members.len() && self.accepted(&all) {
            members = all;
        }
        while let Some(grown) = self.grown(&members, id, &refused) {
            match self.accepted(&grown) {
                true => members = grown,
                false => refused.extend(grown.into_iter().filter(|n| !members.contains(n))),
            }
        }
        self.of.extend(members.iter().map(|&n| (n, r)));
        self.regions[r] = members;
    }

    /// The members of the region of a node and one more layer that only works for them.
    fn grown(&self, members: &[NodeId], id: NodeId, refused: &HashSet<NodeId>) -> Option<Vec<NodeId>> {
        let p = self.servant(members, refused).filter(|_| members.len() < MAX_NODES)?;
        let mut grown = [members, &[p]].concat();
        grown.sort_by_key(|&n| (self.turn(n, id), self.rank.get(&n).copied()));
        Some(grown)
    }

    /// Takes an `insert_slice` into the region of the layer that computes its part, if nobody else reads that. The other parts have to
    /// come from layers like it, in memory that no user binds.
    fn store_in_place(&mut self, id: NodeId) {
        let Some([into, Some(part)]) = self.g.get(id).map(|n| &n.inputs[..]) else { return };
        let by_insert = |v: ValueId| self.g.producer(v).is_some_and(|(_, n)| n.op.is(INSERT_SLICE));
        let alone = |v: ValueId| !self.uses.is_output(v) && self.uses.of_value(v).len() == 1;
        let bound = self.outputs(id).iter().any(|y| self.uses.is_output(*y));
        if into.is_some_and(|v| bound || !by_insert(v) || !alone(v)) || !alone(*part) {
            return;
        }
        let Some(&r) = self.g.producer(*part).and_then(|(p, _)| self.of.get(&p)) else { return };
        let mut grown = self.regions[r].clone();
        grown.push(id);
        if self.accepted(&grown) {
            self.of.insert(id, r);
            self.regions[r] = grown;
        }
    }

    /// A layer, behind the moves that work for it alone: all of them, or the slices that it reads, if the backend runs them
    /// as one.
    fn with_moves(&self, id: NodeId) -> Vec<NodeId> {
        let mut all = vec![id];
        while let Some(p) = self.mover(&all, Movement::is_addressable) {
            all.push(p);
        }
        let mut slices = vec![id];
        while let Some(p) = self.mover(&slices, |m| m == Movement::Slice) {
            slices.push(p);
        }
        for mut members in [all, slices] {
            members.sort_by_key(|n| (*n == id, self.rank.get(n).copied()));
            if members.len() > 1 && self.accepted(&members) {
                return members;
            }
        }
        vec![id]
    }

    /// A move of one of these operators whose result is read by these nodes alone.
    fn mover(&self, members: &[NodeId], fits: fn(Movement) -> bool) -> Option<NodeId> {
        let nodes = members.iter().filter_map(|&n| self.g.get(n));
        let read = nodes.flat_map(|n| {
            n.inputs.iter().enumerate().filter(|(i, _)| n.op.port(*i).is_some_and(|p| !p.host))
        });
        read.filter_map(|(_, v)| *v).find_map(|v| {
            let (p, n) = self.g.producer(v)?;
            let known =
                n.outputs.iter().all(|&v| self.g.ty(v).dims.iter().all(|d| d.kind() <= DimKind::Host));
            let alone = !self.uses.is_output(v) && self.readers(v).all(|r| members.contains(&r));
            let new = !members.contains(&p) && !self.of.contains_key(&p);
            (fits(n.op.movement()) && known && alone && new).then_some(p)
        })
    }

    /// Rank of a layer in the order of a region: numbers for the host first, then the anchor, if `head` is
    /// one, then the others.
    fn turn(&self, n: NodeId, head: NodeId) -> u8 {
        match self.g.get(n).map(|n| &n.op) {
            Some(op) if op.roles().host_known => 0,
            Some(op) if n == head && !op.is_pointwise() => 1,
            _ => 2,
        }
    }

    /// A layer that only the pointwise layers of a region read, or that computes numbers on the host for its
    /// other layers.
    fn servant(&self, members: &[NodeId], refused: &HashSet<NodeId>) -> Option<NodeId> {
        let like = *self.outputs(*members.last()?).first()?;
        let read = members.iter().filter_map(|&n| self.g.get(n)).flat_map(|n| n.inputs.iter().flatten());
        let found =
            read.filter(|v| !self.uses.is_output(**v)).filter_map(|&v| Some((v, self.g.producer(v)?)));
        let serves = |&(v, (id, n)): &(ValueId, (NodeId, &Node))| {
            let new = !members.contains(&id) && !refused.contains(&id) && !self.of.contains_key(&id);
            let readers = || self.uses.of_value(v).iter();
            let at_pointwise = || {
                let pointwise = |r: &NodeId| self.g.get(*r).is_some_and(|n| n.op.is_pointwise());
                readers().all(|(r, _)| members.contains(r) && pointwise(r))
            };
            let at_host = || {
                let host = |r: &NodeId, i| self.g.get(*r).and_then(|n| n.op.port(i)).is_some_and(|p| p.host);
                readers().all(|(r, i)| members.contains(r) && host(r, *i))
            };
            let from_outside = || {
                let inner = |v: &ValueId| self.g.producer(*v).is_some_and(|(p, _)| members.contains(&p));
                !n.inputs.iter().flatten().any(inner)
            };
            let known = || self.g.ty(v).dims.iter().all(|d| d.kind() <= DimKind::Host);
            new && match n.op.movement() {
                Movement::Reshape | Movement::Slice => known() && at_pointwise(),
                _ if n.op.roles().host_known => from_outside() && at_host(),
                _ => self.joins(id, like) && at_pointwise(),
            }
        };
        found.into_iter().find(serves).map(|(_, (id, _))| id)
    }

    /// Whether the backend runs these as one. Their outputs are one value, or all of the last node.
    fn accepted(&self, members: &[NodeId]) -> bool {
        let last = members.last().map_or(&[][..], |&n| self.outputs(n));
        Region::extract_with(self.g, members, &self.uses).is_ok_and(|region| {
            (region.outputs.len() == 1 || region.outputs.iter().all(|v| last.contains(v)))
                && self.backend.supports(&region, self.target).is_ok()
        })
    }
}

/// Values of a set of nodes that others read.
enum Exits {
    /// One: it can be a region.
    One,
    /// Several, all but one of which later members may read alone.
    More,
    /// Several that are read elsewhere.
    Never,
}

/// Orders regions so that each comes after those it reads, keeping the order of their first nodes where possible.
fn schedule(g: &Graph, regions: Vec<Vec<NodeId>>, of: &HashMap<NodeId, usize>) -> Vec<Vec<NodeId>> {
    let mut waits: Vec<HashSet<usize>> = Vec::with_capacity(regions.len());
    for (r, nodes) in regions.iter().enumerate() {
        let reads = nodes.iter().filter_map(|&n| g.get(n)).flat_map(|n| n.inputs.iter().flatten());
        waits.push(reads.filter_map(|v| of.get(&g.producer(*v)?.0).copied()).filter(|&p| p != r).collect());
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); regions.len()];
    waits.iter().enumerate().for_each(|(r, w)| w.iter().for_each(|&p| readers[p].push(r)));
    let mut left: Vec<usize> = waits.iter().map(HashSet::len).collect();
    let mut ready: std::collections::BTreeSet<usize> = (0..regions.len()).filter(|&r| left[r] == 0).collect();
    let mut order = Vec::with_capacity(regions.len());
    while let Some(r) = ready.pop_first() {
        order.push(r);
        for &reader in &readers[r] {
            left[reader] -= 1;
            if left[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    order.into_iter().map(|r| regions[r].clone()).collect()
}
