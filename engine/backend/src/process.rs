//! Detection of processes that were forked after they had used Kiln: such a copy lacks the threads and devices of the first.

use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;

/// The process that used Kiln first; 0 before.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Error of a process that was forked from one that had used Kiln.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "process {now} was forked from process {then}, which had used Kiln: its threads and devices are not in the copy. \
     Start workers as new processes (in Python: the start method \"spawn\"), or fork before the first engine is loaded"
)]
pub struct Forked {
    /// The process that used Kiln first.
    pub then: u32,
    /// Id of this process.
    pub now: u32,
}

/// Refuses to go on in a process that was forked after Kiln had been used: work would wait for threads that do not exist.
pub fn check_process() -> Result<(), Forked> {
    let now = std::process::id();
    match FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Err(then) if then != now => Err(Forked { then, now }),
        _ => Ok(()),
    }
}

/// Whether this process was forked from one that used Kiln; its copies of device objects must not be released.
pub fn is_forked() -> bool {
    ![0, std::process::id()].contains(&FIRST.load(Ordering::Relaxed))
}
