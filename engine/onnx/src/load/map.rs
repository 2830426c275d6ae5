//! Files as shared read-only memory.

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

/// Maps a regular file; an empty one gives no bytes. Anything else than a regular file is an error and is not opened,
/// so that a pipe or device cannot block.
pub(crate) fn map_file(path: &Path) -> io::Result<Bytes> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this process. That nobody truncates or rewrites the file while it is
    // mapped is the documented duty of the caller of `ModelFile::open`, as for every mapped file.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
