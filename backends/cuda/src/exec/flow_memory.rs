//! Memory that a step of control flow on the device needs beside its values.

use super::fallback::OnDevice;
use super::memory::Range;
use super::moves::CELL_BYTES;
use super::queue::CudaQueue;
use crate::driver::Buffer;
use kiln_gpu::Queue as _;

/// Bytes of a loop's state: a count of iterations, blocks done, whether it goes on, and 16 to spare.
const STATE_BYTES: u64 = 32;

/// The memory of one step. Buffers grow; replaced ones stay until the run that may name them is done.
#[derive(Default)]
pub struct FlowMemory {
    state: Option<Buffer>,
    stage: Option<Buffer>,
    cells: Option<Buffer>,
    others: Vec<Option<Buffer>>,
    retired: Vec<Buffer>,
}

impl FlowMemory {
    fn grown(
        queue: &mut CudaQueue,
        slot: &mut Option<Buffer>,
        retired: &mut Vec<Buffer>,
        what: &str,
        bytes: u64,
    ) -> OnDevice<u64> {
        if slot.as_ref().is_none_or(|b| b.size() < bytes) {
            retired.extend(slot.replace(queue.allocate(what, bytes)?));
        }
        Ok(slot.as_ref().map_or(0, Buffer::address))
    }

    /// Memory for values on their way.
    pub fn stage(&mut self, queue: &mut CudaQueue, bytes: u64) -> OnDevice<u64> {
        Self::grown(queue, &mut self.stage, &mut self.retired, "values of a loop", bytes)
    }

    /// Memory of carried value `i` after every other iteration.
    pub fn other(&mut self, queue: &mut CudaQueue, i: usize, bytes: u64) -> OnDevice<Range> {
        if self.others.len() <= i {
            self.others.resize_with(i + 1, || None);
        }
        let what = "carried values of a loop";
        let address = Self::grown(queue, &mut self.others[i], &mut self.retired, what, bytes.max(1))?;
        Ok(Range { address, size: bytes })
    }

    /// Memory for so many cells.
    pub fn cells(&mut self, queue: &mut CudaQueue, count: usize) -> OnDevice<u64> {
        let bytes = count.max(1) as u64 * CELL_BYTES;
        Self::grown(queue, &mut self.cells, &mut self.retired, "addresses of a loop", bytes)
    }

    /// Memory in which a loop counts its iterations, followed by 16 spare bytes.
    pub fn state(&mut self, queue: &mut CudaQueue) -> OnDevice<u64> {
        if self.state.is_none() {
            let b = queue.allocate("the state of a loop", STATE_BYTES)?;
            b.fill(0, &queue.stream)?;
            self.state = Some(b);
        }
        Ok(self.state.as_ref().map_or(0, Buffer::address))
    }

    /// Frees replaced buffers.
    pub fn settle(&mut self) {
        self.retired.clear();
    }
}
