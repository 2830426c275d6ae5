//! The driver's library and the entry points that are used.

use super::copy::Plane;
use super::device::PoolProps;
use super::module::Config;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What stands between this process and a CUDA device.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DriverError {
    /// The driver is not installed.
    #[error(
        "no NVIDIA driver: {} can't be loaded ({reason}); install the NVIDIA driver, version 525 or later",
        library.display()
    )]
    Missing {
        /// The file that was looked for.
        library: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// The driver is too old.
    #[error("the NVIDIA driver lacks {symbol}; install version 525 or later")]
    TooOld {
        /// The function that it has not.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {name} ({message})")]
    Call {
        /// The function.
        call: &'static str,
        /// The code's number.
        code: c_int,
        /// The code's name.
        name: String,
        /// The driver's words.
        message: String,
    },
    /// The process was forked after the driver had been started.
    #[error(
        "process {now} was forked from process {then}, which had started the CUDA driver, and the driver does not work in the \
         copy: start workers as new processes (in Python: the start method \"spawn\"), or fork before the first device is \
         looked for"
    )]
    Forked {
        /// The process that started the driver.
        then: u32,
        /// This process.
        now: u32,
    },
    /// The device did not end its work in time.
    #[error("{}", kiln_backend::watchdog::expired("the CUDA device", *limit))]
    Hung {
        /// The limit.
        limit: Duration,
    },
    /// A call of a vendor's library failed.
    #[error("{call} of {library} failed with code {code}")]
    Library {
        /// The library.
        library: &'static str,
        /// The function.
        call: &'static str,
        /// The code's number.
        code: c_int,
    },
}

/// Opaque handles of the driver.
pub type Handle = *mut c_void;
/// An address on the device.
pub type DevicePtr = u64;

#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";

/// Names another library to take for the driver: a stand-in for tests. Ignored where the process has more rights than who
/// started it.
const VARIABLE: &str = "KILN_CUDA_DRIVER";

/// The driver's library.
fn library() -> PathBuf {
    let named = kiln_files::environment::trusted(VARIABLE);
    named.map_or_else(|| LIBRARY.into(), PathBuf::from)
}

