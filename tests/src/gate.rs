//! A CUDA stream that can be held up, by the driver's own functions.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

type Handle = *mut c_void;
type HostFunction = unsafe extern "C" fn(Handle);

/// A stream of the first device, and a gate in front of further work of it.
pub struct HeldStream {
    driver: libloading::Library,
    stream: Handle,
    gates: Vec<Arc<Gate>>,
}

/// Holds a stream up until it is opened, or its time is over.
pub struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    passed: Mutex<bool>,
    most: Duration,
}

impl Gate {
    /// Lets the stream go on.
    pub fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether the stream has gone on.
    pub fn passed(&self) -> bool {
        *self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn hold(gate: Handle) {
    // SAFETY: `HeldStream` keeps its gates as long as the stream.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let guard = gate.open.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = gate.changed.wait_timeout_while(guard, gate.most, |open| !*open);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
    *gate.passed.lock().unwrap_or_else(PoisonError::into_inner) = true;
}

macro_rules! call {
    ($self:expr, $name:literal($($t:ty),*)($($arg:expr),*)) => {{
        // SAFETY: the driver's header gives the symbol this type.
        let f = unsafe { $self.get::<unsafe extern "C" fn($($t),*) -> c_int>(concat!($name, "\0").as_bytes()) };
        let f = f.map_err(|e| e.to_string())?;
        // SAFETY: as the driver's header says; places are valid, handles alive.
        match unsafe { f($($arg),*) } {
            0 => Ok(()),
            code => Err(format!("{} gave {code}", $name)),
        }
    }};
}

impl HeldStream {
    /// A stream of the first device, whose primary context becomes the thread's.
    pub fn new() -> Result<HeldStream, String> {
        // SAFETY: the driver's library may be loaded into any process.
        let driver = unsafe { libloading::Library::new("libcuda.so.1") }.map_err(|e| e.to_string())?;
        let (mut device, mut context, mut stream) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        call!(driver, "cuInit"(c_uint)(0))?;
        call!(driver, "cuDeviceGet"(*mut c_int, c_int)(&mut device, 0))?;
        call!(driver, "cuDevicePrimaryCtxRetain"(*mut Handle, c_int)(&mut context, device))?;
        call!(driver, "cuCtxSetCurrent"(Handle)(context))?;
        call!(driver, "cuStreamCreate"(*mut Handle, c_uint)(&mut stream, 1))?;
        Ok(HeldStream { driver, stream, gates: Vec::new() })
    }

    /// The stream's handle.
    pub fn handle(&self) -> *mut c_void {
        self.stream
    }

    /// Holds up what is put into the stream from now on, until the gate is opened or `most` is over.
    pub fn hold(&mut self, most: Duration) -> Result<Arc<Gate>, String> {
        let (open, passed) = (Mutex::new(false), Mutex::new(false));
        let gate = Arc::new(Gate { open, changed: Condvar::new(), passed, most });
        let at = Arc::as_ptr(&gate).cast_mut().cast();
        self.gates.push(gate.clone());
        call!(self.driver, "cuLaunchHostFunc"(Handle, HostFunction, Handle)(self.stream, hold, at))?;
        Ok(gate)
    }

    /// Waits until all work of the stream is done.
    pub fn synchronize(&self) -> Result<(), String> {
        call!(self.driver, "cuStreamSynchronize"(Handle)(self.stream))
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        self.gates.iter().for_each(|g| g.open());
        let done = self.synchronize();
        let destroy = || call!(self.driver, "cuStreamDestroy_v2"(Handle)(self.stream));
        if let Err(e) = done.and_then(|()| destroy()) {
            eprintln!("a stream was not destroyed: {e}");
        }
    }
}
