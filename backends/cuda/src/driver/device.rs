//! Devices and their primary contexts.

use super::library::{Api, DriverError, cu};
use crate::foreign::call;
use cudarc::driver::sys;
use kiln_backend::watchdog;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Numbers of a device.
pub use cudarc::driver::sys::CUdevice_attribute as Attribute;

/// An open device: its primary context, which everything in the process shares.
pub struct Gpu {
    pub api: &'static Api,
    device: sys::CUdevice,
    pub(super) context: sys::CUcontext,
    /// Memory pool that allocates in the order of streams; null where the device has none.
    pub(super) pool: sys::CUmemoryPool,
    /// Limit of each wait of the host for the device.
    limit: Option<Duration>,
    /// Whether the device exceeded the limit. A lost device is neither waited for nor given anything back.
    lost: AtomicBool,
    /// Whether a kernel may begin before the one in front of it has ended.
    pub overlap: bool,
}

/// Environment variable that turns overlapping launches off by `0`, to measure their gain.
const OVERLAP: &str = "KILN_CUDA_OVERLAP";

// SAFETY: the driver's contexts may be used from any thread once they are made current there, which `bind` does.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Gpu {}

/// One device, as the driver lists it.
#[derive(Clone, Copy)]
pub struct Found {
    pub api: &'static Api,
    pub ordinal: c_int,
    device: sys::CUdevice,
}

/// Lists all devices of the driver.
pub fn devices() -> Result<Vec<Found>, DriverError> {
    let api = Api::get()?;
    let mut n = 0;
    // SAFETY: the place for the number is valid.
    unsafe { cu!(api, cuDeviceGetCount(&mut n)) }?;
    (0..n)
        .map(|ordinal| {
            let mut device = 0;
            // SAFETY: the place for the device is valid, the ordinal is below the count.
            unsafe { cu!(api, cuDeviceGet(&mut device, ordinal)) }?;
            Ok(Found { api, ordinal, device })
        })
        .collect()
}

impl Found {
    /// One of its numbers.
    pub fn attribute(&self, a: Attribute) -> Result<u64, DriverError> {
        let mut n = 0;
        // SAFETY: the place for the number is valid, the device is one of the driver's.
        unsafe { cu!(self.api, cuDeviceGetAttribute(&mut n, a, self.device)) }?;
        Ok(u64::try_from(n).unwrap_or(0))
    }

