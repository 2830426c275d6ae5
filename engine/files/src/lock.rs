//! Locks between processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two attempts to take a held lock.
const PAUSE: Duration = Duration::from_millis(50);

/// A lock on `FILE.lock`, held until it is dropped or the process ends. The lock file stays: to remove it would let two
/// processes hold locks on two files of the same name.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Takes the lock of a file, and waits for it for at most `patience`; `waiting` is called once if it is held. `None`
/// after that time: another process holds it still.
pub fn lock(path: &Path, patience: Duration, waiting: impl FnOnce()) -> io::Result<Option<Lock>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.open(&name)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(crate::read::not_regular(&meta));
    }
    let end = Instant::now() + patience;
    let mut waiting = Some(waiting);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(Lock { _file: file })),
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                if let Some(f) = waiting.take() {
                    f();
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_held_lock_is_waited_for_only_so_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        let held = lock(&path, Duration::ZERO, tell).unwrap().unwrap();
        let start = Instant::now();
        assert!(lock(&path, Duration::from_millis(200), tell).unwrap().is_none());
        assert!((200..2000).contains(&start.elapsed().as_millis()));
        assert_eq!(told.get(), 1);
        drop(held);
        assert!(lock(&path, Duration::ZERO, tell).unwrap().is_some());
        assert_eq!(told.get(), 1);
    }
}
