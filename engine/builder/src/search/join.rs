//! Whether moves in front of an anchor become part of its region, whose kernel then reads where they read.
//!
//! A move costs a launch and a pass over memory. A kernel that reads through it may be slower, or be another one, so that both
//! forms are timed. Regions of attention take moves in when they are formed, as their kernels lose nothing by it.

use super::price::{Item, launch};
use super::{Formed, Search, Verdict};
use crate::{BuildError, borders};
use kiln_backend::Region;
use kiln_backend::assisted::HOST_IS_DEVICE;
use kiln_ir::graph::Uses;
use kiln_ir::op::Movement;
use kiln_ir::{DimKind, Graph, NodeId, ValueId};
use std::collections::HashMap;

/// A region that may take others in.
pub(super) struct Site {
    /// The region.
    pub at: usize,
    /// The regions that it takes in, a layer each.
    pub others: Vec<usize>,
    /// Nodes of all, in execution order.
    pub nodes: Vec<NodeId>,
}

impl Search<'_, '_> {
    /// Joins moves and the regions that read them, where that is faster.
    pub(super) fn join(&mut self, f: &mut Formed) -> Result<(), BuildError> {
        let uses = f.graph.uses();
        let alone = moves_alone(f);
        let sites = |s: &Self, f: &Formed| {
            (0..f.regions.len()).filter_map(|at| s.site(f, &alone, &uses, at)).collect::<Vec<_>>()
        };
        self.join_sites(f, "join moves", &uses, sites)
    }

    /// Joins the regions of sites where that is faster; equal sites are decided once. No two sites have a region in common.
    pub(super) fn join_sites(
        &mut self,
        f: &mut Formed,
        name: &'static str,
        uses: &Uses,
        sites: impl Fn(&Self, &Formed) -> Vec<Site>,
    ) -> Result<(), BuildError> {
        // There layers of a region run one by one.
        if self.cx.target.has(HOST_IS_DEVICE) {
            return Ok(());
        }
        let sites = sites(self, f);
        let mut gone = vec![false; f.regions.len()];
        for sites in self.classes(sites, |s| self.item(f, &s.nodes, uses))? {
            let Some(first) = sites.first() else { continue };
            let verdict = match self.joined(f, first, uses)? {
                Verdict::Refused(why) => Verdict::Refused(why),
                _ if self.ends_reformat(f, first) => Verdict::Direct,
                timed => timed,
            };
            let layer = self.item(f, &f.regions[first.at], uses)?.layer;
            if self.note(name, layer, sites.len(), verdict) {
                for site in sites {
                    site.others.iter().for_each(|&m| gone[m] = true);
                    f.regions[site.at] = site.nodes;
                }
            }
        }
        let mut gone = gone.into_iter();
        f.regions.retain(|_| gone.next() != Some(true));
        Ok(())
    }

    /// The moves that a region can take in: those of all inputs of its anchor, else those of the first input whose moves the
    /// backend reads through.
    fn site(&self, f: &Formed, alone: &HashMap<NodeId, usize>, uses: &Uses, at: usize) -> Option<Site> {
        let nodes = f.regions.get(at)?;
        let &anchor = nodes.iter().find(|&&n| f.graph.get(n).is_some_and(|n| !n.op.is_pointwise()))?;
        let node =
            f.graph.get(anchor).filter(|n| !n.op.roles().control && !n.op.movement().is_addressable())?;
        let chains: Vec<Vec<NodeId>> = (0..node.inputs.len())
            .filter(|&i| !node.op.port(i).is_some_and(|p| p.host))
            .filter_map(|i| node.inputs[i])
            .map(|v| chain(f, alone, uses, nodes, v))
            .filter(|c| moves_data(&f.graph, c))
            .collect();
        let all: Vec<NodeId> = chains.iter().flatten().copied().collect();
        let one = chains.iter().filter(|_| chains.len() > 1).cloned();
        std::iter::once(all).chain(one).find_map(|mut moves| {
            moves.sort_by_key(|n| alone.get(n));
            moves.dedup();
            let at_moves: Vec<usize> = moves.iter().filter_map(|n| alone.get(n).copied()).collect();
            moves.extend(nodes);
            let region = Region::extract_with(&f.graph, &moves, uses).ok()?;
            let fits = !at_moves.is_empty() && self.cx.backend.supports(&region, self.cx.target).is_ok();
            fits.then_some(Site { at, others: at_moves, nodes: moves })
        })
    }

