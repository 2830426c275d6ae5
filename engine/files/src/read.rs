//! Reading of regular files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file for reading. Pipes, sockets, devices and folders are refused without blocking: an open of a
/// pipe that nobody writes would wait for ever.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = match options.open(path) {
        Ok(f) => f,
        // Sockets and devices without a driver cannot be opened at all; say what they are.
        Err(e) => {
            return Err(match std::fs::metadata(path) {
                Ok(m) if !m.is_file() => not_regular(&m),
                _ => e,
            });
        }
    };
    let meta = file.metadata()?;
    if meta.is_file() { Ok(file) } else { Err(not_regular(&meta)) }
}

/// Reads a regular file of at most `limit` bytes. Memory that cannot be had is an error, not an abort.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    check_size(size, limit)?;
    let mut bytes = Vec::new();
    let wanted = usize::try_from(size).map_err(|_| too_large(size, limit))?;
    bytes
        .try_reserve_exact(wanted)
        .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, format!("no memory for its {size} bytes")))?;
    // A file that grows meanwhile is cut at the size that it had: a read never takes more than was reserved.
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a file that is larger than what may be read of it.
pub fn check_size(size: u64, limit: u64) -> io::Result<()> {
    if size > limit { Err(too_large(size, limit)) } else { Ok(()) }
}

fn too_large(size: u64, limit: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it has {size} bytes; at most {limit} are read from a file of this kind"),
    )
}

/// The error for what is not a regular file.
pub(crate) fn not_regular(meta: &std::fs::Metadata) -> io::Error {
    let text = format!("it is {}; a regular file is wanted", kind(meta.file_type()));
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(unix)]
fn kind(t: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match () {
        () if t.is_dir() => "a folder",
        () if t.is_fifo() => "a pipe",
        () if t.is_socket() => "a socket",
        () if t.is_char_device() || t.is_block_device() => "a device",
        () => "not a regular file",
    }
}

#[cfg(not(unix))]
fn kind(t: std::fs::FileType) -> &'static str {
    if t.is_dir() { "a folder" } else { "not a regular file" }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bounded_and_contents_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"12345").unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        let e = read_regular(&path, 4).unwrap_err().to_string();
        assert!(e.contains("5 bytes") && e.contains("at most 4"), "{e}");
        assert!(read_regular(folder.path(), 5).unwrap_err().to_string().contains("a folder"));
    }

    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_are_refused_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert!(read_regular(&pipe, 5).unwrap_err().to_string().contains("a pipe"));
        assert!(read_regular(Path::new("/dev/zero"), 5).unwrap_err().to_string().contains("a device"));
    }
}
