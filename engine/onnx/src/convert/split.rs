//! Results of an `If` whose branches give different ranks.
//!
//! No tensor has two ranks. So what reads such a result is converted once for each branch, inside of the conditional, until
//! the ranks agree; from there on one tensor stands for both. What reads it together with a value that depends on such a
//! tensor is converted in both branches as well.

use std::collections::{BTreeSet, HashSet};

use kiln_network::IfId;
use kiln_network::TensorId;

use super::cx::{Cx, Outs};
use super::importer::{Importer, Sides};
use crate::error::{Refusal, unsupported};
use crate::model::Node;

impl Cx<'_> {
    /// A result of a conditional; where the ranks differ, something that stands for both.
    pub(crate) fn result(
        &mut self,
        of: IfId,
        on_true: TensorId,
        on_false: TensorId,
    ) -> Result<TensorId, Refusal> {
        let either = [on_true, on_false].iter().any(|t| self.importer.splits.open.contains_key(t));
        if either {
            return unsupported("a branch gives a value whose rank depends on an If inside of it");
        }
        let (a, b) = (self.ty(on_true), self.ty(on_false));
        if a.rank() == b.rank() || a.dtype != b.dtype {
            return Ok(self.net().add_if_output(of, on_true, on_false)?.output(0)?);
        }
        // Tensors of their own, which nothing else is.
        let on_true = self.identity(on_true)?;
        let on_false = self.identity(on_false)?;
        let label = self.label();
        self.importer.splits.names.entry(of).or_insert(label);
        self.importer.splits.open.insert(on_true, Sides { of, on_true, on_false });
        Ok(on_true)
    }

    /// Says what the ranks of a value are in two branches, if they differ.
    pub(crate) fn ranks_differ(&self, t: TensorId) -> Option<String> {
        self.importer.ranks_differ(t)
    }
}

impl Importer {
    /// Says what a value is in two branches, if their ranks differ.
    pub(super) fn ranks_differ(&self, t: TensorId) -> Option<String> {
        let s = self.splits.open.get(&t)?;
        let (a, b) = (self.net.ty(s.on_true), self.net.ty(s.on_false));
        let (ranks, name) = ([a.rank(), b.rank()], self.splits.name(s.of));
        Some(format!(
            "the branches of '{name}' give it {} and {} dimensions ({a} and {b})",
            ranks[0], ranks[1]
        ))
    }

    /// The tensors that a node reads.
    fn read_by(&self, node: &Node) -> Vec<(String, TensorId)> {
        let tensor = |name: &str| Some((name.to_owned(), self.lookup(name).flatten()?));
        node.reads().filter_map(tensor).collect()
    }

    /// The conditional that a node has to be converted inside of: it reads a value of two ranks, or a value that is read
    /// together with one later on.
    pub(super) fn split_at(&self, node: &Node, later: &[Node]) -> Option<IfId> {
        if self.splits.open.is_empty() {
            return None;
        }
        let reads = self.read_by(node);
        if let Some(s) = reads.iter().find_map(|(_, t)| self.splits.open.get(t)) {
            return Some(s.of);
        }
        let behind: HashSet<IfId> = reads.iter().flat_map(|(_, t)| self.splits.behind(*t)).collect();
        behind.into_iter().find(|&of| self.meets(node, later, of))
    }

    /// Whether an output of a node is read together with a value of two ranks.
    fn meets(&self, node: &Node, later: &[Node], of: IfId) -> bool {
        let mut names: BTreeSet<&str> = node.outputs.iter().map(String::as_str).collect();
        names.remove("");
        for n in later {
            if !n.reads().any(|name| names.contains(name)) {
                continue;
            }
            let open = |name: &str| self.lookup(name).flatten().and_then(|t| self.splits.open.get(&t));
            if n.reads().filter_map(open).any(|s| s.of == of) {
                return true;
            }
            names.extend(n.outputs.iter().filter(|name| !name.is_empty()).map(String::as_str));
        }
        false
    }

    /// Converts a node in both branches of a conditional.
    pub(super) fn split(&mut self, node: &Node, of: IfId) -> Outs {
        let reads = self.read_by(node);
        for (name, t) in &reads {
            let known = self.splits.open.get(t).or(self.splits.joined.get(t));
            if known.is_none_or(|s| s.of != of)
                && (self.splits.open.contains_key(t) || self.splits.behind(*t).contains(&of))
            {
                let why = format!(
                    "it reads '{name}' together with another value whose rank depends on the branch of '{}'; make the \
                     ranks equal inside of the branches",
                    self.splits.name(of)
                );
                return unsupported(why);
            }
        }
        let sides = [self.side(node, of, &reads, true)?, self.side(node, of, &reads, false)?];
        let [on_true, on_false] = sides;
        let pairs = on_true.into_iter().zip(on_false);
        pairs.map(|(t, f)| self.meet(node, of, t, f)).collect()
    }

    /// Converts a node in one branch.
    fn side(&mut self, node: &Node, of: IfId, reads: &[(String, TensorId)], taken: bool) -> Outs {
        let mut bound = Vec::with_capacity(reads.len());
        for (name, t) in reads {
            let own = self.splits.open.get(t).or(self.splits.joined.get(t)).filter(|s| s.of == of);
            let inside = match own {
                Some(s) if taken => s.on_true,
                Some(s) => s.on_false,
                None if self.net.fact(*t).value.is_some() => continue,
                None => self.net.add_if_input(of, *t)?.output(0)?,
            };
            bound.push((name.clone(), inside));
        }
        // Inside, what stands for both is one of them.
        let open = std::mem::take(&mut self.splits.open);
        self.enter(bound);
        let made = self.node(node);
        self.leave();
        let inner = std::mem::replace(&mut self.splits.open, open);
        match inner.is_empty() {
            true => made,
            false => unsupported("a branch gives a value whose rank depends on an If inside of it"),
        }
    }

    /// One output of a node that was converted in both branches.
    fn meet(
        &mut self,
        node: &Node,
        of: IfId,
        on_true: TensorId,
        on_false: TensorId,
    ) -> Result<TensorId, Refusal> {
        let joined = Cx::new(self, node, Vec::new()).result(of, on_true, on_false)?;
        if !self.splits.open.contains_key(&joined) {
            self.splits.joined.insert(joined, Sides { of, on_true, on_false });
        }
        Ok(joined)
    }

    /// Notes what the outputs of a node follow from.
    pub(super) fn follow(&mut self, node: &Node, made: &[TensorId]) {
        if self.splits.joined.is_empty() {
            return;
        }
        let reads = self.read_by(node);
        let behind: HashSet<IfId> = reads.iter().flat_map(|(_, t)| self.splits.behind(*t)).collect();
        if !behind.is_empty() {
            for &t in made {
                self.splits.after.entry(t).or_default().extend(&behind);
            }
        }
    }
}
