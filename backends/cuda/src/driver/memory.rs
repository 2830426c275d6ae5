//! Memory of the device, and of the host where the device reaches it.

use super::library::{DriverError, cu};
use super::stream::Stream;
use crate::foreign::call;
use cudarc::driver::sys;
use kiln_backend::{BackendError, TemporaryAllocator};
use std::ffi::c_void;
use std::sync::Arc;

/// Memory of the device, given back in the order of its stream.
pub struct Buffer {
    stream: Arc<Stream>,
    address: sys::CUdeviceptr,
    size: u64,
    /// The caller's allocator that it comes from; none of the driver's memory.
    allocator: Option<Arc<dyn TemporaryAllocator>>,
}

/// Sizes are rounded up to this, so that kernels may touch whole words and no buffer is empty.
const GRAIN: u64 = 256;

impl Buffer {
    /// At least `size` bytes, aligned to 256.
    pub fn new(stream: &Arc<Stream>, size: u64) -> Result<Buffer, DriverError> {
        let gpu = &stream.gpu;
        gpu.bind()?;
        let size = size.max(1).saturating_add(GRAIN - 1) / GRAIN * GRAIN;
        let mut address = 0;
        let n = usize::try_from(size).unwrap_or(usize::MAX);
        if gpu.has_pool() {
            // SAFETY: the place for the address is valid, pool and stream are alive.
            unsafe { cu!(gpu.api, cuMemAllocFromPoolAsync(&mut address, n, gpu.pool, stream.handle)) }?;
        } else {
            // SAFETY: the place for the address is valid.
            unsafe { cu!(gpu.api, cuMemAlloc_v2(&mut address, n)) }?;
        }
        Ok(Buffer { stream: stream.clone(), address, size, allocator: None })
    }

    /// At least `size` bytes of an allocator of the caller's, aligned to 256.
    pub fn lent(
        stream: &Arc<Stream>,
        size: u64,
        allocator: &Arc<dyn TemporaryAllocator>,
    ) -> Result<Buffer, BackendError> {
        let size = size.max(1).saturating_add(GRAIN - 1) / GRAIN * GRAIN;
        let at = allocator.allocate(size, GRAIN, stream.handle());
        if at.is_null() {
            let what = "memory of the caller's allocator".to_owned();
            return Err(BackendError::OutOfMemory { what, bytes: size });
        }
        let (address, allocator) = (at as u64, Some(allocator.clone()));
        let buffer = Buffer { stream: stream.clone(), address, size, allocator };
        match address.is_multiple_of(GRAIN) {
            true => Ok(buffer),
            false => Err(BackendError::InvalidArgument(format!(
                "the caller's allocator returned {address:#x}, wanted a multiple of {GRAIN}"
            ))),
        }
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<(), DriverError> {
        stream.fill(self.address, byte, self.size as usize)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let gpu = &self.stream.gpu;
        if let Some(allocator) = &self.allocator {
            // No stream orders what is free already.
            let stream = if self.stream.is_left() { std::ptr::null_mut() } else { self.stream.handle() };
            return allocator.free(self.address as usize as *mut c_void, self.size, stream);
        }
        let stream = self.stream.closing();
        if gpu.has_pool() {
            if gpu.may_close() {
                // SAFETY: allocated in `new`, freed once, after all work of the only stream that uses it.
                unsafe { call!(gpu.api, sys::cuMemFreeAsync(self.address, stream)) };
            }
        } else if gpu.drained(stream) {
            // SAFETY: as above; that work is done.
            unsafe { call!(gpu.api, sys::cuMemFree_v2(self.address)) };
        }
    }
}

/// Page-locked memory of the host, through which transfers go.
pub struct Pinned {
    stream: Arc<Stream>,
    start: *mut u8,
    size: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pinned {}
// SAFETY: shared references only read; what writes takes the object mutably.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// At least `size` bytes.
    pub fn new(stream: &Arc<Stream>, size: usize) -> Result<Pinned, DriverError> {
        stream.gpu.bind()?;
        let size = size.max(4096);
        let mut start: *mut c_void = std::ptr::null_mut();
        let api = stream.gpu.api;
        // SAFETY: the place for the address is valid.
        unsafe { cu!(api, cuMemHostAlloc(&mut start, size, 0)) }?;
        Ok(Pinned { stream: stream.clone(), start: start.cast(), size })
    }

    /// Its length in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies bytes to `at` and on to the device. The range may be written again once the stream has passed.
    pub fn send(&mut self, at: usize, bytes: &[u8], to: u64) -> Result<(), DriverError> {
        self.write(at, bytes);
        self.put_part(&self.stream, at, to, bytes.len())
    }

    /// Writes bytes from its start on, before any transfer.
    pub fn fill(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.size);
        // SAFETY: so many bytes are within the memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, n) };
    }

    /// Writes bytes at `at`, where no transfer is under way.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        if self.size.checked_sub(at).is_some_and(|room| room >= bytes.len()) {
            // SAFETY: `at + len` is within the memory (checked above).
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
        }
    }

    /// Starts copying `n` bytes from `at` on to the device.
    pub fn put_part(&self, stream: &Stream, at: usize, to: u64, n: usize) -> Result<(), DriverError> {
        if n == 0 || self.size.checked_sub(at).is_none_or(|room| room < n) {
            return Ok(());
        }
        let api = stream.gpu.api;
        // SAFETY: `at + n` is within the memory (checked above); the caller passes an address of the device with room for the bytes.
        unsafe { cu!(api, cuMemcpyHtoDAsync_v2(to, self.start.add(at).cast(), n, stream.handle)) }
    }

    /// Starts copying its first bytes to the device, in a stream that may be recording a graph.
    pub fn put(&self, stream: &Stream, to: u64, n: usize) -> Result<(), DriverError> {
        let api = stream.gpu.api;
        // SAFETY: the caller passes an address of the device with room for the bytes, of which the memory has as many.
        unsafe { cu!(api, cuMemcpyHtoDAsync_v2(to, self.start.cast(), n.min(self.size), stream.handle)) }
    }

    /// Starts copying from the device to `at`.
    pub fn fetch(&mut self, at: usize, from: u64, n: usize) -> Result<(), DriverError> {
        if n == 0 || self.size.checked_sub(at).is_none_or(|room| room < n) {
            return Ok(());
        }
        let api = self.stream.gpu.api;
        // SAFETY: `at + n` is within the memory (checked above).
        unsafe { cu!(api, cuMemcpyDtoHAsync_v2(self.start.add(at).cast(), from, n, self.stream.handle)) }
    }

    /// Bytes from `at` on, once the transfers to them are done.
    pub fn bytes(&self, at: usize, n: usize) -> &[u8] {
        if self.size.checked_sub(at).is_none_or(|room| room < n) {
            return &[];
        }
        // SAFETY: `at + n` is within the memory, which the driver returned zeroed or a transfer has written.
        unsafe { std::slice::from_raw_parts(self.start.add(at), n) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let gpu = &self.stream.gpu;
        if gpu.drained(self.stream.closing()) {
            // SAFETY: allocated in `new`, freed once, when no transfer is under way.
            unsafe { call!(gpu.api, sys::cuMemFreeHost(self.start.cast())) };
        }
    }
}
