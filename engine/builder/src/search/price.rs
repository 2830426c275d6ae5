//! Prices of graphs, in nanoseconds.

use super::{Formed, Search, Verdict};
use crate::BuildError;
use crate::passes::fold_constants;
use kiln_backend::{Region, Target};
use kiln_ir::graph::Uses;
use kiln_ir::{Fact, NodeId};
use std::collections::BTreeMap;

/// Nanoseconds of a launch where the target does not tell them (number "launch_ns").
const LAUNCH_NS: f64 = 1000.0;

/// A region with what the tuner wants to know.
pub struct Item {
    /// Names of its layers.
    pub layer: String,
    /// The region.
    pub region: Region,
    /// Facts of its inputs at the usual shapes.
    pub facts: Vec<Fact>,
}

impl Item {
    /// Name, region and facts, as the tuner takes them.
    pub fn parts(&self) -> (&str, &Region, &[Fact]) {
        (&self.layer, &self.region, &self.facts)
    }
}

/// Regions by what they compute, with how often they occur.
type Items = BTreeMap<String, (Item, usize)>;

/// Nanoseconds that a launch adds.
pub fn launch(target: &Target) -> f64 {
    target.numbers.get("launch_ns").map_or(LAUNCH_NS, |&n| n as f64)
}

impl Search<'_, '_> {
    /// Compares two forms of one network.
    pub(super) fn compare(&mut self, now: &Formed, other: &Formed) -> Result<Verdict, BuildError> {
        let (mut before, mut after) = (self.items(now)?, self.items(other)?);
        for (key, (_, n)) in &mut before {
            if let Some((_, m)) = after.get_mut(key) {
                let both = (*n).min(*m);
                (*n, *m) = (*n - both, *m - both);
            }
        }
        let (without, _) = if self.cx.config.selects() { self.lacking(&before)? } else { (0, String::new()) };
        match self.lacking(&after)? {
            (with, _) if with < without => return Ok(Verdict::Selectable),
            (0, _) => {}
            (_, reasons) => return Ok(Verdict::Refused(reasons)),
        }
        if let (Some(a), Some(b)) = (self.estimate(&before)?, self.estimate(&after)?)
            && b > a * self.cx.config.estimate_limit
        {
            return Ok(Verdict::Hopeless(b / a));
        }
        let items = before.values().chain(after.values()).filter(|(_, n)| *n > 0);
        self.tuner.ahead(items.map(|(i, _)| i.parts()))?;
        Ok(Verdict::Timed { without: self.cost(&before)?, with: self.cost(&after)? })
    }

    /// Number of regions without a tactic, and the reasons at the first of them.
    fn lacking(&mut self, items: &Items) -> Result<(usize, String), BuildError> {
        let (mut count, mut first) = (0, String::new());
        for (i, n) in items.values().filter(|(_, n)| *n > 0) {
            match self.tuner.tactics(&i.layer, &i.region, &i.facts) {
                Err(BuildError::NoTactic { reasons, .. }) => {
                    first = if count == 0 { reasons } else { first };
                    count += n;
                }
                other => drop(other?),
            }
        }
        Ok((count, first))
    }

    /// Nanoseconds of a network as it is formed.
    pub(crate) fn total(&mut self, f: &Formed) -> Result<f64, BuildError> {
        let items = self.items(f)?;
        self.cost(&items)
    }

    /// Nodes as an item.
    pub(super) fn item(&self, f: &Formed, nodes: &[NodeId], uses: &Uses) -> Result<Item, BuildError> {
        let region = Region::extract_with(&f.graph, nodes, uses)?;
        let facts = region.inputs.iter().map(|v| f.points.opt[v.0 as usize].clone()).collect();
        let layer = nodes.iter().filter_map(|&n| Some(f.graph.get(n)?.name.as_str())).collect::<Vec<_>>();
        Ok(Item { layer: layer.join(" + "), region, facts })
    }

    /// The regions that a run computes, in their order: not those of constants alone.
    pub(super) fn running(&self, f: &Formed) -> Result<Vec<Item>, BuildError> {
        let (constant, uses) = (fold_constants::constant_layers(&f.graph, &self.cx), f.graph.uses());
        let runs = |nodes: &&Vec<NodeId>| !nodes.iter().all(|n| constant.contains(n));
        f.regions.iter().filter(runs).map(|nodes| self.item(f, nodes, &uses)).collect()
    }

    /// Groups sites whose items compute the same. Classes are in the order of their first sites.
    pub(super) fn classes<T>(
        &self,
        sites: impl IntoIterator<Item = T>,
        item: impl Fn(&T) -> Result<Item, BuildError>,
    ) -> Result<Vec<Vec<T>>, BuildError> {
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut classes: Vec<Vec<T>> = Vec::new();
        for site in sites {
            let item = item(&site)?;
            let class = *known.entry(self.tuner.text(&item.region, &item.facts)?).or_insert(classes.len());
            match classes.get_mut(class) {
                Some(sites) => sites.push(site),
                None => classes.push(vec![site]),
            }
        }
        Ok(classes)
    }

    fn items(&self, f: &Formed) -> Result<Items, BuildError> {
        let mut items = Items::new();
        for item in self.running(f)? {
            let key = self.tuner.text(&item.region, &item.facts)?;
            items.entry(key).or_insert((item, 0)).1 += 1;
        }
        Ok(items)
    }

    fn estimate(&mut self, items: &Items) -> Result<Option<f64>, BuildError> {
        let mut sum = 0.0;
        for (i, n) in items.values().filter(|(_, n)| *n > 0) {
            match self.tuner.estimate(&i.layer, &i.region, &i.facts)? {
                Some(ns) => sum += *n as f64 * ns,
                None => return Ok(None),
            }
        }
        Ok(Some(sum))
    }

    fn cost(&mut self, items: &Items) -> Result<f64, BuildError> {
        let launch = launch(self.cx.target);
        let mut sum = 0.0;
        for (i, n) in items.values().filter(|(_, n)| *n > 0) {
            sum += *n as f64 * (self.time_as_formed(i)? + launch);
        }
        Ok(sum)
    }

    /// Nanoseconds of a region of the network as it is formed. Infinite where the user's selection leaves no tactic for it:
    /// another form may have one.
    pub(super) fn time_as_formed(&mut self, i: &Item) -> Result<f64, BuildError> {
        match self.tuner.time(&i.layer, &i.region, &i.facts) {
            Err(BuildError::NoTactic { .. }) if self.cx.config.selects() => Ok(f64::INFINITY),
            other => other,
        }
    }
}
