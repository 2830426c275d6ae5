//! Labels of units, such that the sum of the units' costs and of the costs between different labels is small.
//!
//! Finding the least sum is as hard as a multiway cut. Here, units that have the same label and are neighbours make a cluster;
//! clusters take another label and merge as long as that makes the sum less. The result is the best of several starts:
//! each unit's cheapest label, and each label wherever it is possible.

use std::collections::{BTreeMap, BTreeSet};

/// Costs to be made small.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// For each unit the cost of each label; infinite where it cannot have the label.
    pub units: Vec<Vec<f64>>,
    /// Two units, and what it costs when their labels differ.
    pub edges: Vec<(usize, usize, f64)>,
}

/// The sum of the costs of a labelling.
pub fn energy(p: &Problem, labels: &[usize]) -> f64 {
    let own: f64 = p.units.iter().zip(labels).map(|(u, &l)| u[l]).sum();
    let between = p.edges.iter().filter(|(a, b, _)| labels[*a] != labels[*b]);
    own + between.map(|(_, _, c)| c).sum::<f64>()
}

/// A labelling of small cost; of equal ones that of the lower labels.
pub fn solve(p: &Problem) -> Vec<usize> {
    let count = p.units.first().map_or(0, Vec::len);
    let uniform =
        (0..count).map(|l| start(p, |costs| if costs[l].is_finite() { l } else { cheapest(costs) }));
    let mut best: Option<(f64, Vec<usize>)> = None;
    for from in uniform.chain([start(p, cheapest)]) {
        let labels = improved(p, from);
        let cost = energy(p, &labels);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, labels));
        }
    }
    best.map(|(_, labels)| labels).unwrap_or_default()
}

fn start(p: &Problem, label: impl Fn(&[f64]) -> usize) -> Vec<usize> {
    p.units.iter().map(|costs| label(costs)).collect()
}

/// The label of the least cost, the lower one of equals.
fn cheapest(costs: &[f64]) -> usize {
    (0..costs.len()).min_by(|&a, &b| costs[a].total_cmp(&costs[b])).unwrap_or(0)
}

/// Neighbouring units of one label.
struct Cluster {
    label: usize,
    costs: Vec<f64>,
    units: Vec<usize>,
    /// Cost between it and each neighbouring cluster.
    near: BTreeMap<usize, f64>,
}

/// Lets clusters change their labels while that lowers the cost.
fn improved(p: &Problem, labels: Vec<usize>) -> Vec<usize> {
    let mut clusters: Vec<Cluster> = (p.units.iter().zip(&labels).enumerate())
        .map(|(i, (costs, &label))| Cluster {
            label,
            costs: costs.clone(),
            units: vec![i],
            near: BTreeMap::new(),
        })
        .collect();
    for &(a, b, cost) in p.edges.iter().filter(|(a, b, _)| a != b) {
        *clusters[a].near.entry(b).or_default() += cost;
        *clusters[b].near.entry(a).or_default() += cost;
    }
    let mut open: BTreeSet<usize> = (0..clusters.len()).collect();
    for i in 0..clusters.len() {
        merge(&mut clusters, i, &mut open);
    }
    while let Some(i) = open.pop_first() {
        if clusters[i].units.is_empty() {
            continue;
        }
        if let Some(label) = better(&clusters, i) {
            clusters[i].label = label;
            open.extend(clusters[i].near.keys().copied());
            merge(&mut clusters, i, &mut open);
        }
    }
    let mut labels = labels;
    for c in &clusters {
        c.units.iter().for_each(|&u| labels[u] = c.label);
    }
    labels
}

/// A label with which a cluster costs less, its borders included.
fn better(clusters: &[Cluster], i: usize) -> Option<usize> {
    let c = &clusters[i];
    let cost = |label: usize| {
        let other = c.near.iter().filter(|(n, _)| clusters[**n].label != label);
        c.costs[label] + other.map(|(_, cost)| cost).sum::<f64>()
    };
    let now = cost(c.label);
    let least = (0..c.costs.len()).map(|l| (cost(l), l)).min_by(|a, b| a.0.total_cmp(&b.0))?;
    // Sums of the same numbers in another order are not less.
    (least.0 < now - now.abs() * 1e-9).then_some(least.1)
}