    /// Whether kernels that only reformat inputs or outputs become part of another, which counts more than time.
    fn ends_reformat(&self, f: &Formed, site: &Site) -> bool {
        let reformats = |r: &usize| borders::is_reformat(&f.graph, &f.regions[*r]);
        self.cx.config.direct_io
            && site.others.iter().chain([&site.at]).any(reformats)
            && !borders::is_reformat(&f.graph, &site.nodes)
    }

    /// Times of the joined region and of its parts.
    fn joined(&mut self, f: &Formed, site: &Site, uses: &Uses) -> Result<Verdict, BuildError> {
        let item = |nodes: &[NodeId]| self.item(f, nodes, uses);
        let whole = item(&site.nodes)?;
        let parts = site.others.iter().chain([&site.at]).map(|&r| item(&f.regions[r]));
        let parts = parts.collect::<Result<Vec<Item>, _>>()?;
        let t = &mut *self.tuner;
        let mut expect = |i: &Item| t.estimate(&i.layer, &i.region, &i.facts).ok().flatten();
        let apart = parts.iter().map(&mut expect).try_fold(0.0, |sum, ns| Some(sum + ns?));
        if let (Some(whole), Some(apart)) = (expect(&whole), apart)
            && whole > apart * self.cx.config.estimate_limit
        {
            return Ok(Verdict::Hopeless(whole / apart));
        }
        let launch = launch(self.cx.target);
        self.tuner.ahead(parts.iter().chain([&whole]).map(Item::parts))?;
        let mut without = 0.0;
        for part in &parts {
            without += self.time_as_formed(part)? + launch;
        }
        match self.tuner.time(&whole.layer, &whole.region, &whole.facts) {
            Ok(ns) => Ok(Verdict::Timed { without, with: ns + launch }),
            Err(BuildError::NoTactic { reasons, .. }) => Ok(Verdict::Refused(reasons)),
            Err(e) => Err(e),
        }
    }
}

/// Moves that are regions by themselves, with the positions of these.
fn moves_alone(f: &Formed) -> HashMap<NodeId, usize> {
    let single = |(at, nodes): (usize, &Vec<NodeId>)| match nodes[..] {
        [n] if f.graph.get(n).is_some_and(|n| n.op.movement().is_addressable()) => Some((n, at)),
        _ => None,
    };
    f.regions.iter().enumerate().filter_map(single).collect()
}

/// The moves in front of a value that work for these nodes alone, the last one first.
fn chain(
    f: &Formed,
    alone: &HashMap<NodeId, usize>,
    uses: &Uses,
    nodes: &[NodeId],
    mut v: ValueId,
) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = Vec::new();
    while let Some((id, node)) = f.graph.producer(v) {
        let readers = uses.of_value(v).iter();
        let own = readers.clone().all(|(r, _)| nodes.contains(r) || found.contains(r));
        let known = f.graph.ty(v).dims.iter().all(|d| d.kind() <= DimKind::Host);
        let first = node.inputs.first().copied().flatten();
        match (alone.contains_key(&id) && own && known && !uses.is_output(v), first) {
            (true, Some(from)) => {
                found.push(id);
                v = from;
            }
            _ => break,
        }
    }
    found
}

/// Whether any of these moves does more than change the shape.
fn moves_data(g: &Graph, moves: &[NodeId]) -> bool {
    let movement = |n: &NodeId| g.get(*n).map(|n| n.op.movement());
    moves.iter().filter_map(movement).any(|m| m != Movement::Reshape)
}
