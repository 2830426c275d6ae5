//! Runs of whole networks, where sums of steps leave out what decides.
//!
//! A step that is timed alone begins when the one before it is done. In a network its kernel begins earlier, and copies weights until what
//! it reads is there. A rewrite that takes a small step from in front of a large one may thus gain less than the small step takes.

use super::rewrite::Rewrite;
use super::{Formed, Given, Search, Verdict};
use crate::BuildError;
use crate::inputs::{can_be_timed, random_inputs};
use crate::kernels::{Chosen, Shaped, choose_all, planned};
use crate::streams;
use crate::tuner::{Tuner, concretize};
use kiln_backend::Program;
use kiln_ir::Tensor;

impl Search<'_, '_> {
    /// The verdict on a rewrite that pays by sums of steps: that of runs of the network with it at all its sites and without it, where these
    /// can be timed.
    pub(super) fn confirm(
        &mut self,
        now: &Formed,
        class: &[Rewrite],
        by_sums: Verdict,
    ) -> Result<Verdict, BuildError> {
        let asked = class.first().is_some_and(Rewrite::by_runs) && matches!(self.given, Given::Profiles);
        if !asked || !matches!(by_sums, Verdict::Timed { .. }) || !by_sums.pays() {
            return Ok(by_sums);
        }
        let other = self.take(now.clone(), class)?;
        Ok(match (self.run_time_of(now)?, self.run_time_of(&other)?) {
            (Some(without), Some(with)) => Verdict::Runs { without, with },
            _ => by_sums,
        })
    }

    /// Nanoseconds that runs of a network take at the usual shapes; `None` where that cannot be known.
    fn run_time_of(&mut self, f: &Formed) -> Result<Option<f64>, BuildError> {
        let Some(kernels) = self.kernels(f)? else { return Ok(None) };
        self.tuner.time_network(&kernels, |tuner| program(tuner, f.clone()))
    }
}

/// The program of a network, and random inputs of the usual shapes; `None` where those are not known.
pub(super) fn program(
    tuner: &mut Tuner<'_>,
    Formed { graph, points, regions }: Formed,
) -> Result<Option<(Program, Vec<Tensor>)>, BuildError> {
    let facts: Vec<_> = graph.inputs.iter().map(|v| points.opt[v.0 as usize].clone()).collect();
    let concrete = concretize(&graph, &facts)?;
    if !can_be_timed(&concrete) {
        return Ok(None);
    }
    let Ok(inputs) = random_inputs(&concrete) else { return Ok(None) };
    let at = Shaped { points: &points, cases: &[] };
    let Chosen { steps, .. } = choose_all(tuner, &graph, regions, at, &[])?;
    let streams = streams::assign(&graph, &steps, tuner.config, tuner.target, &mut Vec::new());
    Ok(Some((planned(graph, steps, &points, tuner.target, streams), inputs)))
}
