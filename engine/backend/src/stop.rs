//! Stopping a run early: what backends ask between steps, iterations and submissions.

use crate::BackendError;
use crate::sdk::host::is_cancelled;
use kiln_ir::stop as flags;

pub use kiln_ir::stop::{Checkpoints, Interrupted, Stop, StopFlag, catch, checkpoint, scope};

/// Whether the work of this thread is to stop, by its flags or, in a library, by the host of the call in progress.
pub fn asked() -> bool {
    flags::state() == Stop::Now || is_cancelled()
}

/// Whether anybody may ask this thread to stop: then work that takes long goes in pieces.
pub fn possible() -> bool {
    flags::state() != Stop::Never
}

/// An error if the work of this thread is to stop; `layer` is where it has come to, empty where that is not known.
pub fn check(layer: &str) -> Result<(), BackendError> {
    if asked() { Err(BackendError::Cancelled { layer: layer.to_owned() }) } else { Ok(()) }
}

/// Runs what passes checkpoints; an error that names the layer where it was left at one.
pub fn interruptible<T>(layer: &str, f: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    catch(f).unwrap_or_else(|_| Err(BackendError::Cancelled { layer: layer.to_owned() }))
}
