//! A word of the host's memory that kernels read while they run.

use super::device::Gpu;
use super::library::{DriverError, cu};
use crate::foreign::call;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A word that the host sets, page-locked and mapped into the device's addresses. Zero at first.
pub struct Word {
    gpu: Arc<Gpu>,
    start: *mut c_void,
    address: u64,
}

// SAFETY: the word is only reached through atomic operations, and given back by the last owner.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    /// A word for kernels of this device.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Arc<Word>, DriverError> {
        const PORTABLE_MAPPED: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        gpu.bind()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: the place for the address is valid.
        unsafe { cu!(gpu.api, cuMemHostAlloc(&mut start, size_of::<u64>(), PORTABLE_MAPPED)) }?;
        // From here on the memory is given back with the object.
        let mut word = Word { gpu: gpu.clone(), start, address: 0 };
        word.set(0);
        // SAFETY: the memory is mapped, the place for the address is valid.
        unsafe { cu!(gpu.api, cuMemHostGetDevicePointer_v2(&mut word.address, start, 0)) }?;
        Ok(Arc::new(word))
    }

    /// Address of the word for kernels.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Sets it. Any thread may do so while kernels run.
    pub fn set(&self, to: u32) {
        // SAFETY: the driver gave 8 bytes at a page's start, which stay until this object goes; the host reaches them by
        // atomic operations only.
        unsafe { (*self.start.cast::<AtomicU32>()).store(to, Ordering::SeqCst) }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if self.gpu.may_close() {
            // SAFETY: allocated in `new`, freed once; whoever starts kernels that read it keeps it until they are done.
            unsafe { call!(self.gpu.api, sys::cuMemFreeHost(self.start)) };
        }
    }
}
