//! Errors of arrays and archives.

use std::path::PathBuf;

use crate::dtype::NpyType;

/// Reason why an array or archive was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The file cannot be read or written.
    #[error("cannot access {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The bytes are not an NPY file that this reader knows.
    #[error("not a NumPy array: {0}")]
    Header(String),
    /// The element type is none of those supported.
    #[error(
        "element type '{0}' is not supported: wanted one of f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8, b1, little-endian"
    )]
    Type(String),
    /// The product of the dimensions does not fit.
    #[error("shape {0:?} is too large: its size in bytes does not fit in 64 bits")]
    TooLarge(Vec<u64>),
    /// The payload is shorter or longer than the header says.
    #[error("shape {shape:?} of {dtype} takes {wanted} bytes, found {found}")]
    Size {
        /// The shape.
        shape: Vec<u64>,
        /// The element type.
        dtype: NpyType,
        /// The bytes the shape takes.
        wanted: u64,
        /// The bytes there are.
        found: u64,
    },
    /// A typed read of an array of another type.
    #[error("the array holds {found}, wanted {wanted}")]
    WrongType {
        /// The type it holds.
        found: NpyType,
        /// The types the read accepts.
        wanted: &'static str,
    },
    /// The archive is damaged, or not an archive.
    #[error("not a NumPy archive: {0}")]
    Archive(String),
    /// One entry of an archive is bad.
    #[error("entry '{name}': {source}")]
    Entry {
        /// The entry's name in the archive.
        name: String,
        /// Error of the entry.
        source: Box<NpzError>,
    },
}
