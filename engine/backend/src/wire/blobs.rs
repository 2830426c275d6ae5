//! Blobs of steps, stored beside a program.

use crate::BackendError;
use kiln_ir::Bytes;
use std::collections::HashMap;

/// Blobs by index; equal ones are stored once.
#[derive(Clone, Debug, Default)]
pub struct BlobList {
    blobs: Vec<Bytes>,
    by_hash: HashMap<[u8; 32], u64>,
}

impl BlobList {
    /// A list of blobs that were stored.
    pub fn new(blobs: Vec<Bytes>) -> BlobList {
        BlobList { blobs, by_hash: HashMap::new() }
    }

    /// Stores a blob, unless it is there, and says under which index.
    pub fn put(&mut self, blob: &Bytes) -> u64 {
        let next = self.blobs.len() as u64;
        let index = *self.by_hash.entry(*blake3::hash(blob.as_slice()).as_bytes()).or_insert(next);
        if index == next {
            self.blobs.push(blob.clone());
        }
        index
    }

    /// The blob at an index.
    pub fn get(&self, index: u64) -> Result<Bytes, BackendError> {
        let blob = usize::try_from(index).ok().and_then(|i| self.blobs.get(i)).cloned();
        blob.ok_or_else(|| {
            BackendError::Incompatible(format!("blob {index} does not exist; there are {}", self.blobs.len()))
        })
    }

    /// The blobs in the order of their indices.
    pub fn blobs(&self) -> &[Bytes] {
        &self.blobs
    }
}
