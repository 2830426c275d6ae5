//! Structs of options that begin with their size, so that older and newer programs work with a library.

use crate::error::Fail;
use crate::text;
use kiln::plugin::{Level, Policy};
use kiln::{DeviceChoice, DiscoverOptions};
use std::ffi::c_char;
use std::mem::{MaybeUninit, size_of};
use std::path::PathBuf;

/// The most bytes that a struct of options of a newer program may have.
const LARGEST: usize = 4096;

/// A struct of options.
///
/// # Safety
/// The type is `repr(C)` and begins with a `usize`, its size. All its bytes may have any value, and zeros stand for defaults.
pub unsafe trait Sized: Copy {}

/// Reads a struct of options; NULL stands for defaults. A smaller one is of an older program: what it lacks has defaults. A larger
/// one is of a newer program: what is beyond must be zero.
///
/// # Safety
/// The pointer is NULL, or of memory with as many bytes as its first field says.
pub unsafe fn read<T: Sized>(options: *const T, what: &str) -> Result<T, Fail> {
    let mut read = MaybeUninit::<T>::zeroed();
    if options.is_null() {
        // SAFETY: zeros are a value of the type.
        return Ok(unsafe { read.assume_init() });
    }
    if !options.is_aligned() {
        return Err(Fail::argument(format!("{what} is at {options:?}, which is not aligned")));
    }
    // SAFETY: the caller vouches for the first field.
    let size = unsafe { options.cast::<usize>().read() };
    let known = size_of::<T>();
    if !(size_of::<usize>()..=LARGEST).contains(&size) {
        return Err(Fail::argument(format!(
            "{what}: struct_size is {size}, wanted sizeof of the struct, which is {known} in this version"
        )));
    }
    let start = options.cast::<u8>();
    // SAFETY: the caller vouches for as many bytes.
    let all = unsafe { std::slice::from_raw_parts(start, size) };
    if let Some(at) = all.iter().skip(known).position(|b| *b != 0) {
        return Err(Fail::argument(format!(
            "{what}: byte {} is set, and this version knows {known} bytes: the program was compiled for a newer version of \
             Kiln; install that, or leave the new option out",
            known + at
        )));
    }
    // SAFETY: both have so many bytes and do not overlap; any bytes are a value of the type.
    Ok(unsafe {
        std::ptr::copy_nonoverlapping(start, read.as_mut_ptr().cast(), size.min(known));
        read.assume_init()
    })
}

/// Writes a struct of information as far as the caller's has room; its first field says how much. Nothing else is written.
///
/// # Safety
/// The pointer is NULL, or of memory that may be written, with as many bytes as its first field says.
pub unsafe fn write<T: Sized>(info: *mut T, value: T, what: &str) -> Result<(), Fail> {
    // SAFETY: as the caller vouches.
    unsafe { read(info.cast_const(), what) }?;
    if info.is_null() {
        return Err(Fail::argument(format!("{what} is NULL")));
    }
    // SAFETY: `read` checked the first field.
    let size = unsafe { info.cast::<usize>().read() };
    let body = size_of::<usize>();
    // SAFETY: the caller's memory has `size` bytes, and both begin with a `usize`.
    unsafe {
        let from = (&raw const value).cast::<u8>().add(body);
        std::ptr::copy_nonoverlapping(from, info.cast::<u8>().add(body), size.min(size_of::<T>()) - body);
    }
    Ok(())
}

/// The budget of weights that leaves room for a context.
pub const KILN_WEIGHT_BUDGET_AUTOMATIC: u64 = u64::MAX;

/// Plug-ins are opened if only their owner may write them, and fit their manifest if they have one.
pub const KILN_PLUGINS_ANY: i32 = 0;
/// No plug-in is opened.
pub const KILN_PLUGINS_OFF: i32 = 1;
/// Plug-ins are opened if a manifest beside them has their hash.
pub const KILN_PLUGINS_MANIFEST: i32 = 2;

