//! Files as shared read-only memory.

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

/// Way of reading files into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Copied: what becomes of the file later does not matter. Counts against the memory budget.
    Copied,
    /// Mapped: whoever asked for it keeps the file as it is.
    Mapped,
}

impl Access {
    /// The bytes of a regular file. Anything else is an error that does not block.
    pub(crate) fn read(self, path: &Path) -> io::Result<Bytes> {
        match self {
            Access::Copied => {
                let bytes = kiln_files::read_regular(path, kiln_ir::budget::left())?;
                Ok(Bytes::from_owner(kiln_ir::Bytes::from(bytes)))
            }
            Access::Mapped => map(kiln_files::open_regular(path)?),
        }
    }
}

/// Maps a file; an empty one has no bytes.
fn map(file: File) -> io::Result<Bytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this process. That nobody truncates or rewrites the file while it is
    // mapped is the duty of the caller of `ModelFile::open_mapped`, the only way here.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