macro_rules! api {
    ($(#[$doc:meta])* $name:ident: $($call:ident = $symbol:literal ($($t:ty),*);)*) => {
        $(#[$doc])*
        pub struct $name {
            $(pub $call: unsafe extern "C" fn($($t),*) -> c_int,)*
        }

        impl $name {
            fn find(library: &libloading::Library) -> Result<$name, DriverError> {
                Ok($name {
                    $($call: {
                        // SAFETY: the driver's header gives the symbol this type.
                        let found = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *found.map_err(|_| DriverError::TooOld { symbol: $symbol })?
                    },)*
                })
            }
        }
    };
}

api! {
    /// The driver's functions, as its header declares them; all give a result code.
    Api:
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (c_int, *mut *const c_char);
    error_string = "cuGetErrorString" (c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    set_current = "cuCtxSetCurrent" (Handle);
    stream_create = "cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (Handle);
    stream_synchronize = "cuStreamSynchronize" (Handle);
    stream_query = "cuStreamQuery" (Handle);
    stream_begin_capture = "cuStreamBeginCapture_v2" (Handle, c_int);
    stream_end_capture = "cuStreamEndCapture" (Handle, *mut Handle);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2" (Handle);
    event_record = "cuEventRecord" (Handle, Handle);
    event_record_flags = "cuEventRecordWithFlags" (Handle, Handle, c_uint);
    event_query = "cuEventQuery" (Handle);
    event_synchronize = "cuEventSynchronize" (Handle);
    event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
    module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
    module_unload = "cuModuleUnload" (Handle);
    module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute" (*mut c_int, c_int, Handle);
    function_set_attribute = "cuFuncSetAttribute" (Handle, c_int, c_int);
    launch = "cuLaunchKernelEx" (*const Config, Handle, *mut *mut c_void, *mut *mut c_void);
    map_tiles = "cuTensorMapEncodeTiled" (
        Handle, c_int, c_uint, Handle, *const u64, *const u64, *const u32, *const u32, c_int, c_int, c_int, c_int
    );
    map_windows = "cuTensorMapEncodeIm2col" (
        Handle, c_int, c_uint, Handle, *const u64, *const u64, *const c_int, *const c_int, c_uint, c_uint, *const u32,
        c_int, c_int, c_int, c_int
    );
    mem_alloc = "cuMemAlloc_v2" (*mut DevicePtr, usize);
    mem_free = "cuMemFree_v2" (DevicePtr);
    mem_alloc_async = "cuMemAllocFromPoolAsync" (*mut DevicePtr, usize, Handle, Handle);
    mem_free_async = "cuMemFreeAsync" (DevicePtr, Handle);
    pool_create = "cuMemPoolCreate" (*mut Handle, *const PoolProps);
    pool_destroy = "cuMemPoolDestroy" (Handle);
    pool_trim = "cuMemPoolTrimTo" (Handle, usize);
    pool_set_attribute = "cuMemPoolSetAttribute" (Handle, c_int, *mut c_void);
    host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" (*mut c_void);
    host_address = "cuMemHostGetDevicePointer_v2" (*mut DevicePtr, *mut c_void, c_uint);
    copy_in = "cuMemcpyHtoDAsync_v2" (DevicePtr, *const c_void, usize, Handle);
    copy_out = "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePtr, usize, Handle);
    copy_within = "cuMemcpyDtoDAsync_v2" (DevicePtr, DevicePtr, usize, Handle);
    copy_plane = "cuMemcpy2DAsync_v2" (*const Plane, Handle);
    fill = "cuMemsetD8Async" (DevicePtr, u8, usize, Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_destroy = "cuGraphDestroy" (Handle);
    exec_destroy = "cuGraphExecDestroy" (Handle);
    exec_update = "cuGraphExecUpdate_v2" (Handle, Handle, *mut c_void);
    graph_launch = "cuGraphLaunch" (Handle, Handle);
    graph_add_event = "cuGraphAddEventRecordNode" (*mut Handle, Handle, *const Handle, usize, Handle);
}

api! {
    /// What conditional nodes of graphs need; newer than the rest.
    Conditional:
    create_handle = "cuGraphConditionalHandleCreate" (*mut u64, Handle, Handle, c_uint, c_uint);
    add_node = "cuGraphAddNode_v2" (*mut Handle, Handle, *const Handle, *const c_void, usize, *mut c_void);
    begin_in = "cuStreamBeginCaptureToGraph" (Handle, Handle, *const Handle, *const c_void, usize, c_int);
    capture_info = "cuStreamGetCaptureInfo_v3" (
        Handle, *mut c_int, *mut u64, *mut Handle, *mut *const Handle, *mut *const u64, *mut usize
    );
    set_dependencies = "cuStreamUpdateCaptureDependencies_v2" (Handle, *mut Handle, *const c_void, usize, c_uint);
}

/// What is found once for the process.
struct Driver {
    api: Api,
    /// Where the driver has conditional nodes with two branches.
    conditional: Option<Conditional>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

impl Conditional {
    /// The first version of CUDA whose driver has conditional nodes with two branches.
    const LEAST: c_int = 12080;

    /// The functions, if the driver has such nodes. [`Api::get`] has found them.
    pub fn get() -> Option<&'static Conditional> {
        DRIVER.get()?.conditional.as_ref()
    }
}

impl Api {
    /// The driver, loaded and initialized once for the process. What fails is tried again by the next caller.
    pub fn get() -> Result<&'static Api, DriverError> {
        Api::check_process()?;
        if let Some(found) = DRIVER.get() {
            return Ok(&found.api);
        }
        let loaded = Api::load()?;
        Ok(&DRIVER.get_or_init(|| loaded).api)
    }

    /// Refuses to go on in a process that was forked from the one that started the driver.
    pub fn check_process() -> Result<(), DriverError> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let now = std::process::id();
        match STARTED.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Err(then) if then != now => Err(DriverError::Forked { then, now }),
            _ => Ok(()),
        }
    }

    fn load() -> Result<Driver, DriverError> {
        let name = library();
        // SAFETY: the driver's library may be loaded into any process.
        let library = unsafe { libloading::Library::new(&name) }
            .map_err(|e| DriverError::Missing { library: name, reason: e.to_string() })?;
        let api = Api::find(&library)?;
        // SAFETY: no flags are defined.
        let code = unsafe { (api.init)(0) };
        api.check("cuInit", code)?;
        let mut version = 0;
        // SAFETY: the place for the number is valid.
        let code = unsafe { (api.driver_version)(&mut version) };
        api.check("cuDriverGetVersion", code)?;
        let newer = version >= Conditional::LEAST;
        let conditional = newer.then(|| Conditional::find(&library)).and_then(Result::ok);
        // The functions stay valid for the life of the process.
        std::mem::forget(library);
        Ok(Driver { api, conditional })
    }

    /// The error of a result code.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let text = |f: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut at: *const c_char = std::ptr::null();
            // SAFETY: the place for the pointer is valid.
            let known = unsafe { f(code, &mut at) } == 0 && !at.is_null();
            if !known {
                return code.to_string();
            }
            // SAFETY: the driver gives static text that ends with a zero.
            unsafe { std::ffi::CStr::from_ptr(at) }.to_string_lossy().into_owned()
        };
        Err(DriverError::Call { call, code, name: text(self.error_name), message: text(self.error_string) })
    }
}
