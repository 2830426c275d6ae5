//! Devices and their primary contexts.

use super::library::{Api, DriverError, Handle};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// Numbers of a device, by the driver's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    ClockKhz = 13,
    Multiprocessors = 16,
    MemoryClockKhz = 36,
    MemoryBusBits = 37,
    L2Bytes = 38,
    Major = 75,
    Minor = 76,
    SharedMemoryMultiprocessor = 81,
    RegistersMultiprocessor = 82,
    SharedMemoryBlock = 97,
    MemoryPools = 115,
}

/// An open device: its primary context, which everything in the process shares.
pub struct Gpu {
    pub api: &'static Api,
    device: c_int,
    pub(super) context: Handle,
    /// Does the device allocate in the order of streams?
    pub pools: bool,
    /// May kernels begin before the one in front of them is done?
    pub overlap: bool,
}

/// `0` turns overlapping launches off, to find out what they gain.
const OVERLAP: &str = "KILN_CUDA_OVERLAP";

// SAFETY: the driver's contexts may be used from any thread once they are made current there, which `bind` does.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Gpu {}

/// What the driver tells of one device.
#[derive(Clone, Copy)]
pub struct Found {
    pub api: &'static Api,
    pub ordinal: c_int,
    device: c_int,
}

/// All devices of the driver.
pub fn devices() -> Result<Vec<Found>, DriverError> {
    let api = Api::get()?;
    let mut n = 0;
    // SAFETY: the place for the number is valid.
    api.check("cuDeviceGetCount", unsafe { (api.device_count)(&mut n) })?;
    (0..n)
        .map(|ordinal| {
            let mut device = 0;
            // SAFETY: the place for the device is valid, the ordinal is below the count.
            api.check("cuDeviceGet", unsafe { (api.device_get)(&mut device, ordinal) })?;
            Ok(Found { api, ordinal, device })
        })
        .collect()
}

impl Found {
    /// One of its numbers.
    pub fn attribute(&self, a: Attribute) -> Result<u64, DriverError> {
        let mut n = 0;
        // SAFETY: the place for the number is valid, the device is one of the driver's.
        let code = unsafe { (self.api.device_attribute)(&mut n, a as c_int, self.device) };
        self.api.check("cuDeviceGetAttribute", code)?;
        Ok(u64::try_from(n).unwrap_or(0))
    }

    /// Its name.
    pub fn name(&self) -> Result<String, DriverError> {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has the length that is told.
        let code = unsafe { (self.api.device_name)(text.as_mut_ptr().cast::<c_char>(), 255, self.device) };
        self.api.check("cuDeviceGetName", code)?;
        let end = text.iter().position(|&b| b == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> Result<u64, DriverError> {
        let mut n = 0;
        // SAFETY: the place for the number is valid.
        self.api.check("cuDeviceTotalMem", unsafe { (self.api.device_memory)(&mut n, self.device) })?;
        Ok(n as u64)
    }

    /// The CUDA version of the driver, as 1000 major + 10 minor.
    pub fn driver_version(&self) -> Result<u32, DriverError> {
        let mut n = 0;
        // SAFETY: the place for the number is valid.
        self.api.check("cuDriverGetVersion", unsafe { (self.api.driver_version)(&mut n) })?;
        Ok(u32::try_from(n).unwrap_or(0))
    }

    /// Opens it.
    pub fn open(&self) -> Result<Arc<Gpu>, DriverError> {
        let api = self.api;
        let mut context = std::ptr::null_mut();
        // SAFETY: the place for the context is valid, the device is one of the driver's.
        api.check("cuDevicePrimaryCtxRetain", unsafe { (api.primary_retain)(&mut context, self.device) })?;
        let pools = self.attribute(Attribute::MemoryPools)? != 0;
        let wanted = std::env::var_os(OVERLAP).is_none_or(|v| v != "0");
        let overlap = wanted && self.attribute(Attribute::Major)? >= 9;
        let gpu = Gpu { api, device: self.device, context, pools, overlap };
        gpu.bind()?;
        if pools {
            gpu.keep_pool()?;
        }
        Ok(Arc::new(gpu))
    }
}

impl Gpu {
    /// Are both the same device?
    pub fn same(&self, other: &Gpu) -> bool {
        self.device == other.device
    }

    /// Makes the device that of the calling thread. Every entry from outside starts with it.
    pub fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as this object.
        self.api.check("cuCtxSetCurrent", unsafe { (self.api.set_current)(self.context) })
    }

    /// Gives memory that nothing uses back to the system.
    pub fn trim(&self) -> Result<(), DriverError> {
        if !self.pools {
            return Ok(());
        }
        let pool = self.pool()?;
        // SAFETY: the pool is the device's own.
        self.api.check("cuMemPoolTrimTo", unsafe { (self.api.pool_trim)(pool, 0) })
    }

    fn pool(&self) -> Result<Handle, DriverError> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: the place for the pool is valid.
        let code = unsafe { (self.api.default_pool)(&mut pool, self.device) };
        self.api.check("cuDeviceGetDefaultMemPool", code)?;
        Ok(pool)
    }

    /// Freed memory stays in the pool instead of going back to the system at each synchronization.
    fn keep_pool(&self) -> Result<(), DriverError> {
        const RELEASE_THRESHOLD: c_int = 4;
        let pool = self.pool()?;
        let mut all = u64::MAX;
        // SAFETY: the attribute's value is 64 bits wide.
        let code = unsafe { (self.api.pool_set_attribute)(pool, RELEASE_THRESHOLD, (&raw mut all).cast()) };
        self.api.check("cuMemPoolSetAttribute", code)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; all that was made in the context holds this object and is gone.
        unsafe { (self.api.primary_release)(self.device) };
    }
}
