//! The compiler's library.

use crate::foreign::{call, functions};
use crate::library::candidates;
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

/// Failure to compile a kernel.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompileError {
    /// The library is not there.
    #[error(
        "NVRTC is not installed (tried {tried}); install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, and let \
         KILN_NVRTC name libnvrtc.so or its folder"
    )]
    Missing {
        /// Files that were tried.
        tried: String,
    },
    /// The library lacks a function.
    #[error("{library} lacks {symbol}; install NVRTC 12.0 or later")]
    TooOld {
        /// The file.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// The source is refused.
    #[error("NVRTC refuses a kernel ({message}):\n{log}")]
    Refused {
        /// The result code's name.
        message: String,
        /// The compiler's words.
        log: String,
    },
    /// The source has a zero byte.
    #[error("a kernel's source has a zero byte")]
    ZeroByte,
}

impl From<CompileError> for kiln_backend::BackendError {
    fn from(e: CompileError) -> Self {
        match e {
            CompileError::Missing { .. } | CompileError::TooOld { .. } => Self::Io(e.to_string()),
            _ => Self::Internal(e.to_string()),
        }
    }
}

functions! {
    /// The compiler's functions.
    Api {
        nvrtcVersion nvrtcCreateProgram nvrtcDestroyProgram nvrtcCompileProgram nvrtcGetProgramLogSize nvrtcGetProgramLog
        nvrtcGetCUBINSize nvrtcGetCUBIN nvrtcGetPTXSize nvrtcGetPTX nvrtcGetErrorString
    }
}

/// Type of `nvrtcGetErrorString`. Declared here because the library's code may be newer than cudarc's enumeration, which is the
/// type of the argument there.
type Describe = unsafe extern "C" fn(c_int) -> *const c_char;

/// NVRTC, loaded once for the process.
pub struct Nvrtc {
    version: (i32, i32),
    api: Api,
}

/// Result of a compilation.
pub struct Compiled {
    /// A cubin, or the text of PTX with a zero behind it.
    pub code: Vec<u8>,
    pub log: String,
}

#[cfg(windows)]
const NAMES: [&str; 2] = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
#[cfg(not(windows))]
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// NVRTC opens its built-in headers' library by name alone: loads the one beside it, so that the name is known.
fn load_builtins(nvrtc: &Path) {
    let Some(folder) = nvrtc.parent().filter(|f| !f.as_os_str().is_empty()) else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            // SAFETY: the library holds data alone; it is kept for the life of the process.
            if let Ok(library) = unsafe { libloading::Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
}

impl Nvrtc {
    /// The library.
    pub fn get() -> Result<&'static Nvrtc, CompileError> {
        static NVRTC: OnceLock<Result<Nvrtc, CompileError>> = OnceLock::new();
        NVRTC.get_or_init(Nvrtc::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Nvrtc, CompileError> {
        let tried = candidates("KILN_NVRTC", &NAMES);
        for path in &tried {
            load_builtins(path);
            // SAFETY: NVRTC's library may be loaded into any process.
            if let Ok(library) = unsafe { libloading::Library::new(path) } {
                return Nvrtc::find(library, &path.display().to_string());
            }
        }
        let names: Vec<String> = tried.iter().map(|p| p.display().to_string()).collect();
        Err(CompileError::Missing { tried: names.join(", ") })
    }

    fn find(library: libloading::Library, path: &str) -> Result<Nvrtc, CompileError> {
        let lacks = |symbol| CompileError::TooOld { library: path.to_owned(), symbol };
        let api = Api::find(&library).map_err(lacks)?;
        // The functions stay valid for the life of the process.
        std::mem::forget(library);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the places for the numbers are valid.
        unsafe { call!(api, sys::nvrtcVersion(&mut major, &mut minor)) };
        Ok(Nvrtc { version: (major, minor), api })
    }

    /// Its version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a source.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Compiled, CompileError> {
        let virtual_architecture = options.iter().any(|o| o.starts_with("--gpu-architecture=compute_"));
        let text = CString::new(source).map_err(|_| CompileError::ZeroByte)?;
        let options: Vec<CString> = options.iter().filter_map(|o| CString::new(o.as_str()).ok()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let none = std::ptr::null();
        let mut program = Owned { nvrtc: self, program: std::ptr::null_mut() };
        // SAFETY: the text ends with a zero; there are no headers.
        let code = unsafe {
            let name = c"kernel.cu".as_ptr();
            call!(self.api, sys::nvrtcCreateProgram(&mut program.program, text.as_ptr(), name, 0, none, none))
        };
        self.check(code, String::new)?;
        // SAFETY: the program was made above; so many options follow.
        let code = unsafe {
            let count = pointers.len() as c_int;
            call!(self.api, sys::nvrtcCompileProgram(program.program, count, pointers.as_ptr()))
        };
        self.check(code, || program.log())?;
        // Code of a virtual architecture is PTX.
        let code = if virtual_architecture { program.ptx()? } else { program.cubin()? };
        Ok(Compiled { code, log: program.log() })
    }

    fn check(&self, code: c_int, log: impl FnOnce() -> String) -> Result<(), CompileError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function has this signature, and returns static text for every number.
        let message = unsafe { CStr::from_ptr(self.api.nvrtcGetErrorString.typed::<Describe>()(code)) };
        let message = message.to_string_lossy().into_owned();
        Err(CompileError::Refused { message, log: log() })
    }
}

/// A program of NVRTC that is destroyed when it goes.
struct Owned<'a> {
    nvrtc: &'a Nvrtc,
    program: sys::nvrtcProgram,
}

