//! The compiler's library.

use crate::library::candidates;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

/// Why there is no cubin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompileError {
    /// The library is not there.
    #[error(
        "NVRTC is not installed (tried {tried}); install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, and let \
         KILN_NVRTC name libnvrtc.so or its folder"
    )]
    Missing {
        /// Where it was looked for.
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

type Program = *mut c_void;

/// NVRTC, loaded once for the process.
pub struct Nvrtc {
    version: (i32, i32),
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// What a compilation gives.
pub struct Compiled {
    pub cubin: Vec<u8>,
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
        macro_rules! symbol {
            ($name:literal) => {{
                // SAFETY: NVRTC's header gives the symbol the type of the field that it goes to.
                let found = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                *found.map_err(|_| CompileError::TooOld { library: path.to_owned(), symbol: $name })?
            }};
        }
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = symbol!("nvrtcVersion");
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the places for the numbers are valid.
        unsafe { version(&mut major, &mut minor) };
        let nvrtc = Nvrtc {
            version: (major, minor),
            create: symbol!("nvrtcCreateProgram"),
            destroy: symbol!("nvrtcDestroyProgram"),
            compile: symbol!("nvrtcCompileProgram"),
            log_size: symbol!("nvrtcGetProgramLogSize"),
            log: symbol!("nvrtcGetProgramLog"),
            cubin_size: symbol!("nvrtcGetCUBINSize"),
            cubin: symbol!("nvrtcGetCUBIN"),
            error: symbol!("nvrtcGetErrorString"),
        };
        // The functions stay valid for the life of the process.
        std::mem::forget(library);
        Ok(nvrtc)
    }

    /// Its version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a source.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Compiled, CompileError> {
        let text = CString::new(source).map_err(|_| CompileError::ZeroByte)?;
        let options: Vec<CString> = options.iter().filter_map(|o| CString::new(o.as_str()).ok()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let none = std::ptr::null();
        let mut program = Owned { nvrtc: self, program: std::ptr::null_mut() };
        // SAFETY: the text ends with a zero; there are no headers.
        let code = unsafe {
            (self.create)(&mut program.program, text.as_ptr(), c"kernel.cu".as_ptr(), 0, none, none)
        };
        self.check(code, String::new)?;
        // SAFETY: the program was made above; so many options follow.
        let code = unsafe { (self.compile)(program.program, pointers.len() as c_int, pointers.as_ptr()) };
        self.check(code, || program.log())?;
        let cubin = program.bytes(self.cubin_size, self.cubin)?;
        Ok(Compiled { cubin, log: program.log() })
    }

    fn check(&self, code: c_int, log: impl FnOnce() -> String) -> Result<(), CompileError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC gives static text for every number.
        let message = unsafe { CStr::from_ptr((self.error)(code)) }.to_string_lossy().into_owned();
        Err(CompileError::Refused { message, log: log() })
    }
}

/// A program of NVRTC that is destroyed when it goes.
struct Owned<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Owned<'_> {
    /// A result whose size one function tells and that another one writes.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        write: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, CompileError> {
        let mut n = 0;
        // SAFETY: the program is alive, the place for the number valid.
        self.nvrtc.check(unsafe { size(self.program, &mut n) }, String::new)?;
        let mut out = vec![0u8; n];
        // SAFETY: the buffer has the size that NVRTC told.
        self.nvrtc.check(unsafe { write(self.program, out.as_mut_ptr().cast()) }, String::new)?;
        Ok(out)
    }

    fn log(&self) -> String {
        let bytes = self.bytes(self.nvrtc.log_size, self.nvrtc.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: made by `create`, destroyed once.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}
