//! Copies within the device.

use super::library::{DevicePtr, DriverError, Handle};
use super::stream::Stream;
use std::ffi::c_void;

/// `CUDA_MEMCPY2D` of the driver's header.
#[repr(C)]
pub struct Plane {
    from_x: usize,
    from_y: usize,
    from_kind: i32,
    from_host: *const c_void,
    from: DevicePtr,
    from_array: Handle,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: i32,
    to_host: *mut c_void,
    to: DevicePtr,
    to_array: Handle,
    to_pitch: usize,
    width: usize,
    height: usize,
}

/// Rows of equal length, and how far their starts are apart, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub width: usize,
    pub height: usize,
    pub from_pitch: usize,
    pub to_pitch: usize,
}

impl Stream {
    /// Copies `n` bytes. Both ranges lie in live buffers that work of this stream alone changes.
    pub fn copy(&self, to: u64, from: u64, n: usize) -> Result<(), DriverError> {
        if n == 0 || to == from {
            return Ok(());
        }
        let api = self.gpu.api;
        // SAFETY: the caller passes ranges of live buffers.
        api.check("cuMemcpyDtoDAsync", unsafe { (api.copy_within)(to, from, n, self.handle) })
    }

    /// Sets `n` bytes of a live buffer.
    pub fn fill(&self, at: u64, byte: u8, n: usize) -> Result<(), DriverError> {
        if n == 0 {
            return Ok(());
        }
        let api = self.gpu.api;
        // SAFETY: the caller passes a range of a live buffer.
        api.check("cuMemsetD8Async", unsafe { (api.fill)(at, byte, n, self.handle) })
    }

    /// Copies rows; the rest as [`Stream::copy`].
    pub fn copy_rows(&self, to: u64, from: u64, rows: Rows) -> Result<(), DriverError> {
        const DEVICE: i32 = 2;
        if rows.width == 0 || rows.height == 0 {
            return Ok(());
        }
        let plane = Plane {
            from_x: 0,
            from_y: 0,
            from_kind: DEVICE,
            from_host: std::ptr::null(),
            from,
            from_array: std::ptr::null_mut(),
            from_pitch: rows.from_pitch,
            to_x: 0,
            to_y: 0,
            to_kind: DEVICE,
            to_host: std::ptr::null_mut(),
            to,
            to_array: std::ptr::null_mut(),
            to_pitch: rows.to_pitch,
            width: rows.width,
            height: rows.height,
        };
        let api = self.gpu.api;
        // SAFETY: the structure has the layout of the driver's header; the caller passes ranges of live buffers.
        api.check("cuMemcpy2DAsync", unsafe { (api.copy_plane)(&plane, self.handle) })
    }
}
