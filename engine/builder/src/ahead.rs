//! Kernels compiled by all processors at once: what is timed, or goes into the program, next.

use kiln_backend::{Backend, BackendError, Region, Tactic, Target};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Threads that compile at most.
const THREADS: usize = 32;

/// What a build spent its time on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// All of it.
    pub total: Duration,
    /// Waiting for kernels to be compiled.
    pub compiling: Duration,
    /// Timing candidates on the device, without compiling them.
    pub timing: Duration,
}

/// The blobs of regions by tactics, in order; each in a thread of its own as long as there are processors.
pub fn compile_all(
    backend: &dyn Backend,
    target: &Target,
    jobs: &[(&Region, &Tactic)],
) -> Vec<Result<Vec<u8>, BackendError>> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<Vec<u8>, BackendError>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((job, place)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(i).zip(done.get(i))
        } {
            let blob = backend.compile(job.0, job.1, target);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(blob);
        }
    };
    std::thread::scope(|s| {
        (1..processors.min(THREADS).min(jobs.len())).for_each(|_| drop(s.spawn(work)));
        work();
    });
    let lost = || Err(BackendError::Internal("a kernel was not compiled".into()));
    done.into_iter()
        .map(|d| d.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(lost))
        .collect()
}
