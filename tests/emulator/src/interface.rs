//! The functions that the driver of tests calls.

use crate::launch::Launch;
use crate::memory::{Global, Range};
use crate::module::Module;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// A launch that the driver asks for.
#[repr(C)]
pub struct Order {
    pub blocks: u32,
    pub threads: u32,
    pub shared: u32,
    pub together: i32,
    pub parameter: *const c_void,
    pub bytes: usize,
    pub range: Range,
    pub decide: unsafe extern "C" fn(u64, u32),
}

/// The number in `KILN_EMULATOR_SEED`, by default 1.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| std::env::var("KILN_EMULATOR_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(1))
}

/// Writes a message and the zero behind it.
unsafe fn tell(message: &str, to: *mut c_char, room: usize) {
    let n = message.len().min(room.saturating_sub(1));
    // SAFETY: callers name so much room.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), to.cast(), n);
        *to.add(n) = 0;
    }
}

/// Reads a module; null with a message where it cannot be read.
///
/// # Safety
/// The text ends with a zero, and so much room is there for the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_load(
    text: *const c_char,
    message: *mut c_char,
    room: usize,
) -> *mut c_void {
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match std::panic::catch_unwind(|| Module::read(&text)) {
        Ok(Ok(module)) => Box::into_raw(Box::new(module)).cast(),
        Ok(Err(e)) => {
            // SAFETY: as above.
            unsafe { tell(&e, message, room) };
            std::ptr::null_mut()
        }
        Err(_) => {
            // SAFETY: as above.
            unsafe { tell("a panic", message, room) };
            std::ptr::null_mut()
        }
    }
}

/// Forgets a module.
///
/// # Safety
/// The module was returned by `emulator_load` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_unload(module: *mut c_void) {
    // SAFETY: the caller says so.
    drop(unsafe { Box::from_raw(module.cast::<Module>()) });
}

/// Runs a kernel; 0 if it ended, 1 with a message if it did something that a device would refuse.
///
/// # Safety
/// The module is alive, the name ends with a zero, the order's pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_launch(
    module: *const c_void,
    name: *const c_char,
    order: *const Order,
    message: *mut c_char,
    room: usize,
) -> i32 {
    // SAFETY: the caller says so.
    let (module, name, o) =
        unsafe { (&*module.cast::<Module>(), CStr::from_ptr(name).to_string_lossy(), &*order) };
    // SAFETY: as above.
    let parameter = unsafe { std::slice::from_raw_parts(o.parameter.cast(), o.bytes) };
    let run = || {
        let kernel = module.kernels.get(&*name).ok_or_else(|| format!("no kernel {name}"))?;
        let (blocks, threads, shared, together) = (o.blocks, o.threads, o.shared, o.together != 0);
        let launch = Launch {
            kernel,
            module,
            blocks,
            threads,
            shared,
            together,
            parameter,
            decide: o.decide,
            seed: seed(),
        };
        launch.run(&mut Global::new(o.range, &module.variables))
    };
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let found = found.unwrap_or_else(|_| Err("a panic".into()));
    match found {
        Ok(()) => 0,
        Err(e) => {
            // SAFETY: as above.
            unsafe { tell(&format!("kernel {name}: {e}"), message, room) };
            1
        }
    }
}
