//! Buffers of the device, and ranges of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Usages of memory for tensors and arguments.
pub const TENSOR: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

/// A buffer with a number of its own.
pub struct Buffer {
    pub buffer: wgpu::Buffer,
    id: u64,
}

impl Buffer {
    pub fn new(buffer: wgpu::Buffer) -> Buffer {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Buffer { buffer, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl kiln_gpu::Buffer for Buffer {
    type Range = Range;

    fn bytes(&self) -> u64 {
        self.buffer.size()
    }

    fn range(&self, offset: u64, bytes: u64) -> Range {
        let whole = Range { buffer: self.buffer.clone(), id: self.id, offset: 0, size: self.buffer.size() };
        kiln_gpu::Range::part(&whole, offset, bytes)
    }

    fn contains(&self, range: &Range) -> bool {
        self.id == range.id
    }
}

/// A range of a buffer.
#[derive(Clone, Debug)]
pub struct Range {
    pub buffer: wgpu::Buffer,
    /// The buffer's number.
    pub id: u64,
    pub offset: u64,
    /// In units of 16 bytes, as bindings want it, unless the buffer ends.
    pub size: u64,
}

impl PartialEq for Range {
    fn eq(&self, other: &Range) -> bool {
        (self.id, self.offset, self.size) == (other.id, other.offset, other.size)
    }
}

impl kiln_gpu::Range for Range {
    fn bytes(&self) -> u64 {
        self.size
    }

    fn part(&self, offset: u64, bytes: u64) -> Range {
        let room = self.size.saturating_sub(offset);
        let size = bytes.max(16).next_multiple_of(16).min(room);
        Range { buffer: self.buffer.clone(), offset: self.offset + offset, size, ..*self }
    }

    fn same_start(&self, other: &Range) -> bool {
        (self.id, self.offset) == (other.id, other.offset)
    }
}

impl Range {
    /// Piece `p` of a tensor that is bound in pieces of `bytes` bytes. One that a smaller tensor does not have is its end.
    pub fn piece(self, p: u64, bytes: u64) -> Range {
        let from = (p * bytes).min(self.size.saturating_sub(16) / bytes * bytes);
        Range { offset: self.offset + from, size: (self.size - from).min(bytes), ..self }
    }
}
