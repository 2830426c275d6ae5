//! Calls into libraries that an exception of C++ may leave: it ends here, and becomes an error.
//!
//! An exception that reaches a function without a handler ends the process, and Rust catches none of other languages. So the call
//! goes through a frame whose personality routine handles it. The library's code is what unwinds: a function that is
//! `noexcept`, or that was compiled without tables for unwinding, still ends the process.

use ::kiln_backend::BackendError;

/// A function of a table, as one that may unwind.
pub(super) trait Unwinding {
    /// The type of that function.
    type As;

    /// The function, with the same address.
    fn unwinding(self) -> Self::As;
}

macro_rules! unwinding {
    ($($argument:ident)*) => {
        impl<R, $($argument),*> Unwinding for unsafe extern "C" fn($($argument),*) -> R {
            type As = unsafe extern "C-unwind" fn($($argument),*) -> R;

            fn unwinding(self) -> Self::As {
                // SAFETY: both types have the same representation and convention; the new one permits more.
                unsafe { std::mem::transmute(self) }
            }
        }
    };
}

unwinding!();
unwinding!(A);
unwinding!(A B);
unwinding!(A B C);
unwinding!(A B C D);

/// The error of a call that an exception left.
fn escaped(what: &str) -> BackendError {
    BackendError::Panicked(format!(
        "{what} left a function that the host calls; catch all exceptions in each function of the tables, as kiln_layer.hpp does"
    ))
}

