//! From a file to decoded messages and the bytes of tensors.

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

pub(crate) use external::External;
use path::Folders;
pub(crate) use wire::NOT_ONNX_HINT;

/// A decoded model file and the files beside it that hold its external data.
///
/// The file stays mapped as long as any tensor taken from it lives: it must not be truncated or rewritten in place
/// meanwhile (replacing it by a rename is fine). What it decodes to takes at most 64 times the file's size.
#[derive(Debug)]
pub struct ModelFile {
    proto: ModelProto,
    external: External,
    size: u64,
}

impl ModelFile {
    /// Maps and decodes a file. External data is looked for in its folder; where the file is a symbolic link, its data may
    /// be links to files beside the link's target, as in the download caches of hubs.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnnxError> {
        let path = path.as_ref();
        let bytes = map::map_file(path).map_err(|source| OnnxError::Io { path: path.to_owned(), source })?;
        Self::decode(bytes, Some(Folders::of_file(path, folder_of(path))))
    }

    /// Decodes a model in memory, sharing `bytes`. `folder` is where external data lies; without it such data is an
    /// error.
    pub fn from_bytes(bytes: impl Into<Bytes>, folder: Option<&Path>) -> Result<Self, OnnxError> {
        Self::decode(bytes.into(), folder.map(Folders::of))
    }

    fn decode(bytes: Bytes, folders: Option<Folders>) -> Result<Self, OnnxError> {
        wire::check(&bytes, &layout::MODEL)?;
        let size = bytes.len() as u64;
        let proto = ModelProto::decode(bytes).map_err(malformed)?;
        Ok(Self { proto, external: External::new(folders), size })
    }

    /// A model made in memory, checked no further than a decoded one.
    pub fn from_proto(proto: ModelProto) -> Self {
        let size = proto.encoded_len() as u64;
        Self { proto, external: External::new(None), size }
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
pub(crate) fn open_tensor(path: &Path) -> Result<TensorData, OnnxError> {
    let bytes = map::map_file(path).map_err(|source| OnnxError::Io { path: path.to_owned(), source })?;
    decode_tensor(bytes, Some(Folders::of_file(path, folder_of(path))))
}

/// Decodes a single tensor from memory.
pub(crate) fn decode_tensor(bytes: Bytes, folders: Option<Folders>) -> Result<TensorData, OnnxError> {
    wire::check(&bytes, &layout::TENSOR)?;
    let proto = TensorProto::decode(bytes).map_err(malformed)?;
    TensorData::read(&proto, &proto.name, &External::new(folders))
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn malformed(error: prost::DecodeError) -> OnnxError {
    OnnxError::Malformed { reason: error.to_string() }
}
