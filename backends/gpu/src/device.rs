//! Devices: memory, and a queue of copies and transfers.

use crate::shared::SharedBuffers;
use kiln_backend::{BackendError, Target};
use std::fmt::Debug;

/// An open device.
pub trait Device: Sized + Send + Sync + 'static {
    /// Memory of the device.
    type Buffer: Buffer<Range = Self::Range>;
    /// A range of such memory.
    type Range: Range;
    /// Notes about memory that the device takes while launches are planned.
    type Notes: Default + Send;
    /// A weight in memory of the host that the device reads while kernels run.
    type HostCopy: Send + Sync;
    /// The queue for the work of a context.
    type Queue: Queue<Buffer = Self::Buffer, Range = Self::Range>;

    /// Whether launches name memory by address, so that a buffer that a larger one replaces has to stay until they are done.
    const KEEPS_REPLACED: bool;
    /// Whether a kernel sees ranges as bindings, which it cannot leave.
    const BINDS_RANGES: bool;
    /// Bytes behind the arena, for devices that bind no empty range.
    const ARENA_TAIL: u64;
    /// The largest buffer that small weights share.
    const WEIGHTS_CHUNK: u64;

    /// Description of the device.
    fn target(&self) -> &Target;

    /// Memory of weights that programs on this device share.
    fn shared_weights(&self) -> &SharedBuffers<Self::Buffer>;

    /// Copies a weight into memory of the host that the device reads while kernels run; none where the device cannot.
    fn host_copy(
        &self,
        _queue: &mut Self::Queue,
        _bytes: &[u8],
    ) -> Result<Option<Self::HostCopy>, BackendError> {
        Ok(None)
    }
}

/// Memory of a device.
pub trait Buffer: Send + Sync {
    /// A range of it.
    type Range;

    /// Length in bytes.
    fn bytes(&self) -> u64;

    /// `bytes` bytes from `offset` on.
    fn range(&self, offset: u64, bytes: u64) -> Self::Range;

    /// Whether a range is memory of this buffer.
    fn contains(&self, range: &Self::Range) -> bool;
}

/// A range of a buffer. Equal ranges are the same memory.
pub trait Range: Clone + Debug + PartialEq + Send + Sync {
    /// Length in bytes; some devices round it up to whole words.
    fn bytes(&self) -> u64;

    /// `bytes` bytes from `offset` on.
    fn part(&self, offset: u64, bytes: u64) -> Self;

    /// Whether both start at the same byte.
    fn same_start(&self, other: &Self) -> bool;
}

/// Work of a device in order. Copies are of whole words on some devices: ranges have room for these.
pub trait Queue: Send {
    /// Memory of the device.
    type Buffer;
    /// A range of it.
    type Range;

    /// Starts a run: drops what a failed run left behind, and waits until the last run's memory of the host is free.
    fn begin(&mut self) -> Result<(), BackendError>;

    /// Memory of at least `bytes` bytes; `what` names it in errors.
    fn allocate(&mut self, what: &str, bytes: u64) -> Result<Self::Buffer, BackendError>;

    /// Number of allocations that were made through this queue, of the device and of the host's memory for
    /// transfers.
    fn allocations(&self) -> u64;

    /// Copies bytes of the host to the device.
    fn upload(&mut self, parts: &[(Self::Range, &[u8])]) -> Result<(), BackendError>;

    /// Copies any number of bytes: waits, so that the memory for transfers stays bounded.
    fn store(&mut self, to: &Self::Range, bytes: &[u8]) -> Result<(), BackendError>;

    /// Copies any number of bytes to several ranges, as [`Queue::store`] does to one. The ranges of each list lie in one buffer.
    fn store_all(&mut self, buffers: &[Vec<(Self::Range, &[u8])>]) -> Result<(), BackendError> {
        buffers.iter().flatten().try_for_each(|(to, bytes)| self.store(to, bytes))
    }

    /// Copies the first bytes of a range; nothing where both are the same.
    fn copy(&mut self, from: &Self::Range, to: &Self::Range, bytes: u64) -> Result<(), BackendError>;

    /// Sets the bytes `start..end` of a range to zero.
    fn clear(&mut self, range: &Self::Range, start: u64, end: u64) -> Result<(), BackendError>;

