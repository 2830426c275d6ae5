//! Bytes of the host that go to buffers of the device.

use crate::gpu::Gpu;
use kiln_backend::BackendError;
use std::sync::atomic::Ordering;

/// Uploads go in pieces of this size, so that staging memory stays bounded.
const PIECE: usize = 32 << 20;

/// Writes bytes; the last word is filled up with zeros.
pub fn write(gpu: &Gpu, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
    gpu.uploads.fetch_add(1, Ordering::Relaxed);
    let whole = bytes.len() / 4 * 4;
    let pieces = bytes[..whole].chunks(PIECE);
    let many = pieces.len() > 1;
    for (i, piece) in pieces.enumerate() {
        gpu.queue.write_buffer(buffer, offset + (i * PIECE) as u64, piece);
        if many {
            gpu.queue.submit([]);
        }
    }
    if whole < bytes.len() {
        let mut last = [0; 4];
        last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        gpu.queue.write_buffer(buffer, offset + whole as u64, &last);
    }
    gpu.check()
}