/// Calls `f`, which calls functions of a library as [`Unwinding`] ones.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
pub(super) fn contained<R>(f: impl FnOnce() -> R) -> Result<R, BackendError> {
    // Elsewhere the process ends, as the runtime of the exception's language decides.
    Ok(f())
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
pub(super) use frame::contained;

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod frame {
    use super::escaped;
    use ::kiln_backend::BackendError;
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::ptr;

    // kiln_contained_call(f, data) calls f(data) and returns null, or the exception that left it.
    std::arch::global_asm!(
        ".pushsection .text.kiln_contained_call,\"ax\",@progbits",
        ".hidden kiln_contained_call",
        ".globl kiln_contained_call",
        ".type kiln_contained_call,@function",
        "kiln_contained_call:",
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "xor eax, eax",
        // The exception is in rax when this place is reached by unwinding.
        ".hidden kiln_contained_landing",
        ".globl kiln_contained_landing",
        "kiln_contained_landing:",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        ".size kiln_contained_call, . - kiln_contained_call",
        ".popsection",
        personality = sym personality,
    );

    unsafe extern "C" {
        fn kiln_contained_call(
            f: unsafe extern "C-unwind" fn(*mut c_void),
            data: *mut c_void,
        ) -> *mut Exception;
        fn kiln_contained_landing();
    }

    #[link(name = "gcc_s")]
    unsafe extern "C" {
        fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
        fn _Unwind_SetIP(context: *mut c_void, at: usize);
    }

    /// Class of panics of Rust.
    const RUST: u64 = u64::from_ne_bytes(*b"MOZ\0RUST");

    /// The beginning of every exception, as the ABI of unwinding has it.
    #[repr(C)]
    struct Exception {
        /// Vendor and language, from the highest byte on.
        class: u64,
        cleanup: Option<unsafe extern "C" fn(c_int, *mut Exception)>,
    }

    const SEARCHING: c_int = 1;
    const FORCED: c_int = 8;
    const HANDLER_FOUND: c_int = 6;
    const INSTALL: c_int = 7;
    const CONTINUE: c_int = 8;

    /// Handles every exception but panics of Rust, which are caught elsewhere, and none of the unwinding that ends a thread.
    unsafe extern "C" fn personality(
        _version: c_int,
        actions: c_int,
        class: u64,
        exception: *mut c_void,
        context: *mut c_void,
    ) -> c_int {
        if actions & FORCED != 0 || class == RUST {
            return CONTINUE;
        }
        if actions & SEARCHING != 0 {
            return HANDLER_FOUND;
        }
        let landing: unsafe extern "C" fn() = kiln_contained_landing;
        // SAFETY: the unwinder passes its context; register 0 is rax, and the place is in the frame that is unwound to.
        unsafe {
            _Unwind_SetGR(context, 0, exception as usize);
            _Unwind_SetIP(context, landing as usize);
        }
        INSTALL
    }

    /// A closure and its result.
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }

    unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
        // SAFETY: `contained` passes its own call, which nobody else uses meanwhile.
        let call = unsafe { &mut *data.cast::<Call<F, R>>() };
        call.result = call.f.take().map(|f| f());
    }

    /// Calls `f`, which calls functions of a library as [`super::Unwinding`] ones.
    pub fn contained<R, F: FnOnce() -> R>(f: F) -> Result<R, BackendError> {
        let mut call = Call { f: Some(f), result: None };
        // SAFETY: the function takes the call, which lives here; an exception that leaves it ends in the frame between.
        let exception = unsafe { kiln_contained_call(run::<F, R>, (&raw mut call).cast()) };
        match (exception.is_null(), call.result) {
            (true, Some(result)) => Ok(result),
            (true, None) => Err(BackendError::Internal("a call without a result".into())),
            (false, _) => {
                // SAFETY: what is not null is an exception that nobody else owns.
                let what = unsafe { named(exception) };
                Err(escaped(&what))
            }
        }
    }

    /// Name of an exception that left a function, which is ended.
    ///
    /// # Safety
    /// The exception is one that was unwound to its handler, and nobody else uses it.
    unsafe fn named(exception: *mut Exception) -> String {
        // SAFETY: every exception begins like this.
        let Exception { class, cleanup } = unsafe { &*exception };
        let letters = class.to_be_bytes();
        if !letters.ends_with(b"C++\0") {
            // Languages that cannot be asked: their exceptions are left where they are.
            let name = String::from_utf8_lossy(&letters);
            return format!("an exception of \"{}\"", name.trim_end_matches('\0'));
        }
        let runtime = cleanup.and_then(|f| Runtime::of(f as *const c_void));
        // SAFETY: the exception is one of this runtime of C++.
        let name = runtime.and_then(|r| unsafe { r.end(exception) });
        name.map_or_else(|| "an exception of C++".to_owned(), |n| format!("an exception of C++ ({n})"))
    }

    type Begin = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    type Type = unsafe extern "C" fn() -> *const TypeInfo;
    type End = unsafe extern "C-unwind" fn();
    type Demangle = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

    /// Description of a type, as the ABI of C++ has it.
    #[repr(C)]
    struct TypeInfo {
        table: *const c_void,
        name: *const c_char,
    }

    /// Functions of the runtime of C++ that made an exception.
    struct Runtime {
        begin: Begin,
        current: Type,
        end: End,
        demangle: Demangle,
    }

    impl Runtime {
        /// Functions of the library that a function of an exception is in.
        fn of(function: *const c_void) -> Option<Runtime> {
            // SAFETY: the names are texts; a library that is loaded is opened once more, and stays open.
            unsafe {
                let mut info: libc::Dl_info = std::mem::zeroed();
                if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
                    return None;
                }
                let library = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                let symbol = |name: &CStr| match library.is_null() {
                    true => None,
                    false => ptr::NonNull::new(libc::dlsym(library, name.as_ptr())),
                };
                Some(Runtime {
                    begin: std::mem::transmute::<ptr::NonNull<c_void>, Begin>(symbol(c"__cxa_begin_catch")?),
                    current: std::mem::transmute::<ptr::NonNull<c_void>, Type>(symbol(
                        c"__cxa_current_exception_type",
                    )?),
                    end: std::mem::transmute::<ptr::NonNull<c_void>, End>(symbol(c"__cxa_end_catch")?),
                    demangle: std::mem::transmute::<ptr::NonNull<c_void>, Demangle>(symbol(
                        c"__cxa_demangle",
                    )?),
                })
            }
        }

        /// Catches an exception, and returns the name of its type.
        ///
        /// # Safety
        /// The exception is one of this runtime, in the state in which a handler finds it.
        unsafe fn end(&self, exception: *mut Exception) -> Option<String> {
            // SAFETY: as this function's contract says; names of types are constant texts, and what demangling returns is freed.
            unsafe {
                (self.begin)(exception.cast());
                let mangled = (self.current)().as_ref().map(|t| t.name).filter(|n| !n.is_null());
                let name = mangled.map(|mangled| {
                    // Names of types that are not the program's alone begin with a star.
                    let plain = CStr::from_ptr(mangled).to_bytes().strip_prefix(b"*");
                    let mangled = if plain.is_some() { mangled.add(1) } else { mangled };
                    let mut status = 0;
                    let text = (self.demangle)(mangled, ptr::null_mut(), ptr::null_mut(), &mut status);
                    let shown = if text.is_null() { mangled } else { text };
                    let shown = CStr::from_ptr(shown).to_string_lossy().into_owned();
                    libc::free(text.cast());
                    shown
                });
                // The destructor of what was thrown may throw in turn.
                if let Err(again) = super::contained(|| (self.end)()) {
                    tracing::warn!("{again}");
                }
                name
            }
        }
    }
}
