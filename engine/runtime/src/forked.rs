//! Processes that were forked after they had used Kiln: locks, threads and devices of the first one are not in the copy.

use crate::RuntimeError;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that used Kiln first.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Refuses to go on in a process that was forked after Kiln had been used: work would wait for threads that are not there.
pub fn check_process() -> Result<(), RuntimeError> {
    let now = std::process::id();
    match FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Err(then) if then != now => Err(RuntimeError::Forked { then, now }),
        _ => Ok(()),
    }
}

/// Whether this process was forked from one that used Kiln: what was made there is left as it is.
pub(crate) fn is_forked() -> bool {
    ![0, std::process::id()].contains(&FIRST.load(Ordering::Relaxed))
}
