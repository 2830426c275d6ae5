//! Output allocators: memory for outputs that is asked of the caller when their sizes are known.

use super::native_settings::Handle;
use crate::RuntimeError;
use std::collections::BTreeMap;
use std::ffi::c_void;

/// Supplies the memory of outputs and learns their shapes.
///
/// A backend with memory of a device (CUDA) asks when a run is started, for the most bytes that the output can have. Other backends
/// ask for host memory when the run is done, for the bytes that the output has.
///
/// # Safety
/// [`OutputAllocator::allocate`] returns null, or an address of the backend's kind with the alignment and bytes that were asked for.
/// The memory stays valid until the allocator is asked again for the same output, is replaced, or the context is dropped.
pub unsafe trait OutputAllocator: Send {
    /// Returns memory for an output: `current`, the address that this allocator returned before or null, if it is large enough, or
    /// another one. Null refuses, and the run fails.
    fn allocate(&mut self, output: &str, current: *mut c_void, bytes: u64, alignment: u64) -> *mut c_void;

    /// Takes the shape of an output: when a run is started if shapes of inputs decide it, otherwise when the run is done.
    fn shape(&mut self, output: &str, shape: &[usize]);
}

/// The allocator of one output.
pub(super) struct Entry {
    allocator: Box<dyn OutputAllocator>,
    current: Option<Handle>,
    /// Whether the shape of the run in flight has not been reported.
    due: bool,
}

/// Allocators of a context by the position of the output.
#[derive(Default)]
pub(super) struct OutputAllocators(BTreeMap<usize, Entry>);

impl OutputAllocators {
    /// Whether any output has one.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets or removes the allocator of an output.
    pub(super) fn set(&mut self, output: usize, allocator: Option<Box<dyn OutputAllocator>>) {
        match allocator {
            Some(allocator) => drop(self.0.insert(output, Entry { allocator, current: None, due: false })),
            None => drop(self.0.remove(&output)),
        }
    }

    /// Outputs that have an allocator, by position.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Entry)> {
        self.0.iter_mut().map(|(&i, e)| (i, e))
    }

    /// Whether a shape of the run in flight has not been reported.
    pub(super) fn is_due(&self) -> bool {
        self.0.values().any(|e| e.due)
    }
}

impl Entry {
    /// Asks for memory.
    pub(super) fn allocate(
        &mut self,
        output: &str,
        bytes: u64,
        alignment: u64,
    ) -> Result<*mut c_void, RuntimeError> {
        let current = self.current.map_or(std::ptr::null_mut(), Handle::pointer);
        let address = self.allocator.allocate(output, current, bytes, alignment);
        self.current = Handle::of(address);
        match address.is_null() {
            true => Err(RuntimeError::OutputAllocator { output: output.to_owned(), bytes }),
            false => Ok(address),
        }
    }

    /// Reports the shape of a run that starts, if inputs decide it; otherwise it is due when the run is done.
    pub(super) fn begin(&mut self, output: &str, shape: Option<&[usize]>) {
        self.due = shape.is_none();
        if let Some(shape) = shape {
            self.allocator.shape(output, shape);
        }
    }

    /// Reports the shape of a run that is done, if it was not known before.
    pub(super) fn end(&mut self, output: &str, shape: &[usize]) {
        if std::mem::take(&mut self.due) {
            self.allocator.shape(output, shape);
        }
    }
}