/// Unites a cluster with all neighbours of its label; smaller ones go into larger ones. What is left is open again.
fn merge(clusters: &mut [Cluster], i: usize, open: &mut BTreeSet<usize>) {
    let mut at = i;
    while let Some(n) = clusters[at].near.keys().copied().find(|&n| clusters[n].label == clusters[at].label) {
        let size = |c: &Cluster| c.units.len() + c.near.len();
        let (into, from) = if size(&clusters[n]) > size(&clusters[at]) { (n, at) } else { (at, n) };
        let units = std::mem::take(&mut clusters[from].units);
        let near = std::mem::take(&mut clusters[from].near);
        let costs = std::mem::take(&mut clusters[from].costs);
        clusters[into].units.extend(units);
        clusters[into].costs.iter_mut().zip(costs).for_each(|(a, b)| *a += b);
        clusters[into].near.remove(&from);
        for (k, cost) in near.into_iter().filter(|(k, _)| *k != into) {
            clusters[k].near.remove(&from);
            *clusters[k].near.entry(into).or_default() += cost;
            *clusters[into].near.entry(k).or_default() += cost;
        }
        open.remove(&from);
        at = into;
    }
    if !clusters[at].units.is_empty() {
        open.insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::problem::Rng;

    const NEVER: f64 = f64::INFINITY;

    fn chain(units: &[[f64; 2]], cast: f64) -> Problem {
        let edges = (1..units.len()).map(|i| (i - 1, i, cast)).collect();
        Problem { units: units.iter().map(|u| u.to_vec()).collect(), edges }
    }

    #[test]
    fn casts_that_cost_more_than_they_gain_are_not_made() {
        // Borders that are fixed, and three layers that are faster in the second label.
        let with =
            |cast| solve(&chain(&[[0.0, NEVER], [5.0, 3.0], [5.0, 3.0], [5.0, 3.0], [0.0, NEVER]], cast));
        assert_eq!(with(2.0), [0, 1, 1, 1, 0]);
        assert_eq!(with(4.0), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_slow_layer_in_the_middle_stays_or_follows() {
        let with = |slow| solve(&chain(&[[9.0, 1.0], [1.0, slow], [9.0, 1.0]], 2.0));
        assert_eq!(with(4.0), [1, 1, 1]);
        assert_eq!(with(6.0), [1, 0, 1]);
    }

    #[test]
    fn equal_costs_keep_the_first_label() {
        assert_eq!(solve(&chain(&[[1.0, 1.0], [2.0, 2.0]], 1.0)), [0, 0]);
        assert_eq!(solve(&Problem::default()), Vec::<usize>::new());
    }

    #[test]
    fn random_chains_come_close_to_the_best_of_all_labellings() {
        let mut rng = Rng::new(5);
        let (mut found, mut least) = (0.0, 0.0);
        for _ in 0..200 {
            let n = 2 + rng.int(0, 6) as usize;
            let units: Vec<Vec<f64>> =
                (0..n).map(|_| (0..3).map(|_| rng.int(0, 9) as f64).collect()).collect();
            let edges =
                (1..n).map(|i| (rng.int(0, i as i64 - 1) as usize, i, rng.int(0, 5) as f64)).collect();
            let p = Problem { units, edges };
            let all = (0..3usize.pow(n as u32)).map(|k| {
                let labels: Vec<usize> = (0..n).map(|i| k / 3usize.pow(i as u32) % 3).collect();
                energy(&p, &labels)
            });
            let best = all.fold(NEVER, f64::min);
            let ours = energy(&p, &solve(&p));
            let uniform = (0..3).map(|l| energy(&p, &vec![l; n])).fold(NEVER, f64::min);
            assert!(ours >= best && ours <= uniform, "{ours}, {best}, {uniform}");
            (found, least) = (found + ours, least + best);
        }
        assert!(found <= least * 1.02, "{found} in all, {least} at best");
    }

    #[test]
    fn long_chains_take_little_time() {
        let n = 50_000;
        let units: Vec<[f64; 2]> = (0..n).map(|i| if i % 7 < 3 { [5.0, 1.0] } else { [1.0, 2.0] }).collect();
        let start = std::time::Instant::now();
        assert_eq!(solve(&chain(&units, 1.0)).len(), n);
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }
}
