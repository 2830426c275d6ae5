//! Ranges for profilers: runs, and steps where they are timed, by NVIDIA's tools-extension protocol.
//!
//! A profiler names its library in NVTX_INJECTION64_PATH; it is opened at the first range, asks for tables of function slots,
//! and fills in what it wants to be told. Without a profiler a range costs one load.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

const LIBRARY: &str = "NVTX_INJECTION64_PATH";
const ENTRY: &[u8] = b"InitializeInjectionNvtx2\0";

/// A place for a function of the profiler.
type Slot = AtomicPtr<c_void>;
type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// Slots of a module at most, by the protocol's numbers.
const SLOTS: usize = 17;
const CORE: c_int = 1;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

/// Number of slots of each module: none, core, CUDA, OpenCL, CUDA runtime, core of domains, synchronization.
const SIZES: [c_uint; 7] = [0, 16, 9, 15, 7, 16, 7];

static CORE_SLOTS: [Slot; SLOTS] = [const { Slot::new(std::ptr::null_mut()) }; SLOTS];
/// Slots that are never called: profilers may fill them in all the same.
static OTHER_SLOTS: [Slot; SLOTS] = [const { Slot::new(std::ptr::null_mut()) }; SLOTS];

/// Addresses of slots, as profilers take them.
struct Table([*const Slot; SLOTS]);

// SAFETY: the addresses are those of statics, which are atomic.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static CORE_TABLE: OnceLock<Table> = OnceLock::new();
static OTHER_TABLE: OnceLock<Table> = OnceLock::new();

fn table(of: &'static [Slot; SLOTS]) -> Table {
    let mut all = [std::ptr::null(); SLOTS];
    for (at, slot) in all.iter_mut().zip(of).skip(1) {
        *at = std::ptr::from_ref(slot);
    }
    Table(all)
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    tables: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set: unsafe extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), tables };
static VERSION: Version = Version { size: size_of::<Version>(), version: 3, reserved: 0, set: ignore };

unsafe extern "C" fn ignore(_: u32) {}

unsafe extern "C" fn tables(module: c_int, out: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let Some(&n) = usize::try_from(module).ok().and_then(|m| SIZES.get(m)).filter(|n| **n > 0) else {
        return 0;
    };
    let found = match module {
        CORE => CORE_TABLE.get_or_init(|| table(&CORE_SLOTS)),
        _ => OTHER_TABLE.get_or_init(|| table(&OTHER_SLOTS)),
    };
    if !size.is_null() {
        // SAFETY: the profiler gives a place for the number.
        unsafe { *size = n };
    }
    if !out.is_null() {
        // SAFETY: the profiler gives a place for the address.
        unsafe { *out = found.0.as_ptr() };
    }
    1
}

unsafe extern "C" fn export(table: u32) -> *const c_void {
    const CALLBACKS_ID: u32 = 1;
    const VERSION_ID: u32 = 3;
    match table {
        CALLBACKS_ID => (&raw const CALLBACKS).cast(),
        VERSION_ID => (&raw const VERSION).cast(),
        _ => std::ptr::null(),
    }
}

struct Profiler {
    push: Push,
    pop: Pop,
}

fn attach() -> Option<Profiler> {
    let path = kiln_files::environment::trusted(LIBRARY)?;
    let warn = |why: String| tracing::warn!("ranges are not told to {}: {why}", path.display());
    // SAFETY: who sets the variable vouches for the library.
    let library = unsafe { libloading::Library::new(&path) }.map_err(|e| warn(e.to_string())).ok()?;
    type Start = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: the protocol gives the symbol this type.
    let start = *unsafe { library.get::<Start>(ENTRY) }.map_err(|e| warn(e.to_string())).ok()?;
    // A profiler stays.
    std::mem::forget(library);
    // SAFETY: `export` gives tables that live as long as the process.
    if unsafe { start(export) } == 0 {
        warn("it refuses to start".into());
        return None;
    }
    let of = |slot: usize| CORE_SLOTS.get(slot).map(|s| s.load(Ordering::Acquire)).filter(|f| !f.is_null());
    let (push, pop) = (of(RANGE_PUSH)?, of(RANGE_POP)?);
    // SAFETY: the protocol gives the functions of these slots these types.
    Some(unsafe {
        Profiler {
            push: std::mem::transmute::<*mut c_void, Push>(push),
            pop: std::mem::transmute::<*mut c_void, Pop>(pop),
        }
    })
}

fn profiler() -> Option<&'static Profiler> {
    static PROFILER: OnceLock<Option<Profiler>> = OnceLock::new();
    PROFILER.get_or_init(attach).as_ref()
}

/// A range of this thread's time, from its making until it goes.
pub struct Range(Option<&'static Profiler>);

impl Range {
    /// Begins a range; ranges of a thread end in the reverse order.
    pub fn of(name: &str) -> Range {
        let Some(p) = profiler() else { return Range(None) };
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the name ends with a zero; the profiler copies it.
        unsafe { (p.push)(name.as_ptr()) };
        Range(Some(p))
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(p) = self.0 {
            // SAFETY: a range of this thread is open.
            unsafe { (p.pop)() };
        }
    }
}
