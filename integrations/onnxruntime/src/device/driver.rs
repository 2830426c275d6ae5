//! CUDA's driver, as far as memory and copies need it. It is opened once, and never closed.

use crate::error::Fail;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes that one copy between host and device takes through page-locked memory.
const STAGING: usize = 4 << 20;

/// The driver's library, or another one for tests as the CUDA backend takes it.
const LIBRARY: &str = "libcuda.so.1";
const VARIABLE: &str = "KILN_CUDA_DRIVER";

type Code = c_int;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($ty:ty),*);)*) => {
        /// Functions of the driver.
        struct Api {
            $($field: unsafe extern "C" fn($($ty),*) -> Code,)*
        }

        impl Api {
            /// The functions, if the library has all.
            fn of(library: &'static libloading::Library) -> Option<Api> {
                // SAFETY: the types are those of the driver's interface.
                unsafe { Some(Api { $($field: *library.get(concat!($name, "\0").as_bytes()).ok()?,)* }) }
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    error_string = "cuGetErrorString": fn(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    retain = "cuDevicePrimaryCtxRetain": fn(*mut *mut c_void, c_int);
    set_current = "cuCtxSetCurrent": fn(*mut c_void);
    stream_create = "cuStreamCreate": fn(*mut *mut c_void, c_uint);
    stream_synchronize = "cuStreamSynchronize": fn(*mut c_void);
    alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    free = "cuMemFree_v2": fn(u64);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    to_device = "cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, *mut c_void);
    to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, *mut c_void);
    within = "cuMemcpyDtoDAsync_v2": fn(u64, u64, usize, *mut c_void);
}

impl Api {
    fn check(&self, what: &str, code: Code) -> Result<(), Fail> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: a place for a text that the driver keeps.
        let why = unsafe {
            (self.error_string)(code, &raw mut text);
            if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Err(Fail::new(format!("CUDA: {what}: {why} ({code})")))
    }
}

/// A device: its primary context, which the CUDA backend uses as well, and a stream for copies.
pub struct Device {
    api: &'static Api,
    pub number: usize,
    context: *mut c_void,
    stream: *mut c_void,
    /// Page-locked memory, taken at the first copy.
    staging: Mutex<Option<Staging>>,
}

struct Staging(*mut c_void);

// SAFETY: handles and memory of the driver, which any thread may use.
unsafe impl Send for Staging {}
// SAFETY: as above; the driver's functions may be called by several threads.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn open() -> Option<(&'static Api, usize)> {
    let named = kiln_files::environment::trusted(VARIABLE);
    let name = named.unwrap_or_else(|| LIBRARY.into());
    // SAFETY: the driver runs nothing of others when it is loaded.
    let library = Box::leak(Box::new(unsafe { libloading::Library::new(name) }.ok()?));
    let api: &'static Api = Box::leak(Box::new(Api::of(library)?));
    let mut count = 0;
    // SAFETY: the driver's functions, and a place for a number.
    let found = unsafe { (api.init)(0) == 0 && (api.device_count)(&raw mut count) == 0 };
    found.then_some((api, usize::try_from(count).unwrap_or(0)))
}

fn driver() -> Option<&'static (&'static Api, usize)> {
    static DRIVER: OnceLock<Option<(&'static Api, usize)>> = OnceLock::new();
    DRIVER.get_or_init(open).as_ref()
}

/// How many devices the driver has; 0 without a driver.
pub fn devices() -> usize {
    driver().map_or(0, |(_, count)| *count)
}

/// A device by its number. It stays for the process.
pub fn device(number: usize) -> Result<&'static Device, Fail> {
    static OPEN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = open.iter().find(|d| d.number == number) {
        return Ok(known);
    }
    let (api, count) = driver().ok_or_else(|| Fail::new("there is no driver of CUDA here"))?;
    if number >= *count {
        return Err(Fail::argument(format!("there is no device {number} of CUDA, only {count} from 0 on")));
    }
    let (mut handle, mut context, mut stream) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the driver's functions, and places for handles.
    unsafe {
        api.check("device", (api.device_get)(&raw mut handle, number as c_int))?;
        api.check("primary context", (api.retain)(&raw mut context, handle))?;
        api.check("context", (api.set_current)(context))?;
        // Without this flag its work would wait for that of the default stream.
        const NON_BLOCKING: c_uint = 1;
        api.check("stream", (api.stream_create)(&raw mut stream, NON_BLOCKING))?;
    }
    let made: &'static Device =
        Box::leak(Box::new(Device { api, number, context, stream, staging: Mutex::default() }));
    open.push(made);
    Ok(made)
}

