//! Reading of a file into decoded messages and the bytes of tensors.

mod external;
mod layout;
mod map;
mod path;
mod wire;

use std::path::Path;

use bytes::Bytes;
use prost::Message;

use crate::error::OnnxError;
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::TensorData;
use map::Access;

pub(crate) use external::External;
use path::Folders;

/// A decoded model file and the files beside it that hold its external data. What it decodes to takes at most 64 times the
/// file's size.
#[derive(Debug)]
pub struct ModelFile {
    proto: ModelProto,
    external: External,
    size: u64,
}

impl ModelFile {
    /// Reads and decodes a file. External data is looked for in its folder and read when it is asked for; where the file is a
    /// symbolic link, its data may be links to files beside the link's target, as in the download caches of hubs. Files may
    /// change once they are read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnnxError> {
        Self::open_by(path.as_ref(), Access::Copied)
    }

    /// Maps and decodes a file; external data is mapped, too. Tensors stay in the files until they are used.
    ///
    /// # Safety
    /// The files must be neither truncated nor written in place as long as this or any tensor taken from it lives: that
    /// ends the process with SIGBUS, or changes what was checked. Replacing them by a rename is fine.
    pub unsafe fn open_mapped(path: impl AsRef<Path>) -> Result<Self, OnnxError> {
        Self::open_by(path.as_ref(), Access::Mapped)
    }

    fn open_by(path: &Path, access: Access) -> Result<Self, OnnxError> {
        let bytes = access.read(path).map_err(|source| OnnxError::Io { path: path.to_owned(), source })?;
        Self::decode(bytes, External::new(Some(Folders::of_file(path, folder_of(path))), access))
    }

    /// Decodes a model in memory, sharing `bytes`. `folder` holds external data; without it such data is an
    /// error.
    pub fn from_bytes(bytes: impl Into<Bytes>, folder: Option<&Path>) -> Result<Self, OnnxError> {
        Self::decode(bytes.into(), External::new(folder.map(Folders::of), Access::Copied))
    }

    fn decode(bytes: Bytes, external: External) -> Result<Self, OnnxError> {
        wire::check(&bytes, &layout::MODEL)?;
        let size = bytes.len() as u64;
        let proto = ModelProto::decode(bytes).map_err(malformed)?;
        Ok(Self { proto, external, size })
    }

    /// A model made in memory, checked no further than a decoded one.
    pub fn from_proto(proto: ModelProto) -> Self {
        let size = proto.encoded_len() as u64;
        Self { proto, external: External::new(None, Access::Copied), size }
    }

    /// The messages as they are in the file, unchecked.
    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    /// The size of the file in bytes, external data not counted.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The access to external data.
    pub(crate) fn external(&self) -> &External {
        &self.external
    }
}

/// Decodes a file that holds a single tensor, as those of the ONNX test suite do.
fn open_tensor(path: &Path) -> Result<TensorData, OnnxError> {
    let bytes =
        Access::Copied.read(path).map_err(|source| OnnxError::Io { path: path.to_owned(), source })?;
    decode_tensor(bytes, Some(Folders::of_file(path, folder_of(path))))
}

/// Decodes a single tensor from memory.
fn decode_tensor(bytes: Bytes, folders: Option<Folders>) -> Result<TensorData, OnnxError> {
    wire::check(&bytes, &layout::TENSOR)?;
    let proto = TensorProto::decode(bytes).map_err(malformed)?;
    TensorData::read(&proto, &proto.name, &External::new(folders, Access::Copied))
}

impl TensorData {
    /// Reads a file that holds one encoded tensor, as those of the ONNX test suite do.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnnxError> {
        open_tensor(path.as_ref())
    }

    /// Decodes one encoded tensor, sharing `bytes`; external data is refused.
    pub fn from_encoded(bytes: impl Into<Bytes>) -> Result<Self, OnnxError> {
        decode_tensor(bytes.into(), None)
    }
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn malformed(error: prost::DecodeError) -> OnnxError {
    OnnxError::Malformed { reason: error.to_string() }
}
