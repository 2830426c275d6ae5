//! Kernels compiled by all processors at once: what is timed, or goes into the program, next.

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

/// The blobs of regions by tactics, in order; as many at a time as there are processors.
pub fn compile_all(
    backend: &dyn Backend,
    target: &Target,
    jobs: &[(&Region, &Tactic)],
) -> Vec<Result<Vec<u8>, BackendError>> {
    jobs.par_iter().with_max_len(1).map(|(region, tactic)| backend.compile(region, tactic, target)).collect()
}
