//! Memory of the caller's on the host, for backends that take no addresses of a device.

use super::native_settings::Handle;
use crate::{IoTensor, RuntimeError};
use kiln_backend::{BackendError, Bound};
use kiln_ir::Tensor;
use std::collections::BTreeMap;
use std::ffi::c_void;

/// A range of host memory.
#[derive(Clone, Copy, Debug)]
struct HostRange {
    address: Handle,
    bytes: u64,
}

/// Ranges that are bound to inputs and outputs, by position.
#[derive(Default)]
pub(super) struct HostMemory {
    inputs: BTreeMap<usize, HostRange>,
    outputs: BTreeMap<usize, HostRange>,
}

impl HostMemory {
    /// Binds a range to an input or output; null ends the binding.
    pub(super) fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64) {
        let (all, i) = match port {
            Bound::Input(i) => (&mut self.inputs, i),
            Bound::Output(i) => (&mut self.outputs, i),
        };
        match Handle::of(address) {
            Some(address) => all.insert(i, HostRange { address, bytes }),
            None => all.remove(&i),
        };
    }

    /// Whether any input is bound.
    pub(super) fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Whether an input is bound.
    pub(super) fn has_input(&self, i: usize) -> bool {
        self.inputs.contains_key(&i)
    }

    /// Whether results are to be written anywhere.
    pub(super) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Copies a bound input of this shape; `None` if it is not bound.
    pub(super) fn read(
        &self,
        i: usize,
        io: &IoTensor,
        shape: &[usize],
    ) -> Result<Option<Tensor>, RuntimeError> {
        let Some(range) = self.inputs.get(&i) else { return Ok(None) };
        let wanted = io.bytes(shape).unwrap_or(u64::MAX);
        let short = || RuntimeError::Bytes {
            name: io.name.clone(),
            format: io.format_description(),
            shape: shape.to_vec(),
            found: range.bytes,
            wanted,
        };
        let len = usize::try_from(wanted).ok().filter(|_| wanted <= range.bytes).ok_or_else(short)?;
        // SAFETY: the caller of `bind` vouched for so many bytes at the address until it is bound anew.
        let bytes = unsafe { std::slice::from_raw_parts(range.address.pointer().cast::<u8>(), len) };
        let copy = Tensor::from_bytes(io.dtype, &io.packing.physical_shape(shape), bytes.to_vec());
        copy.map(Some).ok_or_else(short)
    }

    /// Copies a result to the memory that is bound to the output.
    pub(super) fn write(&self, i: usize, name: &str, result: &Tensor) -> Result<(), BackendError> {
        let Some(range) = self.outputs.get(&i) else { return Ok(()) };
        let bytes = result.bytes();
        if (bytes.len() as u64) > range.bytes {
            return Err(room(name, bytes.len() as u64, range.bytes));
        }
        // SAFETY: the caller of `bind` vouched for so many bytes at the address, which nothing else uses during a run.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), range.address.pointer().cast(), bytes.len());
        }
        Ok(())
    }

    /// Refuses an output that is known to be larger than the memory bound to it.
    pub(super) fn check(&self, i: usize, name: &str, bytes: u64) -> Result<(), BackendError> {
        match self.outputs.get(&i) {
            Some(range) if range.bytes < bytes => Err(room(name, bytes, range.bytes)),
            _ => Ok(()),
        }
    }
}

/// The error for a result that does not fit.
fn room(name: &str, bytes: u64, bound: u64) -> BackendError {
    BackendError::InvalidArgument(format!(
        "output \"{name}\" has {bytes} bytes, the memory bound to it {bound}; bind more"
    ))
}
