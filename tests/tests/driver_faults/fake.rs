//! The driver of tests: built from `tests/fake_driver`, loaded by the backend in the place of NVIDIA's, and controlled here.

use kiln_tests::suite::root;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the library that the backend takes for the driver.
pub const VARIABLE: &str = "KILN_CUDA_DRIVER";

/// The library, built by the C compiler unless it was built from the same sources before. Tests of one process wait for each other.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(built).clone()
}

fn built() -> PathBuf {
    let from = root().join("tests/fake_driver");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&from).unwrap().map(|e| e.unwrap().path()).collect();
    sources.sort();
    let mut hash = blake3::Hasher::new();
    sources.iter().for_each(|s| _ = hash.update(&std::fs::read(s).unwrap()));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_driver");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!("libcuda-{}.so", &hash.finalize().to_hex()[..16]));
    if library.is_file() {
        return library;
    }
    let made = folder.join(format!("{}.new", std::process::id()));
    let flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];
    let of_c = sources.iter().filter(|s| s.extension().is_some_and(|e| e == "c"));
    let built =
        Command::new("cc").args(flags).arg("-o").arg(&made).args(of_c).args(["-lpthread", "-ldl"]).output();
    let built = built.unwrap_or_else(|e| panic!("cc: {e}; run scripts/setup.sh"));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::rename(made, &library).unwrap();
    library
}

/// The library without one of its functions, as an older driver: its name in the table of symbols is another.
pub fn library_without(symbol: &str) -> PathBuf {
    let whole = library();
    let mut bytes = std::fs::read(&whole).unwrap();
    let name = format!("\0{symbol}\0");
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&i| bytes[i..].starts_with(name.as_bytes())).collect();
    assert!(!places.is_empty(), "{symbol} is no function of the driver");
    places.iter().for_each(|&i| bytes[i + 1] = b'x');
    let out = whole.with_file_name(format!("without-{symbol}-{}.so", std::process::id()));
    std::fs::write(&out, bytes).unwrap();
    out
}

/// The functions that the library offers as the driver's.
pub fn functions() -> Vec<String> {
    let from = root().join("tests/fake_driver");
    let mut all = Vec::new();
    for file in std::fs::read_dir(from).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let names = text.lines().filter_map(|l| l.strip_prefix("int cu")?.split_once('('));
        all.extend(names.map(|(name, _)| format!("cu{name}")));
    }
    all.sort();
    all
}

/// Native objects of a user's program beside the backend.
#[derive(Clone, Copy)]
pub struct Native {
    pub stream: *mut c_void,
    pub event: *mut c_void,
    pub memory: [u64; 2],
}

/// The controls of the driver that this process has loaded.
pub struct Fake(libloading::Library);

type Name = unsafe extern "C" fn(*const c_char, i64);
type Text = unsafe extern "C" fn() -> *const c_char;
type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;

impl Fake {
    /// The driver that the environment names.
    pub fn open() -> Fake {
        let path = std::env::var_os(VARIABLE).unwrap();
        // SAFETY: the library is the test's own.
        Fake(unsafe { libloading::Library::new(path) }.unwrap())
    }

    fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: callers name a type that agrees with the source beside this test.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.unwrap()
    }

    /// Counts calls from 0 on and fails the n-th with a code; -1 fails none.
    pub fn start(&self, n: i64, code: i32) {
        let f: unsafe extern "C" fn(i64, c_int) = self.get("fake_start");
        // SAFETY: plain numbers.
        unsafe { f(n, code) }
    }

    /// Sets a property of the driver.
    pub fn set(&self, what: &str, to: i64) {
        let what = CString::new(what).unwrap();
        // SAFETY: the name ends with a zero.
        unsafe { self.get::<Name>("fake_set")(what.as_ptr(), to) }
    }

    fn number(&self, name: &str) -> i64 {
        // SAFETY: the functions that are named here take nothing.
        unsafe { self.get::<unsafe extern "C" fn() -> i64>(name)() }
    }

    /// The device whose context was retained last.
    pub fn device(&self) -> i64 {
        self.number("fake_device")
    }

    /// Number of calls.
    pub fn calls(&self) -> i64 {
        self.number("fake_calls")
    }

    /// The functions of all calls since the start.
    pub fn trace(&self) -> Vec<String> {
        let f: unsafe extern "C" fn(i64) -> *const c_char = self.get("fake_call");
        // SAFETY: the text ends with a zero.
        let name = |n| unsafe { CStr::from_ptr(f(n)) }.to_string_lossy().into_owned();
        (0..self.calls()).map(name).collect()
    }

    /// Pairs of nodes of the graph that was instantiated last that may run at the same time.
    pub fn side_by_side(&self) -> i64 {
        self.number("fake_side_by_side")
    }

    fn text(&self, name: &str) -> String {
        // SAFETY: the functions that are named here give text that ends with a zero.
        unsafe { CStr::from_ptr(self.get::<Text>(name)()) }.to_string_lossy().into_owned()
    }

    /// Objects that are handed out and not returned; empty if there are none.
    pub fn alive(&self) -> String {
        self.text("fake_alive")
    }

    /// Misuse of the driver; empty if nothing was wrong.
    pub fn misuse(&self) -> String {
        self.text("fake_misuse")
    }

    /// The function that was failed.
    pub fn failed(&self) -> String {
        self.text("fake_failed")
    }

    /// All functions that were called since the process began.
    pub fn seen(&self) -> Vec<String> {
        self.text("fake_seen").split_whitespace().map(str::to_owned).collect()
    }

    /// Runs `f` while a stream records a graph of the user's, and returns the functions that it called. The graph is destroyed.
    pub fn captured(&self, stream: *mut c_void, f: impl FnOnce()) -> Vec<String> {
        let begin: unsafe extern "C" fn(*mut c_void, c_int) -> c_int = self.get("cuStreamBeginCapture_v2");
        let end: unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int =
            self.get("cuStreamEndCapture");
        self.set("paused", 1);
        // SAFETY: the stream is alive; 1 is a capture of this thread.
        assert_eq!(unsafe { begin(stream, 1) }, 0);
        self.set("paused", 0);
        let before = self.trace().len();
        f();
        let called = self.trace().split_off(before);
        self.set("paused", 1);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is capturing, the place is valid; the graph is destroyed once.
        unsafe {
            end(stream, &mut graph);
            if !graph.is_null() {
                self.get::<Destroy>("cuGraphDestroy")(graph);
            }
        }
        self.set("paused", 0);
        called
    }

    /// A stream of the user's, destroyed after `f`.
    pub fn with_stream<T>(&self, f: impl FnOnce(*mut c_void) -> T) -> T {
        let mut stream = std::ptr::null_mut();
        self.set("paused", 1);
        // SAFETY: the place is valid.
        unsafe { self.get::<Create>("cuStreamCreate")(&mut stream, 1) };
        self.set("paused", 0);
        let out = f(stream);
        self.set("paused", 1);
        // SAFETY: destroyed once.
        unsafe { self.get::<Destroy>("cuStreamDestroy_v2")(stream) };
        self.set("paused", 0);
        out
    }

    /// Runs `f` with a stream, an event and two ranges of `bytes` bytes of a user's. The calls that make and
    /// free them are not counted.
    pub fn with_native<T>(&self, bytes: usize, f: impl FnOnce(Native) -> T) -> T {
        self.set("paused", 1);
        let mut context = std::ptr::null_mut();
        let mut n = Native { stream: context, event: context, memory: [0; 2] };
        // SAFETY: the places are valid, and the types those of the driver's functions.
        unsafe {
            self.get::<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int>("cuDevicePrimaryCtxRetain")(
                &mut context,
                0,
            );
            self.get::<Destroy>("cuCtxSetCurrent")(context);
            self.get::<Create>("cuStreamCreate")(&mut n.stream, 1);
            self.get::<Create>("cuEventCreate")(&mut n.event, 2);
            let alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int = self.get("cuMemAlloc_v2");
            n.memory.iter_mut().for_each(|to| assert_eq!(alloc(to, bytes), 0));
        }
        self.set("paused", 0);
        let out = f(n);
        self.set("paused", 1);
        // SAFETY: as above; each is given back once.
        unsafe {
            self.get::<Destroy>("cuCtxSetCurrent")(context);
            self.get::<Destroy>("cuStreamDestroy_v2")(n.stream);
            self.get::<Destroy>("cuEventDestroy_v2")(n.event);
            let free: unsafe extern "C" fn(u64) -> c_int = self.get("cuMemFree_v2");
            n.memory.iter().for_each(|&at| _ = free(at));
            self.get::<unsafe extern "C" fn(c_int) -> c_int>("cuDevicePrimaryCtxRelease_v2")(0);
        }
        self.set("paused", 0);
        out
    }
}
