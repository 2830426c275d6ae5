//! Inputs from, and outputs to, memory that the caller binds on the host or supplies through allocators.

use super::ExecutionContext;
use super::output_allocator::OutputAllocator;
use super::output_size::{Ranges, most};
use crate::engine::unknown;
use crate::formats::logical_type;
use crate::{IoTensor, RuntimeError};
use kiln_backend::{Bound, Shapes};
use kiln_ir::Tensor;

impl ExecutionContext {
    /// Lets an allocator supply the memory of an output for further runs, in place of memory that is bound to it; `None` ends this
    /// and the binding. It stays set through a refit.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownTensor`]. Runs fail with [`RuntimeError::OutputAllocator`] where the allocator returns null.
    pub fn set_output_allocator(
        &mut self,
        output: &str,
        allocator: Option<Box<dyn OutputAllocator>>,
    ) -> Result<(), RuntimeError> {
        let result = self.try_set_output_allocator(output, allocator);
        self.recorder.note(result)
    }

    fn try_set_output_allocator(
        &mut self,
        output: &str,
        allocator: Option<Box<dyn OutputAllocator>>,
    ) -> Result<(), RuntimeError> {
        let outputs = self.engine.output_tensors();
        let at = outputs.iter().position(|t| t.name == output);
        let at = at.ok_or_else(|| unknown(outputs, "output", output))?;
        // SAFETY: null ends a binding.
        unsafe { self.bind_port(Bound::Output(at), std::ptr::null_mut(), 0) }?;
        self.allocators.set(at, allocator);
        Ok(())
    }

    /// Asks for the memory of a run that starts, on a device, and reports shapes that are known.
    pub(super) fn allocate_outputs(&mut self, shapes: &Shapes) -> Result<(), RuntimeError> {
        if self.allocators.is_empty() {
            return Ok(());
        }
        let on_device = self.takes_device_memory();
        let alignment = self.engine.target.memory.alignment.max(1);
        let values = self.loaded.program.graph.outputs.clone();
        let engine = self.engine.clone();
        let mut allocators = std::mem::take(&mut self.allocators);
        let mut asked = || -> Result<(), RuntimeError> {
            for (i, entry) in allocators.iter_mut() {
                let (Some(t), Some(&v)) = (engine.output_tensors().get(i), values.get(i)) else { continue };
                let ty = &shapes.fact(v).ty;
                if on_device {
                    let bytes = most(ty, &Ranges::new()).ok_or_else(|| {
                        RuntimeError::State(format!(
                            "nothing bounds the size of output \"{}\" ({ty}) before a run",
                            t.name
                        ))
                    })?;
                    let bytes = bytes.max(1);
                    let address = entry.allocate(&t.name, bytes, alignment)?;
                    // SAFETY: the allocator vouches for its memory.
                    unsafe { self.bind_port(Bound::Output(i), address, bytes) }?;
                }
                entry.begin(&t.name, logical_type(t, ty).static_dims().as_deref());
            }
            Ok(())
        };
        let result = asked();
        self.allocators = allocators;
        result
    }

    /// Asks for host memory for the results of a run that is done, copies them, and reports shapes that only the run decided.
    fn deliver_to_allocators(&mut self, results: &[Tensor]) -> Result<(), RuntimeError> {
        if self.allocators.is_empty() {
            return Ok(());
        }
        let on_device = self.takes_device_memory();
        let engine = self.engine.clone();
        for (i, entry) in self.allocators.iter_mut() {
            let (Some(t), Some(result)) = (engine.output_tensors().get(i), results.get(i)) else { continue };
            if !on_device {
                let bytes = result.bytes();
                let address = entry.allocate(&t.name, bytes.len().max(1) as u64, HOST_ALIGNMENT)?;
                // SAFETY: the allocator vouches for as many bytes at its address, which is not part of a tensor of Kiln's.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len()) };
            }
            entry.end(&t.name, &logical_shape(t, result));
        }
        Ok(())
    }

    /// Reads inputs that are bound to host memory and whose shapes are known; all of them, or only those whose elements decide
    /// shapes.
    pub(super) fn read_bound_inputs(&mut self, shape_inputs_only: bool) -> Result<(), RuntimeError> {
        if !self.host.has_inputs() {
            return Ok(());
        }
        for (i, (t, slot)) in self.engine.input_tensors().iter().zip(&mut self.slots).enumerate() {
            if shape_inputs_only && !t.is_shape_input {
                continue;
            }
            let Some(shape) = slot.shape.clone().or_else(|| t.ty().static_dims()) else { continue };
            if let Some(tensor) = self.host.read(i, t, &shape)? {
                (slot.tensor, slot.stands_in) = (Some(tensor), true);
            }
        }
        Ok(())
    }

    /// Refuses outputs of known sizes for which bound host memory has no room.
    pub(super) fn check_room(&self, shapes: &Shapes) -> Result<(), RuntimeError> {
        if !self.host.has_outputs() {
            return Ok(());
        }
        let values = &self.loaded.program.graph.outputs;
        for (i, (t, &v)) in self.engine.output_tensors().iter().zip(values).enumerate() {
            let ty = &shapes.fact(v).ty;
            let count =
                ty.static_dims().and_then(|d| d.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64)));
            if let Some(bytes) = count.and_then(|n| ty.dtype.bytes_for(n)) {
                self.host.check(i, &t.name, bytes).map_err(|e| self.engine.backend_error(e))?;
            }
        }
        Ok(())
    }

    /// Copies results to bound host memory and to allocators.
    pub(super) fn deliver(&mut self, results: &[Tensor]) -> Result<(), RuntimeError> {
        for (i, (t, result)) in self.engine.output_tensors().iter().zip(results).enumerate() {
            self.host.write(i, &t.name, result).map_err(|e| self.engine.backend_error(e))?;
        }
        self.deliver_to_allocators(results)
    }

    /// Takes the results of a run that is done, once, if host memory or allocators want them.
    pub(super) fn deliver_early(&mut self) -> Result<(), RuntimeError> {
        let on_host = !self.allocators.is_empty() && !self.takes_device_memory();
        let wanted = self.host.has_outputs() || on_host || self.allocators.is_due();
        if !wanted || self.results.is_some() {
            return Ok(());
        }
        let results = self.under_flag(|context| context.outputs()).map_err(|e| self.ended(e))?;
        self.deliver(&results)?;
        self.results = Some(results);
        Ok(())
    }
}

/// Alignment of host memory that allocators are asked for, in bytes.
const HOST_ALIGNMENT: u64 = 64;

/// Dimensions of a tensor that is in memory.
fn logical_shape(t: &IoTensor, physical: &Tensor) -> Vec<usize> {
    t.packing.logical_shape(physical.shape()).unwrap_or_else(|| physical.shape().to_vec())
}
