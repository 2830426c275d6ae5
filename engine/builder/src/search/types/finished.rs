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

/// Times that a layer takes on codes, of its time in 16 bits, from which on it loses by them.
const LOSES: f64 = 1.5;

/// For each type of codes that was timed throughout, the labelling with floats of 16 bits for layers that lose by codes; none where no
/// layer does. Sums of steps price what is between two types too highly to find these.
pub fn without_losers<'a>(
    g: &'a Graph,
    units: &'a Units,
    times: &'a BTreeMap<usize, Times>,
) -> impl Iterator<Item = Vec<usize>> + 'a {
    let half = times.iter().find(|(label, _)| units.half(**label));
    let coded = times.iter().filter(|(label, _)| units.coded(**label));
    coded.filter_map(move |(&code, on_codes)| {
        let (&half, in_half) = half?;
        let all = units.uniform(code);
        let other = |(u, &label): (usize, &usize)| {
            let sum = |times: &Times| units.names(g, u).filter_map(|n| times.get(n)).sum::<f64>();
            let possible = units.problem.units[u][half].is_finite();
            if label == code && possible && sum(on_codes) > LOSES * sum(in_half) { half } else { label }
        };
        let found: Vec<usize> = all.iter().enumerate().map(other).collect();
        (found != all).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::DType;

    #[test]
    fn layers_that_lose_much_by_codes_have_16_bits() {
        let g = Graph::from_text(
            r#"graph "g" { input %x: f32[4] %a = relu(%x) %b = relu(%a) %c = relu(%b) output %c }"#,
        );
        let g = g.unwrap();
        let nodes: Vec<_> = g.nodes().map(|(id, _)| id).collect();
        let labels = [DType::F32, DType::F16, DType::I8];
        // The last layer has no form in 16 bits.
        let costs = vec![vec![1.0; 3], vec![1.0; 3], vec![1.0, f64::INFINITY, 1.0]];
        let units = Units::of_costs(&nodes, &labels, costs);
        let names: Vec<String> = g.nodes().map(|(_, n)| n.name.clone()).collect();
        let times = |ns: [f64; 3]| -> Times { names.iter().cloned().zip(ns).collect() };
        let found = |on_codes: [f64; 3]| {
            let all = BTreeMap::from([(1, times([2.0, 2.0, 2.0])), (2, times(on_codes))]);
            without_losers(&g, &units, &all).map(|l| l[1..].to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(found([5.0, 2.5, 5.0]), [[1, 2, 2]]);
        assert!(found([2.5, 1.0, 9.0]).is_empty());
        let alone = BTreeMap::from([(2, times([5.0; 3]))]);
        assert_eq!(without_losers(&g, &units, &alone).count(), 0);
    }

    #[test]
    fn made_layers_are_found_by_their_names() {
        let known = BTreeMap::from([("/a/b.0/conv", true), ("/a/b.0/conv.x", false)]);
        assert_eq!(origin(&known, "/a/b.0/conv.f16.in1"), Some("/a/b.0/conv"));
        assert_eq!(origin(&known, "/a/b.0/conv.x.f16"), Some("/a/b.0/conv.x"));
        assert_eq!(origin(&known, "/a/b.0/other"), None);
    }
}