impl Owned<'_> {
    fn cubin(&self) -> Result<Vec<u8>, CompileError> {
        let (api, mut size) = (&self.nvrtc.api, 0);
        // SAFETY: the program is alive, the place for the number valid.
        let code = unsafe { call!(api, sys::nvrtcGetCUBINSize(self.program, &mut size)) };
        self.nvrtc.check(code, String::new)?;
        let mut out = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC returned.
        let code = unsafe { call!(api, sys::nvrtcGetCUBIN(self.program, out.as_mut_ptr().cast())) };
        self.nvrtc.check(code, String::new)?;
        Ok(out)
    }

    fn ptx(&self) -> Result<Vec<u8>, CompileError> {
        let (api, mut size) = (&self.nvrtc.api, 0);
        // SAFETY: the program is alive, the place for the number valid.
        let code = unsafe { call!(api, sys::nvrtcGetPTXSize(self.program, &mut size)) };
        self.nvrtc.check(code, String::new)?;
        let mut out = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC returned, with the zero at the end.
        let code = unsafe { call!(api, sys::nvrtcGetPTX(self.program, out.as_mut_ptr().cast())) };
        self.nvrtc.check(code, String::new)?;
        Ok(out)
    }

    /// The compiler's messages; empty where it cannot return them.
    fn log(&self) -> String {
        let (api, mut size) = (&self.nvrtc.api, 0);
        // SAFETY: the program is alive, the place for the number valid.
        if unsafe { call!(api, sys::nvrtcGetProgramLogSize(self.program, &mut size)) } != 0 {
            return String::new();
        }
        let mut out = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC returned.
        if unsafe { call!(api, sys::nvrtcGetProgramLog(self.program, out.as_mut_ptr().cast())) } != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&out).trim_end_matches('\0').to_owned()
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: made by `create`, destroyed once.
            unsafe { call!(self.nvrtc.api, sys::nvrtcDestroyProgram(&mut self.program)) };
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn a_library_without_the_compilers_functions_is_refused_by_name() {
        // SAFETY: the C library is loaded already.
        let library = unsafe { libloading::Library::new("libc.so.6") }.unwrap();
        let e = Nvrtc::find(library, "libc.so.6").err().unwrap().to_string();
        assert!(e.contains("libc.so.6 lacks nvrtcVersion") && e.contains("install NVRTC"), "{e}");
    }
}
