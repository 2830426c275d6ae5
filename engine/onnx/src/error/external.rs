//! Faults of data in files beside the model.

/// Reason why external data is refused. Data has to be in the folder of the model or below it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalFault {
    /// The model came from memory, without a folder.
    #[error("cannot be found: the model was read from memory; name the folder of the model's files")]
    NoFolder,
    /// Tensor without a location.
    #[error("is refused: the tensor has no location")]
    NoLocation,
    /// An absolute path.
    #[error("is refused: the path is absolute; it has to be relative to the model's folder")]
    Absolute,
    /// A path with `..` in it.
    #[error("is refused: the path leaves the model's folder by '..'")]
    Parent,
    /// A symbolic link to elsewhere.
    #[error(
        "is refused: a symbolic link leads out of the model's folder, and not to where the model's own file is; copy the file there"
    )]
    Escapes,
    /// A folder, a pipe, a device.
    #[error("is refused: it is not a regular file")]
    NotAFile,
    /// Offset or length is not a number.
    #[error("is refused: its {key} is '{found}': wanted a number of bytes")]
    BadNumber {
        /// `offset` or `length`.
        key: &'static str,
        /// Text of the entry.
        found: String,
    },
    /// Offset and length reach past the end.
    #[error("is too short: wanted {length} bytes from {offset}, the file has {size}")]
    PastEnd {
        /// Start of the data, in bytes.
        offset: u64,
        /// Length of the data, in bytes.
        length: u64,
        /// The size of the file.
        size: u64,
    },
    /// File that cannot be opened.
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
}