    /// Its name.
    pub fn name(&self) -> Result<String, DriverError> {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has at least the length that is passed.
        unsafe { cu!(self.api, cuDeviceGetName(text.as_mut_ptr().cast::<c_char>(), 255, self.device)) }?;
        let end = text.iter().position(|&b| b == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Its UUID as NVIDIA's tools write it: "GPU-6f1b3c2a-…".
    pub fn uuid(&self) -> Result<String, DriverError> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the place for the UUID is valid, the device is one of the driver's.
        unsafe { cu!(self.api, cuDeviceGetUuid_v2(&mut uuid, self.device)) }?;
        let hex: String = uuid.bytes.iter().map(|b| format!("{:02x}", b.cast_unsigned())).collect();
        let groups: Vec<&str> = [0..8, 8..12, 12..16, 16..20, 20..32].map(|r| &hex[r]).into();
        Ok(format!("GPU-{}", groups.join("-")))
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> Result<u64, DriverError> {
        let mut n = 0;
        // SAFETY: the place for the number is valid.
        unsafe { cu!(self.api, cuDeviceTotalMem_v2(&mut n, self.device)) }?;
        Ok(n as u64)
    }

    /// The CUDA version of the driver, as 1000 major + 10 minor.
    pub fn driver_version(&self) -> Result<u32, DriverError> {
        let mut n = 0;
        // SAFETY: the place for the number is valid.
        unsafe { cu!(self.api, cuDriverGetVersion(&mut n)) }?;
        Ok(u32::try_from(n).unwrap_or(0))
    }

    /// Opens it.
    pub fn open(&self) -> Result<Arc<Gpu>, DriverError> {
        let api = self.api;
        let mut context = std::ptr::null_mut();
        // SAFETY: the place for the context is valid, the device is one of the driver's.
        unsafe { cu!(api, cuDevicePrimaryCtxRetain(&mut context, self.device)) }?;
        // From here on the context is given back with the object.
        let mut gpu = Gpu {
            api,
            device: self.device,
            context,
            pool: std::ptr::null_mut(),
            overlap: false,
            limit: watchdog::limit(),
            lost: AtomicBool::new(false),
        };
        gpu.bind()?;
        let wanted = std::env::var_os(OVERLAP).is_none_or(|v| v != "0");
        gpu.overlap = wanted && self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? >= 9;
        if self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0 {
            gpu.make_pool()?;
        }
        Ok(Arc::new(gpu))
    }
}

impl Gpu {
    /// Whether both are the same device.
    pub fn same(&self, other: &Gpu) -> bool {
        self.device == other.device
    }

    /// The driver's number of the device.
    pub fn number(&self) -> i32 {
        self.device
    }

    /// Makes the device that of the calling thread. Every entry from outside starts with it.
    pub fn bind(&self) -> Result<(), DriverError> {
        Api::check_process()?;
        if let Some(limit) = self.limit.filter(|_| self.lost.load(Ordering::Relaxed)) {
            return Err(DriverError::Hung { limit });
        }
        // SAFETY: the context lives as long as this object.
        unsafe { cu!(self.api, cuCtxSetCurrent(self.context)) }
    }

    /// Whether what was made on the device is given back: not if the device is lost, or belongs to the process that this one was
    /// forked from. Makes it the calling thread's as far as the driver lets.
    pub(super) fn may_close(&self) -> bool {
        if self.lost.load(Ordering::Relaxed) || Api::check_process().is_err() {
            return false;
        }
        // SAFETY: the context lives as long as this object. What is destroyed knows its context where this fails.
        unsafe { call!(self.api, sys::cuCtxSetCurrent(self.context)) };
        true
    }

    /// Waits for a stream before what its work uses is given back; whether that may be done. Not if the device is lost.
    pub(super) fn drained(&self, stream: sys::CUstream) -> bool {
        if !self.may_close() {
            return false;
        }
        let api = self.api;
        // SAFETY: the caller's stream is alive.
        let ready = || unsafe { call!(api, sys::cuStreamQuery(stream)) };
        // SAFETY: as above.
        let block = || unsafe { call!(api, sys::cuStreamSynchronize(stream)) };
        // After other failures nothing runs any more.
        !matches!(
            self.wait(["cuStreamQuery", "cuStreamSynchronize"], ready, block),
            Err(DriverError::Hung { .. })
        )
    }

    /// Waits by `block`; where there is a limit of waits, by asking `ready` again and again (0: yes, [`NOT_READY`]: not yet).
    /// Both by the names of their calls.
    pub(super) fn wait(
        &self,
        [asked, blocked]: [&'static str; 2],
        ready: impl Fn() -> c_int,
        block: impl Fn() -> c_int,
    ) -> Result<(), DriverError> {
        let Some(limit) = self.limit else { return self.api.check(blocked, block()) };
        if self.lost.load(Ordering::Relaxed) {
            return Err(DriverError::Hung { limit });
        }
        let start = Instant::now();
        loop {
            match ready() {
                NOT_READY => (),
                code => return self.api.check(asked, code),
            }
            let waited = start.elapsed();
            if waited >= limit {
                self.lost.store(true, Ordering::Relaxed);
                return Err(DriverError::Hung { limit });
            }
            // As exact as the time that was waited: short waits cost nothing, long ones no processor.
            match waited / 256 {
                pause if pause > SHORTEST_PAUSE => std::thread::sleep(pause.min(LONGEST_PAUSE)),
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Whether the device allocates in the order of streams.
    pub fn has_pool(&self) -> bool {
        !self.pool.is_null()
    }

    /// Bytes of memory that nobody uses, those in the pool included.
    pub fn free_memory(&self) -> Result<u64, DriverError> {
        use sys::CUmemPool_attribute::{
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as RESERVED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT as USED,
        };
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places are valid, the context is current.
        unsafe { cu!(self.api, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        if !self.has_pool() {
            return Ok(free as u64);
        }
        let of = |what| {
            let mut bytes = 0u64;
            // SAFETY: the pool is this object's; the attribute's value is 64 bits wide.
            unsafe { cu!(self.api, cuMemPoolGetAttribute(self.pool, what, (&raw mut bytes).cast())) }?;
            Ok::<u64, DriverError>(bytes)
        };
        Ok((free as u64).saturating_add(of(RESERVED)?.saturating_sub(of(USED)?)))
    }

    /// Frees memory that nothing uses.
    pub fn trim(&self) -> Result<(), DriverError> {
        if !self.has_pool() {
            return Ok(());
        }
        // SAFETY: the pool is this object's.
        unsafe { cu!(self.api, cuMemPoolTrimTo(self.pool, 0)) }
    }

    /// Makes a pool of its own, so that other users of the device in this process keep theirs and its threshold. Freed memory stays in it instead of
    /// going back to the system at each synchronization.
    fn make_pool(&mut self) -> Result<(), DriverError> {
        use sys::{CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType, CUmemPool_attribute};
        let props = sys::CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: self.device,
            },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut pool = std::ptr::null_mut();
        // SAFETY: the place for the pool is valid.
        unsafe { cu!(self.api, cuMemPoolCreate(&mut pool, &props)) }?;
        self.pool = pool;
        let mut all = u64::MAX;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the attribute's value is 64 bits wide.
        unsafe { cu!(self.api, cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast())) }
    }
}

/// Result code: what was asked for is still under way.
pub(super) const NOT_READY: c_int = sys::CUresult::CUDA_ERROR_NOT_READY as c_int;
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.may_close() {
            return;
        }
        // SAFETY: made and retained once in `open`; all that was made in the context holds this object and is gone.
        unsafe {
            if self.has_pool() {
                call!(self.api, sys::cuMemPoolDestroy(self.pool));
            }
            call!(self.api, sys::cuDevicePrimaryCtxRelease_v2(self.device));
        }
    }
}
