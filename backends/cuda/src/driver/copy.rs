//! Copies within the device.

use super::library::{DriverError, cu};
use super::stream::Stream;
use cudarc::driver::sys;

/// Rows of equal length, and how far their starts are apart, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub width: usize,
    pub height: usize,
    pub from_pitch: usize,
    pub to_pitch: usize,
}

impl Stream {
    /// Copies `n` bytes. Both ranges are in live buffers, which only work of this stream changes.
    pub fn copy(&self, to: u64, from: u64, n: usize) -> Result<(), DriverError> {
        if n == 0 || to == from {
            return Ok(());
        }
        let api = self.gpu.api;
        // SAFETY: the caller passes ranges of live buffers.
        unsafe { cu!(api, cuMemcpyDtoDAsync_v2(to, from, n, self.handle)) }
    }

    /// Sets `n` bytes of a live buffer.
    pub fn fill(&self, at: u64, byte: u8, n: usize) -> Result<(), DriverError> {
        if n == 0 {
            return Ok(());
        }
        let api = self.gpu.api;
        // SAFETY: the caller passes a range of a live buffer.
        unsafe { cu!(api, cuMemsetD8Async(at, byte, n, self.handle)) }
    }

    /// Copies rows; the rest as [`Stream::copy`].
    pub fn copy_rows(&self, to: u64, from: u64, rows: Rows) -> Result<(), DriverError> {
        if rows.width == 0 || rows.height == 0 {
            return Ok(());
        }
        let plane = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: rows.from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: rows.to_pitch,
            WidthInBytes: rows.width,
            Height: rows.height,
        };
        let api = self.gpu.api;
        // SAFETY: the caller passes ranges of live buffers.
        unsafe { cu!(api, cuMemcpy2DAsync_v2(&plane, self.handle)) }
    }
}
