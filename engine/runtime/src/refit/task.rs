//! Refits on a thread of their own.

use super::{RefitReport, Refitter, Subject};
use crate::RuntimeError;
use crate::weights::refused;
use std::thread::JoinHandle;

/// A refit that goes on while the caller does other work. Dropping it lets it go on.
#[derive(Debug)]
pub struct RefitTask {
    thread: JoinHandle<(Refitter, Result<RefitReport, RuntimeError>)>,
}

impl Refitter {
    /// Starts [`Refitter::refit`] on a thread of its own and returns at once. Runs that begin before it is done take the old weights.
    /// Runs that begin later take the new ones, on the streams of their contexts. Of several refits of an engine one goes on at a
    /// time.
    ///
    /// # Errors
    /// [`RuntimeError::Refit`] for a refitter of a plan, and where no thread can be started. What was set is lost then.
    pub fn refit_async(self) -> Result<RefitTask, RuntimeError> {
        let Subject::Engine(shared) = &self.subject else {
            return Err(refused("a plan is not refitted on a thread of its own: call refit".into()));
        };
        let recorder = shared.clone();
        let mut refitter = self;
        let work = move || {
            let result = refitter.refit();
            (refitter, result)
        };
        let started = std::thread::Builder::new().name("kiln refit".into()).spawn(work);
        let started = started.map_err(|e| refused(format!("no thread could be started: {e}")));
        recorder.recorder.note(started.map(|thread| RefitTask { thread }))
    }
}

impl RefitTask {
    /// Whether the refit is done, or failed.
    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the refit. The refitter is returned, too: after an error it still has what was set.
    ///
    /// # Errors
    /// [`RuntimeError::Refit`] if the thread ended in a defect of Kiln or of a backend.
    pub fn wait(self) -> Result<(Refitter, Result<RefitReport, RuntimeError>), RuntimeError> {
        self.thread.join().map_err(|_| refused("the thread of the refit ended by a panic".into()))
    }
}
