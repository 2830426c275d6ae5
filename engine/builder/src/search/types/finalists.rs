//! Networks of different types whose sums of steps are close: run as wholes, and compared by that.
//!
//! A step that is timed alone finds its operands in memory. In a network it finds some in the cache, more of them where their type is
//! smaller. It starts while the step before it ends. Sums of steps leave that out.

use super::super::whole::program;
use super::super::{Formed, GAIN, Given, Search};
use crate::BuildError;
use crate::passes::PassCx;
use crate::passes::precision::Types;
use crate::tuner::Tuner;
use kiln_backend::Program;
use kiln_ir::{Graph, Tensor};
use std::collections::BTreeMap;

/// Part that a sum of steps may be above the least one for the network to be run as a whole. Sums of many small steps exceed runs by
/// nearly half on a GPU.
const CLOSE: f64 = 1.0;

/// The network with certain types, searched to the end.
pub struct Finalist {
    /// Nanoseconds: the sum of its steps.
    pub ns: f64,
    /// Its types.
    pub types: Types,
    /// Text of its kernels and of their regions; `None` where it has control flow, whose bodies choose types by themselves.
    pub kernels: Option<String>,
}

impl Search<'_, '_> {
    /// Text of the kernels of a network and of their regions; `None` where it has control flow.
    pub(in super::super) fn kernels(&mut self, f: &Formed) -> Result<Option<String>, BuildError> {
        let mut text = String::new();
        for item in self.running(f)? {
            if item.region.graph.nodes().any(|(_, n)| !n.regions.is_empty()) {
                return Ok(None);
            }
            let tactic = match self.tuner.choose(&item.layer, &item.region, &item.facts) {
                Err(BuildError::NoTactic { .. }) => return Ok(None),
                choice => choice?.tactic,
            };
            text += &self.tuner.text(&item.region, &item.facts)?;
            text += &format!("{} {}\n", tactic.id(), tactic.source_hash);
        }
        Ok(Some(text))
    }

    /// The fastest of some networks. Those whose sums of steps are close are run: the one of the least sum stays unless another is faster
    /// by [`GAIN`]. With it comes what the runs said, in words.
    pub(super) fn fastest(
        &mut self,
        g: &Graph,
        mut all: Vec<Finalist>,
    ) -> Result<Option<(Finalist, Option<String>)>, BuildError> {
        all.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        let least = all.first().map_or(f64::INFINITY, |f| f.ns);
        let close = all.iter().take_while(|f| f.ns.is_finite() && f.ns <= least * (1.0 + CLOSE)).count();
        let mut runs = Vec::with_capacity(close);
        for finalist in all.iter().take(close).filter(|_| close > 1) {
            let ns = self.run_time(g, finalist)?;
            let layers = by_type(&finalist.types);
            tracing::debug!(?layers, steps_ns = finalist.ns, run_ns = ns, "types considered");
            let Some(ns) = ns else {
                runs.clear();
                break;
            };
            runs.push(ns);
        }
        let best = (0..runs.len()).min_by(|&a, &b| runs[a].total_cmp(&runs[b])).unwrap_or(0);
        let best = if best > 0 && runs[best] < runs[0] * (1.0 - GAIN) { best } else { 0 };
        let why = runs.get(best).map(|ns| {
            let other = runs.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, ns)| *ns);
            let other = other.fold(f64::INFINITY, f64::min);
            format!("; runs of the network take {:.1} us, with other types {:.1} us", ns / 1e3, other / 1e3)
        });
        Ok(all.into_iter().nth(best).map(|f| (f, why)))
    }

    /// Nanoseconds that runs of a network take at the usual shapes; `None` where that cannot be known.
    fn run_time(&mut self, g: &Graph, finalist: &Finalist) -> Result<Option<f64>, BuildError> {
        let Some(kernels) = &finalist.kernels else { return Ok(None) };
        let (cx, given) = (self.cx, self.given);
        self.tuner.time_network(kernels, |tuner| made(tuner, cx, given, g, &finalist.types))
    }
}

/// Numbers of layers by their type.
fn by_type(types: &Types) -> BTreeMap<&'static str, usize> {
    types.values().fold(BTreeMap::new(), |mut all, t| {
        *all.entry(t.name()).or_default() += 1;
        all
    })
}

/// A program of a network with certain types, and random inputs of the usual shapes; `None` where those are not known.
fn made(
    tuner: &mut Tuner<'_>,
    cx: PassCx<'_>,
    given: Given<'_>,
    g: &Graph,
    types: &Types,
) -> Result<Option<(Program, Vec<Tensor>)>, BuildError> {
    let work = cx.work.clone();
    let cx = PassCx::new(cx.config, cx.backend, cx.target, &work);
    let mut search = Search { tuner: &mut *tuner, cx, given, considered: Vec::new() };
    let mut typed = g.clone();
    search.with_types(&mut typed, types)?;
    let formed = search.run(typed)?;
    program(tuner, formed)
}
