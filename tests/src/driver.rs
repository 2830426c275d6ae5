//! The CUDA driver that a backend has loaded, for tests that use memory, streams and graphs of their own.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::OnceLock;

type Handle = *mut c_void;

/// The driver: NVIDIA's, or that of tests which `KILN_CUDA_DRIVER` names. A failed call ends the test. The backend has made its context
/// current on the calling thread: it has loaded an engine. That context, and the stream with it, goes with the last engine.
pub struct Driver {
    library: libloading::Library,
    /// The stream, once somebody asked for it.
    stream: OnceLock<usize>,
}

/// A graph that can be launched, until the last engine that it has kernels of goes.
#[derive(Clone, Copy)]
pub struct Launchable(Handle);

fn done(call: &str, code: c_int) {
    assert_eq!(code, 0, "{call}");
}

impl Driver {
    /// Opens the driver.
    pub fn open() -> Driver {
        let library = std::env::var_os("KILN_CUDA_DRIVER").unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: the driver, which the backend has loaded.
        let library = unsafe { libloading::Library::new(library) }.expect("the driver of the backend");
        Driver { library, stream: OnceLock::new() }
    }

    fn find<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: callers name the function's own type.
        unsafe { self.library.get::<T>(name.as_bytes()) }.ok().map(|f| *f)
    }

    fn get<T: Copy>(&self, name: &str) -> T {
        self.find(name).expect(name)
    }

    /// So many bytes of the device.
    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut at = 0;
        let f: unsafe extern "C" fn(*mut u64, usize) -> c_int = self.get("cuMemAlloc_v2");
        // SAFETY: the place is valid.
        done("cuMemAlloc", unsafe { f(&mut at, bytes) });
        at
    }

    /// Frees memory of [`Driver::allocate`].
    pub fn free(&self, at: u64) {
        let f: unsafe extern "C" fn(u64) -> c_int = self.get("cuMemFree_v2");
        // SAFETY: the caller passes what was allocated, with no work in flight.
        unsafe { f(at) };
    }

    /// Page-locked memory for transfers, until [`Driver::unpin`].
    pub fn pinned(&self, bytes: usize) -> &'static mut [u8] {
        let f: unsafe extern "C" fn(*mut Handle, usize, u32) -> c_int = self.get("cuMemHostAlloc");
        let mut at: Handle = std::ptr::null_mut();
        // SAFETY: the place is valid, and so many bytes are there until `unpin`.
        unsafe {
            done("cuMemHostAlloc", f(&mut at, bytes, 0));
            std::slice::from_raw_parts_mut(at.cast(), bytes)
        }
    }

    /// Frees memory of [`Driver::pinned`].
    pub fn unpin(&self, memory: &mut [u8]) {
        let f: unsafe extern "C" fn(Handle) -> c_int = self.get("cuMemFreeHost");
        // SAFETY: the caller passes what was allocated, and nothing is in flight.
        unsafe { f(memory.as_mut_ptr().cast()) };
    }

    /// Waits for the stream of the test.
    pub fn wait(&self) {
        let f: unsafe extern "C" fn(Handle) -> c_int = self.get("cuStreamSynchronize");
        // SAFETY: the stream is the test's own.
        done("cuStreamSynchronize", unsafe { f(self.stream()) });
    }

    /// Copies page-locked bytes to the device, and waits.
    pub fn send(&self, to: u64, bytes: &[u8]) {
        let f: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_int =
            self.get("cuMemcpyHtoDAsync_v2");
        // SAFETY: the caller passes a range of the device that is as long.
        done("cuMemcpyHtoDAsync", unsafe { f(to, bytes.as_ptr().cast(), bytes.len(), self.stream()) });
        self.wait();
    }

    /// Copies bytes of the device to page-locked memory, and waits.
    pub fn fetch(&self, from: u64, to: &mut [u8]) {
        let f: unsafe extern "C" fn(Handle, u64, usize, Handle) -> c_int = self.get("cuMemcpyDtoHAsync_v2");
        // SAFETY: the caller passes a range of the device that is as long.
        done("cuMemcpyDtoHAsync", unsafe { f(to.as_mut_ptr().cast(), from, to.len(), self.stream()) });
        self.wait();
    }

    /// A stream of the test's own, the same at each call.
    pub fn stream(&self) -> Handle {
        let create: unsafe extern "C" fn(*mut Handle, u32) -> c_int = self.get("cuStreamCreate");
        let made = self.stream.get_or_init(|| {
            let mut stream = std::ptr::null_mut();
            // SAFETY: the place is valid.
            done("cuStreamCreate", unsafe { create(&mut stream, 1) });
            stream as usize
        });
        *made as Handle
    }

    /// The graph of the work that `f` puts into the test's stream, which captures meanwhile; none if the capture is invalid.
    pub fn captured(&self, f: impl FnOnce()) -> Option<Launchable> {
        let begin: unsafe extern "C" fn(Handle, c_int) -> c_int = self.get("cuStreamBeginCapture_v2");
        let end: unsafe extern "C" fn(Handle, *mut Handle) -> c_int = self.get("cuStreamEndCapture");
        let make: unsafe extern "C" fn(*mut Handle, Handle, u64) -> c_int =
            self.get("cuGraphInstantiateWithFlags");
        // SAFETY: the stream is alive; 0 is a capture that forbids calls of all threads, the strictest one.
        done("cuStreamBeginCapture", unsafe { begin(self.stream(), 0) });
        f();
        let (mut graph, mut launchable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream is capturing, and the places are valid.
        unsafe {
            if end(self.stream(), &mut graph) != 0 || graph.is_null() {
                return None;
            }
            done("cuGraphInstantiate", make(&mut launchable, graph, 0));
            let destroy: unsafe extern "C" fn(Handle) -> c_int = self.get("cuGraphDestroy");
            done("cuGraphDestroy", destroy(graph));
        }
        Some(Launchable(launchable))
    }

    /// Destroys a graph, as callers do before the engine whose kernels are in it goes.
    pub fn destroy(&self, graph: Launchable) {
        let f: unsafe extern "C" fn(Handle) -> c_int = self.get("cuGraphExecDestroy");
        // SAFETY: the graph is alive, and no launch of it is in flight: `launch` waits.
        done("cuGraphExecDestroy", unsafe { f(graph.0) });
    }

    /// Launches a graph in the test's stream, and waits.
    pub fn launch(&self, graph: Launchable) {
        let f: unsafe extern "C" fn(Handle, Handle) -> c_int = self.get("cuGraphLaunch");
        // SAFETY: both are alive.
        done("cuGraphLaunch", unsafe { f(graph.0, self.stream()) });
        self.wait();
    }

    /// Whether it is the driver of tests.
    pub fn is_of_tests(&self) -> bool {
        self.find::<unsafe extern "C" fn(c_long, c_int)>("fake_start").is_some()
    }

    /// Lets the driver of tests count its calls anew.
    pub fn restart(&self) {
        if let Some(start) = self.find::<unsafe extern "C" fn(c_long, c_int)>("fake_start") {
            // SAFETY: plain numbers; no call is to fail.
            unsafe { start(-1, 0) };
        }
    }

    /// Calls of functions whose names begin so since `from`, and the number of all calls; none on other drivers than that of tests.
    pub fn calls(&self, from: c_long, names: &[&str]) -> Option<(Vec<usize>, c_long)> {
        let count: unsafe extern "C" fn() -> c_long = self.find("fake_calls")?;
        let call: unsafe extern "C" fn(c_long) -> *const c_char = self.find("fake_call")?;
        // SAFETY: plain numbers; names are static text.
        let n = unsafe { count() };
        let all: Vec<String> = (from..n)
            // SAFETY: as above.
            .map(|i| unsafe { CStr::from_ptr(call(i)) }.to_string_lossy().into_owned())
            .collect();
        Some((names.iter().map(|name| all.iter().filter(|c| c.starts_with(name)).count()).collect(), n))
    }
}
