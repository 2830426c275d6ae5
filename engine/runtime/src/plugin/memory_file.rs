//! Files without a name, from which the system loads libraries.

use std::io;
use std::path::PathBuf;

/// A file in memory that nobody can change.
pub(super) struct MemoryFile {
    #[cfg(target_os = "linux")]
    file: std::fs::File,
}

impl MemoryFile {
    /// A sealed file of these bytes.
    #[cfg(target_os = "linux")]
    pub(super) fn new(bytes: &[u8]) -> io::Result<MemoryFile> {
        use std::io::Write;
        use std::os::fd::{AsRawFd, FromRawFd};
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero.
        let fd = unsafe { libc::memfd_create(c"kiln-plugin".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and belongs to nobody else.
        let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.write_all(bytes)?;
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is open.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
            0 => Ok(MemoryFile { file }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A sealed file of these bytes.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn new(_: &[u8]) -> io::Result<MemoryFile> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "libraries are loaded from memory on Linux only"))
    }

    /// The path by which this process opens it.
    #[cfg(target_os = "linux")]
    pub(super) fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// The path by which this process opens it.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::new()
    }
}
