//! Kernels compiled by all processors at once: what is timed, or goes into the program, next.

use crate::BuildError;
use crate::progress::Phases;
use kiln_backend::{Backend, BackendError, Region, Tactic, Target};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::Builder;
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
pub(crate) fn compile_all(
    backend: &dyn Backend,
    target: &Target,
    jobs: &[(&Region, &Tactic)],
    progress: &mut Phases<'_>,
) -> Result<Vec<Result<Vec<u8>, BackendError>>, BuildError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let phase = progress.start("compiling kernels", jobs.len())?;
    let mut blobs: Vec<_> =
        jobs.iter().map(|_| Err(BackendError::Internal("a kernel was skipped".into()))).collect();
    let next = AtomicUsize::new(0);
    let compile = |results: Sender<Compiled>| {
        while let Some((at, (region, tactic))) = take(jobs, &next) {
            // Nobody receives any more once a build is cancelled.
            if results.send((at, backend.compile(region, tactic, target))).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..rayon::current_num_threads().min(jobs.len()) {
            let (compile, own) = (&compile, sender.clone());
            if Builder::new().spawn_scoped(scope, move || compile(own)).is_err() {
                // Without further threads this one compiles.
                compile(sender.clone());
                break;
            }
        }
        drop(sender);
        for (at, blob) in receiver {
            blobs[at] = blob;
            progress.step()?;
        }
        Ok::<(), BuildError>(())
    })?;
    progress.finish(phase);
    Ok(blobs)
}

/// A compiled kernel with the position of its job.
type Compiled = (usize, Result<Vec<u8>, BackendError>);

/// The next job that no thread has taken, with its position.
fn take<T: Copy>(jobs: &[T], next: &AtomicUsize) -> Option<(usize, T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, *jobs.get(at)?))
}
