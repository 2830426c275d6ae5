//! Whether an anchor keeps the pointwise layers behind it in its kernel.
//!
//! Fusing saves a launch and a pass over memory, so parts are timed only where fusing may lose: where the anchor alone
//! has a tactic that the fused region lacks, or the backend expects the parts to be faster.

use super::price::launch;
use super::{Formed, Search, Verdict};
use crate::BuildError;
use kiln_ir::NodeId;
use kiln_ir::graph::Uses;

impl Search<'_, '_> {
    /// Splits the regions that are faster in two steps; equal ones are decided once.
    pub(super) fn split(&mut self, f: &mut Formed) -> Result<(), BuildError> {
        let uses = f.graph.uses();
        let anchored = |nodes: &[NodeId]| {
            let first = nodes.first().and_then(|&n| f.graph.get(n));
            nodes.len() > 1 && first.is_some_and(|n| !n.op.is_pointwise())
        };
        let sites = (0..f.regions.len()).filter(|&i| anchored(&f.regions[i]));
        let mut cut = vec![false; f.regions.len()];
        for sites in self.classes(sites, |&i| self.item(f, &f.regions[i], &uses))? {
            let Some(nodes) = sites.first().map(|&i| &f.regions[i]) else { continue };
            let Some(verdict) = self.parts(f, nodes, &uses)? else { continue };
            let layer = self.item(f, nodes, &uses)?.layer;
            if self.note("split", layer, sites.len(), verdict) {
                sites.iter().for_each(|&i| cut[i] = true);
            }
        }
        f.regions = std::mem::take(&mut f.regions)
            .into_iter()
            .zip(cut)
            .flat_map(|(nodes, cut)| match nodes.split_first() {
                Some((&head, rest)) if cut => vec![vec![head], rest.to_vec()],
                _ => vec![nodes],
            })
            .collect();
        Ok(())
    }

    /// A region against its anchor and the rest; `None` where fusing can't lose.
    fn parts(&mut self, f: &Formed, nodes: &[NodeId], uses: &Uses) -> Result<Option<Verdict>, BuildError> {
        let Some((&head, rest)) = nodes.split_first() else { return Ok(None) };
        let item = |nodes: &[NodeId]| self.item(f, nodes, uses);
        let (whole, head, rest) = (item(nodes)?, item(&[head])?, item(rest)?);
        let t = &mut *self.tuner;
        let fused = t.offered(&whole.layer, &whole.region, &whole.facts)?;
        let Ok(alone) = t.tactics(&head.layer, &head.region, &head.facts) else { return Ok(None) };
        let lost = alone.iter().any(|t| !fused.contains(t));
        let mut expect = |i: &super::price::Item| t.estimate(&i.layer, &i.region, &i.facts).ok().flatten();
        let launch = launch(self.cx.target);
        let cheaper = match (expect(&whole), expect(&head), expect(&rest)) {
            (Some(whole), Some(head), Some(rest)) => head + rest + launch < whole,
            _ => false,
        };
        if !lost && !cheaper {
            return Ok(None);
        }
        self.tuner.ahead([&whole, &head, &rest].map(super::price::Item::parts));
        let mut time = |i: &super::price::Item| self.tuner.time(&i.layer, &i.region, &i.facts);
        let without = time(&whole)? + launch;
        let verdict = match (time(&head), time(&rest)) {
            (Ok(head), Ok(rest)) => Verdict::Timed { without, with: head + rest + 2.0 * launch },
            (Err(BuildError::NoTactic { reasons, .. }), _)
            | (_, Err(BuildError::NoTactic { reasons, .. })) => Verdict::Refused(reasons),
            (Err(e), _) | (_, Err(e)) => return Err(e),
        };
        Ok(Some(verdict))
    }
}
