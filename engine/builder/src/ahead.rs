//! Kernels compiled by all processors at once: what is timed, or goes into the program, next.

use crate::BuildError;
use crate::progress::Phases;
use kiln_backend::{Backend, BackendError, Region, Tactic, Target};
use rayon::prelude::*;
use std::time::Duration;

/// Time that a build spent, by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Time of the whole build.
    pub total: Duration,
    /// Waiting for kernels to be compiled.
    pub compiling: Duration,
    /// Timing candidates on the device, without compiling them.
    pub timing: Duration,
}

/// Kernels for each processor that are compiled before progress is told.
const ROUND: usize = 4;

/// The blobs of regions by tactics, in order; as many at a time as there are processors.
pub(crate) fn compile_all(
    backend: &dyn Backend,
    target: &Target,
    jobs: &[(&Region, &Tactic)],
    progress: &mut Phases<'_>,
) -> Result<Vec<Result<Vec<u8>, BackendError>>, BuildError> {
    let mut blobs = Vec::with_capacity(jobs.len());
    if jobs.is_empty() {
        return Ok(blobs);
    }
    let phase = progress.start("compiling kernels", jobs.len())?;
    for round in jobs.chunks(ROUND * rayon::current_num_threads()) {
        let one = |(region, tactic): &(&Region, &Tactic)| backend.compile(region, tactic, target);
        blobs.par_extend(round.par_iter().with_max_len(1).map(one));
        round.iter().try_for_each(|_| progress.step())?;
    }
    progress.finish(phase);
    Ok(blobs)
}