impl Device {
    fn enter(&self) -> Result<(), Fail> {
        // SAFETY: the context stays for the process.
        self.api.check("context", unsafe { (self.api.set_current)(self.context) })
    }

    /// Takes memory of the device.
    pub fn allocate(&self, bytes: usize) -> Result<u64, Fail> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: a place for an address. No size is none.
        self.api.check("memory", unsafe { (self.api.alloc)(&raw mut address, bytes.max(1)) })?;
        Ok(address)
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// [`Device::allocate`] returned the address, and nothing uses the memory any more.
    pub unsafe fn free(&self, address: u64) -> Result<(), Fail> {
        self.enter()?;
        // SAFETY: as the caller vouches.
        self.api.check("free", unsafe { (self.api.free)(address) })
    }

    /// Copies to the device, and waits for it.
    ///
    /// # Safety
    /// The device has so many bytes there.
    pub unsafe fn write(&self, to: u64, from: &[u8]) -> Result<(), Fail> {
        let mut at = to;
        self.staged(from.len(), |staging, range| {
            let part = &from[range];
            // SAFETY: page-locked memory of at least that size, which is the caller's alone; the device's as it vouches.
            let code = unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), staging.cast(), part.len());
                (self.api.to_device)(at, staging, part.len(), self.stream)
            };
            at += part.len() as u64;
            self.api.check("copy to the device", code)?;
            self.wait()
        })
    }

    /// Copies from the device.
    ///
    /// # Safety
    /// The device has so many bytes there, and work that writes them is done.
    pub unsafe fn read(&self, to: &mut [u8], from: u64) -> Result<(), Fail> {
        let mut at = from;
        self.staged(to.len(), |staging, range| {
            let part = &mut to[range];
            // SAFETY: as in `write`.
            let code = unsafe { (self.api.to_host)(staging, at, part.len(), self.stream) };
            self.api.check("copy from the device", code)?;
            self.wait()?;
            // SAFETY: the copy is done.
            unsafe { std::ptr::copy_nonoverlapping(staging.cast(), part.as_mut_ptr(), part.len()) };
            at += part.len() as u64;
            Ok(())
        })
    }

    /// Copies within the device, and waits for it.
    ///
    /// # Safety
    /// The device has so many bytes at both, and work that writes them is done.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Fail> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: as the caller vouches.
        let code = unsafe { (self.api.within)(to, from, bytes, self.stream) };
        self.api.check("copy within the device", code)?;
        self.wait()
    }

    fn wait(&self) -> Result<(), Fail> {
        // SAFETY: the stream stays for the process.
        self.api.check("wait", unsafe { (self.api.stream_synchronize)(self.stream) })
    }

    /// Calls a function for each part of so many bytes that fits into the page-locked memory.
    fn staged(
        &self,
        bytes: usize,
        mut part: impl FnMut(*mut c_void, std::ops::Range<usize>) -> Result<(), Fail>,
    ) -> Result<(), Fail> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match &*staging {
            Some(s) => s.0,
            None => {
                let mut made = std::ptr::null_mut();
                // SAFETY: a place for an address.
                self.api.check("page-locked memory", unsafe {
                    (self.api.host_alloc)(&raw mut made, STAGING, 0)
                })?;
                staging.insert(Staging(made)).0
            }
        };
        (0..bytes).step_by(STAGING).try_for_each(|start| part(memory, start..bytes.min(start + STAGING)))
    }
}
