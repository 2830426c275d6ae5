//! Inputs and outputs at addresses that kernels cannot use: runs use copies of them.

use super::memory::Range;
use super::queue::CudaQueue;
use crate::driver::Buffer;
use kiln_backend::{BackendError, Bound};
use kiln_gpu::Queue as _;
use std::collections::HashMap;

/// Memory of a caller's, and that of runs in its place.
struct Copy {
    theirs: Range,
    ours: Buffer,
}

/// Copies of what a caller bound, by position.
#[derive(Default)]
pub struct Staged {
    inputs: HashMap<usize, Copy>,
    outputs: HashMap<usize, Copy>,
}

impl Staged {
    /// Takes memory for a copy, in the place of the caller's. Returns where runs find it.
    pub fn add(&mut self, queue: &mut CudaQueue, port: Bound, theirs: Range) -> Result<Range, BackendError> {
        let old = self.remove(port).filter(|b| b.size() >= theirs.size);
        let ours = match old {
            Some(buffer) => buffer,
            None => queue.allocate("a copy of bound memory", theirs.size)?,
        };
        let range = Range { address: ours.address(), size: theirs.size };
        let copy = Copy { theirs, ours };
        match port {
            Bound::Input(i) => self.inputs.insert(i, copy),
            Bound::Output(i) => self.outputs.insert(i, copy),
        };
        Ok(range)
    }

    /// Forgets a copy. Returns the memory, which work in the queue may still use.
    pub fn remove(&mut self, port: Bound) -> Option<Buffer> {
        let copy = match port {
            Bound::Input(i) => self.inputs.remove(&i),
            Bound::Output(i) => self.outputs.remove(&i),
        };
        copy.map(|c| c.ours)
    }

    /// The caller's memory of a port that has a copy.
    pub fn theirs(&self, port: Bound) -> Option<Range> {
        let copy = match port {
            Bound::Input(i) => self.inputs.get(&i),
            Bound::Output(i) => self.outputs.get(&i),
        };
        copy.map(|c| c.theirs)
    }

    /// Whether nothing is copied.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }

    /// Copies inputs, before kernels read them.
    pub fn copy_inputs(&self, queue: &CudaQueue) -> Result<(), BackendError> {
        let copy = |c: &Copy| queue.stream.copy(c.ours.address(), c.theirs.address, c.theirs.size as usize);
        Ok(self.inputs.values().try_for_each(copy)?)
    }

    /// Copies outputs, behind the kernels that write them.
    pub fn copy_outputs(&self, queue: &CudaQueue) -> Result<(), BackendError> {
        let copy = |c: &Copy| queue.stream.copy(c.theirs.address, c.ours.address(), c.theirs.size as usize);
        Ok(self.outputs.values().try_for_each(copy)?)
    }
}
