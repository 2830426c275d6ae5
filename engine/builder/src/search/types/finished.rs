//! Times of layers in forms of the network that were searched to the end, and the labelling that they speak for.
//!
//! Units are priced alone, in the formats as written. A network in one type throughout has its formats and fusions, so that its times say
//! more of where another type pays: each layer has that of the kernel that it is the product of, or the first layer of.

use super::super::price::launch;
use super::super::{Formed, Search};
use super::labels::Problem;
use super::units::Units;
use crate::BuildError;
use crate::passes::precision::multiplies;
use kiln_ir::Graph;
use std::collections::BTreeMap;

/// Part of the time of a cast that is left where it is in the kernel of a neighbour: that of its bytes.
const FUSED_CAST: f64 = 0.25;

/// Nanoseconds by the names of layers, for a type throughout.
pub type Times = BTreeMap<String, f64>;

impl Search<'_, '_> {
    /// The times of a form by the layers of the graph that it was made of.
    pub(super) fn by_layer(&mut self, g: &Graph, f: &Formed) -> Result<Times, BuildError> {
        let heavy: BTreeMap<&str, bool> = g.nodes().map(|(_, n)| (n.name.as_str(), multiplies(n))).collect();
        let mut times = Times::new();
        for item in self.running(f)? {
            let own: Vec<&str> = item.layer.split(" + ").filter_map(|made| origin(&heavy, made)).collect();
            let product = own.iter().find(|name| heavy.get(**name) == Some(&true));
            if let Some(name) = product.or(own.first()) {
                let ns = self.known_ns(&item)? + launch(self.cx.target);
                *times.entry((*name).to_owned()).or_default() += ns;
            }
        }
        Ok(times)
    }
}

/// The layer of the graph that a layer was made of: names grow behind dots.
fn origin<'a>(known: &BTreeMap<&'a str, bool>, made: &str) -> Option<&'a str> {
    let mut name = made;
    loop {
        if let Some((found, _)) = known.get_key_value(name) {
            return Some(found);
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// The labelling by times of forms in one type throughout, by label; `None` where fewer than two were timed.
pub fn labelling(g: &Graph, units: &Units, times: &BTreeMap<usize, Times>) -> Option<Problem> {
    let mut problem = units.problem.clone();
    for (u, costs) in problem.units.iter_mut().enumerate() {
        let names: Vec<&str> = units.names(g, u).collect();
        for (label, cost) in costs.iter_mut().enumerate().filter(|(_, c)| c.is_finite()) {
            *cost = match times.get(&label) {
                Some(times) => names.iter().filter_map(|n| times.get(*n)).sum(),
                None => f64::INFINITY,
            };
        }
        // Layers that must have a type that was not timed throughout.
        if costs.iter().all(|c| !c.is_finite()) {
            costs.clone_from(&units.problem.units[u]);
        }
    }
    problem.edges.iter_mut().for_each(|(_, _, cost)| *cost *= FUSED_CAST);
    (times.len() > 1).then_some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_layers_are_found_by_their_names() {
        let known = BTreeMap::from([("/a/b.0/conv", true), ("/a/b.0/conv.x", false)]);
        assert_eq!(origin(&known, "/a/b.0/conv.f16.in1"), Some("/a/b.0/conv"));
        assert_eq!(origin(&known, "/a/b.0/conv.x.f16"), Some("/a/b.0/conv.x"));
        assert_eq!(origin(&known, "/a/b.0/other"), None);
    }
}
