//! The choice of layers that run in a narrower type than f32: those that are faster in it, casts included.
//!
//! The network is cut into units: regions as they are formed in f32, whose layers may have the same types. Each unit costs what its
//! region takes in each type, each value between units of two types costs a cast. The labelling of least cost is taken
//! (`labels.rs`). Each narrower type throughout is searched to the end beside it, formats and fusions included, and compared, and so are
//! codes for products alone; f32 where it is close. The layers' times in those give other labellings (`finished.rs`), which are compared,
//! too: the best one by them, and codes throughout but for layers that lose much. Sums of steps leave out what steps do to each other:
//! where they are close, the networks are run as wholes (`finalists.rs`).

mod finalists;
mod finished;
mod labels;
mod units;

use super::{Considered, Formed, Given, Search};
use crate::passes::precision::{self, Choice, Types};
use crate::passes::{self, PassReport};
use crate::{BuildError, Narrowing, bodies};
use finalists::Finalist;
use finished::Times;
use kiln_ir::{DType, Graph, NodeId};
use labels::{energy, solve};
use std::collections::BTreeMap;
use units::Units;

/// Part of the cost that a labelling may take beyond the best one, and still be searched to the end.
const CLOSE: f64 = 0.25;

impl Search<'_, '_> {
    /// Runs all passes on a graph, chooses types, and searches the rest.
    pub fn build(&mut self, mut g: Graph) -> Result<(Formed, Vec<PassReport>), BuildError> {
        let mut reports = self.passes(&mut g, passes::BEFORE_TYPES)?;
        let types = self.types(&g)?;
        reports.extend(self.with_types(&mut g, &types)?);
        Ok((self.run(g)?, reports))
    }

    /// Applies types to layers and runs the passes behind that.
    fn with_types(&mut self, g: &mut Graph, types: &Types) -> Result<Vec<PassReport>, BuildError> {
        let changes = precision::apply(g, &self.cx, types)?;
        let mut reports = vec![PassReport { pass: precision::PASS.name, changes }];
        reports.extend(self.passes(g, passes::AFTER_TYPES)?);
        if let Given::Facts(..) = self.given {
            bodies::hand_on(g);
        }
        Ok(reports)
    }

    /// The narrower types that layers get.
    fn types(&mut self, g: &Graph) -> Result<Types, BuildError> {
        let choices = precision::choices(g, &self.cx)?;
        let open = choices.values().any(|c| c.types.len() > 1);
        if !open || self.cx.config.narrowing == Narrowing::Everywhere {
            return Ok(precision::everywhere(&choices));
        }
        let phase = self.tuner.progress.start("choosing types", 1)?;
        let units = Units::new(self, g, &choices)?;
        let (found, wide) = (solve(&units.problem), units.widest());
        let pinned = units.types(&wide);
        let (least, mut without) = (energy(&units.problem, &found), energy(&units.problem, &wide));
        let (mut with, mut types, mut runs) = (least, units.types(&found), None);
        let trials = close(g, &units, [wide, found], least);
        if trials.len() > 1 && self.cx.config.search {
            let mut timed: Vec<Finalist> = Vec::new();
            let mut throughout = BTreeMap::new();
            for types in trials {
                let (finalist, times) = self.finish(g, types)?;
                throughout.extend(units.label_throughout(&finalist.types).map(|l| (l, times)));
                timed.push(finalist);
            }
            // What is faster in which type, formats and fusions included.
            let mixed = finished::labelling(g, &units, &throughout).map(|problem| solve(&problem));
            for labels in mixed.into_iter().chain(finished::without_losers(g, &units, &throughout)) {
                let types = units.types(&labels);
                if timed.iter().all(|f| f.types != types) {
                    timed.push(self.finish(g, types)?.0);
                }
            }
            without = timed.iter().find(|f| f.types == pinned).map_or(without, |f| f.ns);
            if let Some((best, why)) = self.fastest(g, timed)? {
                (with, types, runs) = (best.ns, best.types, why);
            }
        }
        self.report(g, &choices, &types, &pinned, (without, with, runs));
        self.tuner.progress.step()?;
        self.tuner.progress.finish(phase);
        Ok(types)
    }

    /// The network with these types, searched to the end, and the times of its layers. Large constants are not evaluated for it.
    fn finish(&mut self, g: &Graph, types: Types) -> Result<(Finalist, Times), BuildError> {
        let work = self.cx.work.clone();
        let (cx, given) = (self.cx.trial(&work), self.given);
        let mut search = Search { tuner: &mut *self.tuner, cx, given, considered: Vec::new() };
        let mut typed = g.clone();
        search.with_types(&mut typed, &types)?;
        let formed = search.run(typed)?;
        let (ns, times) = (search.total(&formed)?, search.by_layer(g, &formed)?);
        Ok((Finalist { ns, kernels: search.kernels(&formed)?, types }, times))
    }

    /// Writes down what was chosen, and which wishes are not met.
    fn report(
        &mut self,
        g: &Graph,
        choices: &BTreeMap<NodeId, Choice>,
        types: &Types,
        pinned: &Types,
        (without, with, runs): (f64, f64, Option<String>),
    ) {
        let name = |id: &NodeId| g.get(*id).map_or(String::new(), |n| n.name.clone());
        let changed: Vec<&NodeId> = types.keys().filter(|id| pinned.get(id) != types.get(id)).collect();
        let first = changed.first().copied().or(choices.keys().next());
        self.record(Considered {
            rewrite: "types",
            layer: first.map(name).unwrap_or_default(),
            sites: changed.len(),
            without_ns: Some(without).filter(|t| t.is_finite()),
            with_ns: Some(with).filter(|t| t.is_finite()),
            taken: !changed.is_empty(),
            why: match changed.len() {
                0 => "f32 is faster everywhere".to_owned(),
                n => format!("{n} of {} layers are faster in a narrower type", choices.len()),
            } + &runs.unwrap_or_default(),
        });
        for (id, choice) in choices {
            let taken = types.get(id).copied().unwrap_or(DType::F32);
            if let Some(to) = choice.wish.filter(|&t| t != taken) {
                self.cx.work.notes.add(format!(
                    "layer \"{}\" should run in {to} and runs in {taken}, which is faster; --precision-constraints prefer or obey \
                     decides for {to}",
                    name(id)
                ));
            }
        }
    }
}

/// Types that are worth a search to the end: those of two labellings whose cost is close to the least, each narrower type throughout, and
/// codes for products among floats of 16 bits. Times of units are those of the formats in which the network is written. They say little
/// of types whose kernels want other ones.
fn close(g: &Graph, units: &Units, labellings: [Vec<usize>; 2], least: f64) -> Vec<Types> {
    let near =
        |labels: &Vec<usize>| energy(&units.problem, labels) <= least * (1.0 + CLOSE) || !least.is_finite();
    let mut all: Vec<Types> = Vec::new();
    let uniform = units.narrowest().chain(units.products_on_codes(g));
    for labels in labellings.into_iter().filter(near).chain(uniform) {
        let types = units.types(&labels);
        if !all.contains(&types) {
            all.push(types);
        }
    }
    all
}
