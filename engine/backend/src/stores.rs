//! Stores beside a payload: the context of derived readers and writers.

use crate::BackendError;
use kiln_ir::Bytes;
use kiln_ir::wire::{WeightSink, WeightSource};

/// Tensors and blobs beside a payload.
pub trait Stores {
    /// The store for large tensors of a payload that is written.
    fn sink(&mut self) -> &mut dyn WeightSink;

    /// The store of large tensors of a payload that is read.
    fn source(&self) -> &dyn WeightSource;

    /// Stores a blob of a payload that is written.
    fn put_blob(&mut self, blob: &Bytes) -> u64;

    /// A blob of a payload that is read.
    fn blob(&self, index: u64) -> Result<Bytes, BackendError>;

    /// The number of programs around the one that is read.
    fn depth(&mut self) -> &mut usize;
}
