//! File access that survives crashes, full disks, other processes and hostile folders.
//!
//! * [`Replacement`] and [`replace`]: a file is replaced as a whole or not at all.
//! * [`open_regular`] and [`read_regular`]: pipes and devices are refused without blocking, sizes are bounded.
//! * [`lock`]: a lock between processes that is waited for only so long.
//! * [`trust`]: whether others than root and this user could have written a file.
//! * [`environment`]: variables that a process with raised rights must ignore.

pub mod environment;
mod lock;
mod read;
mod replace;
pub mod trust;

pub use lock::{Lock, lock};
pub use read::{check_size, open_regular, read_regular};
pub use replace::{Content, Replacement, remove_stale, replace};
