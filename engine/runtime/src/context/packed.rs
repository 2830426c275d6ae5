//! Inputs and outputs in their formats, as they are in memory.

use super::{ExecutionContext, Slot};
use crate::RuntimeError;
use crate::shapes::check_shape;
use kiln_ir::{Bytes, Tensor};

impl ExecutionContext {
    /// Sets an input from its memory: little-endian elements in the order of the input's format, [`IoTensor::bytes`] of
    /// them. What fills up vectors is not read. `shape` are the dimensions of the tensor, as of a linear one. It stays set for the
    /// following runs.
    pub fn set_packed_input(
        &mut self,
        name: &str,
        shape: &[usize],
        bytes: impl Into<Bytes>,
    ) -> Result<(), RuntimeError> {
        let i = self.engine.input(name)?;
        let io = &self.engine.io[i];
        check_shape(io, shape)?;
        let bytes = bytes.into();
        let found = bytes.as_slice().len() as u64;
        let tensor = Tensor::from_bytes(io.dtype, &io.packing.physical_shape(shape), bytes);
        let tensor = tensor.ok_or_else(|| RuntimeError::Bytes {
            name: name.to_owned(),
            format: io.format_description(),
            shape: shape.to_vec(),
            found,
            wanted: io.bytes(shape).unwrap_or(u64::MAX),
        })?;
        self.slots[i] = Slot { shape: Some(shape.to_vec()), tensor: Some(tensor), stands_in: false };
        Ok(())
    }
}