    /// Fills a buffer with bytes that are NaN as floats.
    fn poison(&mut self, buffer: &Self::Buffer) -> Result<(), BackendError>;

    /// Copies between a tensor and the slots of a loop.
    fn rearrange(
        &mut self,
        job: &Rearrange,
        from: &Self::Range,
        to: &Self::Range,
    ) -> Result<(), BackendError>;

    /// Starts copying ranges to the host.
    fn start_reading(&mut self, from: &[(Self::Range, usize)]) -> Result<(), BackendError>;

    /// Ends a run: what was started is done at the latest when [`Queue::finish_reading`] returns.
    fn end(&mut self) -> Result<(), BackendError>;

    /// Waits for what was read, of which the first ranges have these lengths.
    fn finish_reading(&mut self, lengths: &[usize]) -> Result<Vec<Vec<u8>>, BackendError>;

    /// Waits for what was put into the queue so far, or for what an ended run did.
    fn wait(&mut self) -> Result<(), BackendError>;

    /// Called after each body of control flow: submits, and waits now and then, as much as [`kiln_backend::flow::Pace`] says.
    fn relieve(&mut self) -> Result<(), BackendError>;

    /// Frees unused memory.
    fn trim(&mut self) -> Result<(), BackendError>;

    /// Copies ranges to the host now.
    fn read(&mut self, from: &[(Self::Range, usize)]) -> Result<Vec<Vec<u8>>, BackendError> {
        self.start_reading(from)?;
        self.finish_reading(&from.iter().map(|(_, n)| *n).collect::<Vec<_>>())
    }
}

/// A copy between a tensor `[rows, length, inner]` and slots, one for each place along its second axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rearrange {
    /// Whether slots go into the tensor, or the other way round.
    pub stacks: bool,
    /// Rows in front of the axis.
    pub rows: u64,
    /// Places along the axis.
    pub length: u64,
    /// Bits behind the axis.
    pub inner: u64,
    /// Bits from slot to slot, a multiple of 32.
    pub slot: u64,
    /// Slots that are filled; further places of the tensor become 0.
    pub filled: u64,
    /// Whether the last slot is the first along the axis.
    pub reverse: bool,
    /// Bytes that are written.
    pub bytes: u64,
}

impl Rearrange {
    /// The bytes that a copy writes, from those that it reads: for devices that cannot address its elements.
    pub fn on_host(&self, source: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.bytes as usize];
        let count = self.filled.min(self.length);
        for (row, k) in (0..self.rows).flat_map(|row| (0..count).map(move |k| (row, k))) {
            let place = if self.reverse { count - 1 - k } else { k };
            let (tensor, slots) =
                ((row * self.length + place) * self.inner, k * self.slot + row * self.inner);
            let (from, to) = if self.stacks { (slots, tensor) } else { (tensor, slots) };
            for bit in 0..self.inner {
                let byte = source.get(((from + bit) / 8) as usize).copied().unwrap_or(0);
                if let Some(o) = out.get_mut(((to + bit) / 8) as usize) {
                    *o |= (byte >> ((from + bit) % 8) & 1) << ((to + bit) % 8);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of three places of three elements of 4 bits.
    const TENSOR: [u8; 9] = [0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb, 0xed, 0x0f, 0x21];

    fn job(stacks: bool) -> Rearrange {
        let bytes = if stacks { 9 } else { 12 };
        Rearrange { stacks, rows: 2, length: 3, inner: 12, slot: 32, filled: 3, reverse: false, bytes }
    }

    #[test]
    fn elements_that_share_bytes_are_cut_and_stacked() {
        let slots = job(false).on_host(&TENSOR);
        assert_eq!(slots, [0x21, 0xa3, 0xcb, 0, 0x54, 0xd6, 0xfe, 0, 0x87, 0x09, 0x21, 0]);
        assert_eq!(job(true).on_host(&slots), TENSOR);
    }

    #[test]
    fn places_behind_the_last_slot_are_zero() {
        let slots = job(false).on_host(&TENSOR);
        let two = Rearrange { filled: 2, reverse: true, ..job(true) }.on_host(&slots);
        assert_eq!(two, [0x54, 0x16, 0x32, 0, 0xd0, 0xfe, 0xba, 0x0c, 0]);
    }
}
