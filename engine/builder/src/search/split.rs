//! Whether an anchor keeps the pointwise layers behind it in its kernel.
//!
//! Fusing saves a launch and a pass over memory, so parts are timed only where fusing may lose: where the anchor alone
//! has a tactic that the fused region lacks, or the backend expects the parts to be faster.

use super::price::launch;
use super::{Formed, Search, Verdict};
use crate::BuildError;
use kiln_ir::graph::Uses;
use kiln_ir::{Graph, NodeId};

impl Search<'_, '_> {
    /// Splits the regions that are faster in two steps; equal ones are decided once.
    pub(super) fn split(&mut self, f: &mut Formed) -> Result<(), BuildError> {
        let uses = f.graph.uses();
        let sites = (0..f.regions.len()).filter(|&i| halves(&f.graph, &f.regions[i]).is_some());
        let mut cut = vec![false; f.regions.len()];
        for sites in self.classes(sites, |&i| self.item(f, &f.regions[i], &uses))? {
            let Some(nodes) = sites.first().map(|&i| &f.regions[i]) else { continue };
            let Some(verdict) = self.parts(f, nodes, &uses)? else { continue };
            let layer = self.item(f, nodes, &uses)?.layer;
            if self.note("split", layer, sites.len(), verdict) {
                sites.iter().for_each(|&i| cut[i] = true);
            }
        }
        let graph = &f.graph;
        f.regions = std::mem::take(&mut f.regions)
            .into_iter()
            .zip(cut)
            .flat_map(|(nodes, cut)| match halves(graph, &nodes) {
                Some((head, rest)) if cut => vec![head, rest],
                _ => vec![nodes],
            })
            .collect();
        Ok(())
    }

    /// A region against its anchor and the rest; `None` where fusing can't lose.
    fn parts(&mut self, f: &Formed, nodes: &[NodeId], uses: &Uses) -> Result<Option<Verdict>, BuildError> {
        let Some((head, rest)) = halves(&f.graph, nodes) else { return Ok(None) };
        let item = |nodes: &[NodeId]| self.item(f, nodes, uses);
        let (whole, head, rest) = (item(nodes)?, item(&head)?, item(&rest)?);
        let t = &mut *self.tuner;
        let fused = match t.offered(&whole.layer, &whole.region, &whole.facts) {
            Err(BuildError::NoTactic { .. }) if self.cx.config.selects() => Vec::new(),
            other => other?,
        };
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
        self.tuner.ahead([&whole, &head, &rest].map(super::price::Item::parts))?;
        let without = self.time_as_formed(&whole)? + launch;
        let mut time = |i: &super::price::Item| self.tuner.time(&i.layer, &i.region, &i.facts);
        let verdict = match (time(&head), time(&rest)) {
            (Ok(head), Ok(rest)) => Verdict::Timed { without, with: head + rest + 2.0 * launch },
            (Err(BuildError::NoTactic { reasons, .. }), _)
            | (_, Err(BuildError::NoTactic { reasons, .. })) => Verdict::Refused(reasons),
            (Err(e), _) | (_, Err(e)) => return Err(e),
        };
        Ok(Some(verdict))
    }
}

/// The anchor of a region with the moves in front of it, and the layers behind; `None` where one of them is missing. Numbers that the
/// host computes are for the layers behind.
fn halves(g: &Graph, nodes: &[NodeId]) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
    let known = |n: &NodeId| g.get(*n).is_some_and(|n| n.op.roles().host_known);
    let moves = |n: &NodeId| g.get(*n).is_some_and(|n| n.op.movement().is_addressable());
    let pointwise = |n: &NodeId| g.get(*n).is_some_and(|n| n.op.is_pointwise());
    let computes = |n: &NodeId| !known(n) && !moves(n) && !pointwise(n);
    let first = nodes.iter().position(|n| !known(n)).filter(|&at| !pointwise(&nodes[at]));
    let anchor = nodes.iter().position(computes).or(first)?;
    let (head, behind) = nodes.split_at(anchor + 1);
    let (numbers, head): (Vec<NodeId>, Vec<NodeId>) = head.iter().copied().partition(known);
    let rest = [&numbers[..], behind].concat();
    (!behind.is_empty()).then_some((head, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators of both halves of a region of all nodes.
    fn cut(text: &str) -> Option<(Vec<String>, Vec<String>)> {
        let g = Graph::from_text(text).unwrap();
        let names = |of: Vec<NodeId>| of.iter().map(|&n| g.get(n).unwrap().op.name().to_owned()).collect();
        halves(&g, g.order()).map(|(head, rest)| (names(head), names(rest)))
    }

    #[test]
    fn regions_are_cut_behind_their_anchor() {
        let behind = "%p = matmul(%x, %w) %y = relu(%p)";
        let product = |layers: &str| {
            cut(&format!("graph \"g\" {{ input %x: f32[4,4] input %w: f32[4,4] {layers} output %y }}"))
        };
        let all = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(product(behind), Some((all(&["matmul"]), all(&["relu"]))));
        let moved = "%t = transpose(%x) %p = matmul(%t, %w) %y = relu(%p)";
        assert_eq!(product(moved), Some((all(&["transpose", "matmul"]), all(&["relu"]))));
        assert_eq!(product("%t = transpose(%x) %y = matmul(%t, %w)"), None);
        assert_eq!(product("%t = transpose(%x) %y = relu(%t)"), Some((all(&["transpose"]), all(&["relu"]))));
        assert_eq!(product("%t = add(%x, %w) %y = relu(%t)"), None);
    }
}
