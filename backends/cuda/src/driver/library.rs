//! The driver's library and the entry points that are used.

use crate::foreign::functions;
use cudarc::driver::sys;
use kiln_backend::BackendError;
use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Failure of the driver or of a library on top of it.
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
        /// The loader's message.
        reason: String,
    },
    /// The driver is too old.
    #[error("the NVIDIA driver lacks {symbol}; install version 525 or later")]
    TooOld {
        /// The function that it lacks.
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
        /// The driver's description of the code.
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
    /// A plug-in layer failed.
    #[error("{0}")]
    Layer(BackendError),
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

#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";

/// Environment variable that names another library to take for the driver: a stand-in for tests. Ignored where the process has
/// more rights than whoever started it.
const VARIABLE: &str = "KILN_CUDA_DRIVER";

/// The driver's library.
fn library() -> PathBuf {
    let named = kiln_files::environment::trusted(VARIABLE);
    named.map_or_else(|| LIBRARY.into(), PathBuf::from)
}

functions! {
    /// The driver's functions that every supported driver has.
    Api {
        cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString
        cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetUuid_v2 cuDeviceGetAttribute cuDeviceTotalMem_v2
        cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent
        cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery cuStreamBeginCapture_v2 cuStreamEndCapture
        cuStreamIsCapturing
        cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize
        cuEventElapsedTime cuStreamWaitEvent
        cuModuleLoadData cuModuleUnload cuModuleGetFunction cuFuncGetAttribute cuFuncSetAttribute cuLaunchKernelEx
        cuTensorMapEncodeTiled cuTensorMapEncodeIm2col
        cuMemAlloc_v2 cuMemFree_v2 cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo
        cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemGetInfo_v2 cuMemHostAlloc cuMemFreeHost cuMemHostGetDevicePointer_v2
        cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpy2DAsync_v2 cuMemsetD8Async
        cuGraphInstantiateWithFlags cuGraphDestroy cuGraphExecDestroy cuGraphExecUpdate_v2 cuGraphLaunch
        cuGraphAddEventRecordNode cuGraphExecKernelNodeSetParams_v2
    }
}

functions! {
    /// The driver's functions for conditional nodes of graphs, which older drivers lack.
    Conditional {
        cuGraphConditionalHandleCreate cuGraphAddNode_v2 cuStreamBeginCaptureToGraph cuStreamGetCaptureInfo_v3
        cuStreamUpdateCaptureDependencies_v2
    }
}

/// Calls a function of the driver, and returns its code as an error that names the function.
macro_rules! cu {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => { cu!($api, in $api, $function($($argument),*)) };
    ($api:expr, in $table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $api.check(stringify!($function), $crate::foreign::call!($table, sys::$function($($argument),*)))
    };
}
pub(super) use cu;

/// The driver as it is found once for the process.
struct Driver {
    api: Api,
    /// `None` where the driver lacks conditional nodes with two branches.
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

/// Type of `cuGetErrorName` and `cuGetErrorString`. Declared here because a driver's code may be newer than cudarc's
/// enumeration, which is the type of the first argument there.
type Describe = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

impl Api {
    /// The driver, loaded and initialized once for the process. After a failure the next caller tries again.
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
        let api = Api::find(&library).map_err(|symbol| DriverError::TooOld { symbol })?;
        // SAFETY: no flags are defined.
        unsafe { cu!(api, cuInit(0)) }?;
        let mut version = 0;
        // SAFETY: the place for the number is valid.
        unsafe { cu!(api, cuDriverGetVersion(&mut version)) }?;
        let newer = version >= Conditional::LEAST;
        let conditional = newer.then(|| Conditional::find(&library)).and_then(Result::ok);
        // The functions stay valid for the life of the process.
        std::mem::forget(library);
        Ok(Driver { api, conditional })
    }

    /// Returns a result code of a function as an error that names the function as the header does, without its version.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let text = |describe: crate::foreign::Symbol| {
            let mut at: *const c_char = std::ptr::null();
            // SAFETY: the function has this signature, and the place for the pointer is valid.
            let known = unsafe { describe.typed::<Describe>()(code, &mut at) } == 0 && !at.is_null();
            if !known {
                return code.to_string();
            }
            // SAFETY: the driver returns static text that ends with a zero.
            unsafe { std::ffi::CStr::from_ptr(at) }.to_string_lossy().into_owned()
        };
        let call = call.split_once("_v").map_or(call, |(name, _)| name);
        Err(DriverError::Call {
            call,
            code,
            name: text(self.cuGetErrorName),
            message: text(self.cuGetErrorString),
        })
    }
}
