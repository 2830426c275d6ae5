//! The tensors that lie outside of a payload, for as long as a call lasts.

use kiln_ir::wire::{WeightSink, WeightSource};
use kiln_ir::{Bytes, IrError, Tensor};
use std::collections::HashMap;

/// Tensors by index, without looking at their bytes: a tensor is stored once if its bytes lie in the same place.
#[derive(Debug, Default)]
pub struct TensorViews {
    tensors: Vec<Tensor>,
    by_place: HashMap<(usize, usize), u64>,
}

impl TensorViews {
    /// A list of tensors that came with a payload.
    pub fn new(tensors: Vec<Tensor>) -> TensorViews {
        TensorViews { tensors, by_place: HashMap::new() }
    }

    /// The tensors in the order of their indices.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl WeightSink for TensorViews {
    fn put(&mut self, tensor: &Tensor, _: Option<&str>) -> Result<u64, IrError> {
        let place = (tensor.bytes().as_ptr().addr(), tensor.bytes().len());
        let next = self.tensors.len() as u64;
        let index = *self.by_place.entry(place).or_insert(next);
        if index == next {
            self.tensors.push(tensor.clone());
        }
        Ok(index)
    }
}

impl WeightSource for TensorViews {
    fn get(&self, index: u64) -> Result<Bytes, IrError> {
        let tensor = usize::try_from(index).ok().and_then(|i| self.tensors.get(i));
        tensor.map(Tensor::shared_bytes).ok_or_else(|| {
            IrError::Payload(format!("tensor {index} does not exist; {} came along", self.tensors.len()))
        })
    }
}