/// Plug-ins that may be used, and the device. NULL, and zeros behind struct_size, stand for the usual places, any plug-in and the
/// best device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_options_t {
    /// `sizeof(kiln_options_t)`.
    pub struct_size: usize,
    /// Libraries or folders that are looked at first, separated as in PATH; NULL for none.
    pub path: *const c_char,
    /// Bytes of the path, or KILN_CSTR.
    pub path_length: usize,
    /// Check of libraries: KILN_PLUGINS_ANY, KILN_PLUGINS_OFF or KILN_PLUGINS_MANIFEST.
    pub level: i32,
    /// Other than 0: load the libraries that plans hold. They are code that runs in this process: for plans of trusted authors.
    pub embedded: i32,
    /// The backend's device: a number counted from 0, best first, or the first characters of its UUID; NULL: the best one.
    pub device: *const c_char,
    /// Bytes of the device's name, or KILN_CSTR.
    pub device_length: usize,
    /// Bytes of an engine's weights that may be on the device at a time; 0: all of them. Others are copied there in each run.
    /// KILN_WEIGHT_BUDGET_AUTOMATIC: as many as leave room for a context in the memory that is free.
    pub weight_budget: u64,
}

// SAFETY: numbers and a pointer behind the size.
unsafe impl Sized for kiln_options_t {}

/// Plug-ins and device that a caller chose.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Plug-ins.
    pub plugins: DiscoverOptions,
    /// The device; `None`: the best one.
    pub device: Option<DeviceChoice>,
    /// Bytes of weights on the device; `None`: all.
    pub weight_budget: Option<u64>,
    /// Whether the budget is one that leaves room for a context.
    pub automatic_weight_budget: bool,
}

impl Default for Choice {
    /// The usual places, and the folder `kiln` beside the library.
    fn default() -> Choice {
        let mut plugins = DiscoverOptions::default();
        plugins.search.system.extend(beside_library());
        Choice { plugins, device: None, weight_budget: None, automatic_weight_budget: false }
    }
}

/// Plug-ins and device that options choose.
///
/// # Safety
/// As [`read`]; texts are as their lengths say.
pub unsafe fn choice(options: *const kiln_options_t) -> Result<Choice, Fail> {
    // SAFETY: as the caller vouches.
    let o = unsafe { read(options, "options") }?;
    let level = match o.level {
        KILN_PLUGINS_ANY => Level::Any,
        KILN_PLUGINS_OFF => Level::Off,
        KILN_PLUGINS_MANIFEST => Level::Manifest,
        other => {
            let text =
                "options: level is {}, wanted KILN_PLUGINS_ANY, KILN_PLUGINS_OFF or KILN_PLUGINS_MANIFEST";
            return Err(Fail::argument(text.replace("{}", &other.to_string())));
        }
    };
    let mut found = Choice::default();
    let plugins = &mut found.plugins;
    if !o.path.is_null() && o.path_length != 0 {
        // SAFETY: as the caller vouches.
        let path = unsafe { text::path(o.path, o.path_length, "options: path") }?;
        plugins.search.explicit.extend(std::env::split_paths(&path).filter(|p| !p.as_os_str().is_empty()));
    }
    plugins.policy = Policy { level, ..Policy::default() };
    plugins.embedded = o.embedded != 0;
    found.automatic_weight_budget = o.weight_budget == KILN_WEIGHT_BUDGET_AUTOMATIC;
    let given = !found.automatic_weight_budget && o.weight_budget != 0;
    found.weight_budget = given.then_some(o.weight_budget);
    if !o.device.is_null() {
        // SAFETY: as the caller vouches.
        let device = unsafe { text::string(o.device, o.device_length, "options: device") }?;
        found.device = Some(DeviceChoice::from(device));
    }
    Ok(found)
}

/// The folder `kiln` beside the library that holds this function: where installations have backends.
fn beside_library() -> Option<PathBuf> {
    #[cfg(unix)]
    {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        let here = beside_library as fn() -> Option<PathBuf>;
        // SAFETY: an address of this library, and a place for what is known of it.
        let found = unsafe { libc::dladdr(here as *const libc::c_void, info.as_mut_ptr()) } != 0;
        // SAFETY: zeros are a value of the struct, and the call only wrote to it.
        let name = unsafe { info.assume_init() }.dli_fname;
        if !found || name.is_null() {
            return None;
        }
        // SAFETY: the name of a library that is loaded ends with a NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
        use std::os::unix::ffi::OsStrExt;
        let file = PathBuf::from(std::ffi::OsStr::from_bytes(name)).canonicalize().ok()?;
        Some(file.parent()?.join("kiln"))
    }
    #[cfg(not(unix))]
    None
}
