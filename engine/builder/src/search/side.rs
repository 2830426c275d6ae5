//! Whether a reduction of a region's result becomes part of the region, whose kernel then stores both.
//!
//! A reduction by itself costs a launch and reads all that the region has just stored. A kernel that computes whole rows may be
//! slower than the best one of the region, so that both forms are timed.

use super::join::Site;
use super::{Formed, Search};
use crate::BuildError;
use kiln_backend::Region;
use kiln_ir::graph::Uses;
use kiln_ir::{DimKind, NodeId};
use kiln_ops::reduce::REDUCE;
use std::collections::{HashMap, HashSet};

impl Search<'_, '_> {
    /// Joins reductions and the regions that they read, where that is faster.
    pub(super) fn join_reductions(&mut self, f: &mut Formed) -> Result<(), BuildError> {
        let uses = f.graph.uses();
        self.join_sites(f, "join reductions", &uses, |s, f| s.reductions(f, &uses))
    }

    /// Reductions that are regions by themselves, with the regions that they can join; of several that read one region, the first.
    fn reductions(&self, f: &Formed, uses: &Uses) -> Vec<Site> {
        let region_of: HashMap<NodeId, usize> = f
            .regions
            .iter()
            .enumerate()
            .flat_map(|(at, nodes)| nodes.iter().map(move |&n| (n, at)))
            .collect();
        let mut taken = HashSet::new();
        let mut sites = Vec::new();
        for (own, nodes) in f.regions.iter().enumerate() {
            let found = self.reduction(f, uses, &region_of, own, nodes);
            sites.extend(found.filter(|site| taken.insert(site.at)));
        }
        sites
    }

    fn reduction(
        &self,
        f: &Formed,
        uses: &Uses,
        region_of: &HashMap<NodeId, usize>,
        own: usize,
        nodes: &[NodeId],
    ) -> Option<Site> {
        let &[id] = nodes else { return None };
        let node = f.graph.get(id).filter(|n| n.op.is(REDUCE))?;
        let read = (*node.inputs.first()?)?;
        let known = f.graph.ty(read).dims.iter().all(|d| d.kind() <= DimKind::Host);
        let at = *region_of.get(&f.graph.producer(read)?.0).filter(|_| known)?;
        let nodes = [&f.regions[at][..], &[id]].concat();
        let region = Region::extract_with(&f.graph, &nodes, uses).ok()?;
        let fits = self.cx.backend.supports(&region, self.cx.target).is_ok();
        fits.then_some(Site { at, others: vec![own], nodes })
    }
}
