//! Tensors and blobs that are stored beside a payload: the context of derived readers and writers.

use super::BlobList;
use crate::BackendError;
use crate::stores::Stores;
use kiln_ir::Bytes;
use kiln_ir::wire::{WeightList, WeightSink, WeightSource};

/// Stores of a payload that is written; nothing can be read from them.
pub struct Writing<'a> {
    weights: &'a mut dyn WeightSink,
    blobs: &'a mut BlobList,
    none: WeightList,
    depth: usize,
}

impl<'a> Writing<'a> {
    /// Stores that are filled.
    pub fn new(weights: &'a mut dyn WeightSink, blobs: &'a mut BlobList) -> Writing<'a> {
        Writing { weights, blobs, none: WeightList::default(), depth: 0 }
    }
}

impl Stores for Writing<'_> {
    fn sink(&mut self) -> &mut dyn WeightSink {
        self.weights
    }

    fn source(&self) -> &dyn WeightSource {
        &self.none
    }

    fn put_blob(&mut self, blob: &Bytes) -> u64 {
        self.blobs.put(blob)
    }

    fn blob(&self, index: u64) -> Result<Bytes, BackendError> {
        self.blobs.get(index)
    }

    fn depth(&mut self) -> &mut usize {
        &mut self.depth
    }
}

/// Stores of a payload that is read; what is written to them is lost.
pub struct Reading<'a> {
    weights: &'a dyn WeightSource,
    blobs: &'a BlobList,
    lost: (WeightList, BlobList),
    depth: usize,
}

impl<'a> Reading<'a> {
    /// Stores that came along with a payload.
    pub fn new(weights: &'a dyn WeightSource, blobs: &'a BlobList) -> Reading<'a> {
        Reading { weights, blobs, lost: Default::default(), depth: 0 }
    }
}

impl Stores for Reading<'_> {
    fn sink(&mut self) -> &mut dyn WeightSink {
        &mut self.lost.0
    }

    fn source(&self) -> &dyn WeightSource {
        self.weights
    }

    fn put_blob(&mut self, blob: &Bytes) -> u64 {
        self.lost.1.put(blob)
    }

    fn blob(&self, index: u64) -> Result<Bytes, BackendError> {
        self.blobs.get(index)
    }

    fn depth(&mut self) -> &mut usize {
        &mut self.depth
    }
}
