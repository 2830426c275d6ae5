//! Functions of NVIDIA's libraries: typed by cudarc's declarations, found in a library that the caller opened.
//!
//! cudarc's own loader is not used. It opens a library by a fixed list of names, and panics where the library or a function is
//! missing. Here every function of a table is looked up when the library is opened, and a missing one is returned by name.
//!
//! [`functions`] declares a table by names alone. [`call`] takes the argument types of a function from cudarc, and its result as
//! the integer that the library returns: a code that is newer than cudarc's enumeration must not become a value of it.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Address of a function in an open library, which stays open for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct Symbol(NonNull<c_void>);

// SAFETY: code is not changed once it is loaded.
unsafe impl Send for Symbol {}
// SAFETY: as above.
unsafe impl Sync for Symbol {}

impl Symbol {
    /// Finds a function by its name, which ends with a zero byte.
    pub fn find(library: &libloading::Library, name: &'static str) -> Option<Symbol> {
        // SAFETY: the address alone is taken.
        let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok()?;
        NonNull::new(*found).map(Symbol)
    }

    /// Returns the address as the function that cudarc declares.
    ///
    /// # Safety
    /// The symbol is that of the declared function.
    pub unsafe fn declared<D: Declared>(self, _declaration: D) -> D::Exported {
        // SAFETY: the caller's promise.
        unsafe { self.typed() }
    }

    /// Returns the address as a function of this type.
    ///
    /// # Safety
    /// `F` is the type of a function pointer, and the function has that signature.
    pub unsafe fn typed<F: Copy>(self) -> F {
        const { assert!(size_of::<F>() == size_of::<Symbol>()) };
        // SAFETY: the caller's promise; the sizes are equal.
        unsafe { std::mem::transmute_copy(&self.0) }
    }
}

/// Result of a function, as cudarc declares it.
pub trait Returned {
    /// The result as the library returns it.
    type Raw;
}

macro_rules! returned {
    ($($declared:ty => $raw:ty),* $(,)?) => { $(impl Returned for $declared { type Raw = $raw; })* };
}
returned! {
    usize => usize,
    cudarc::driver::sys::CUresult => c_int,
    cudarc::nvrtc::sys::nvrtcResult => c_int,
    cudarc::cublaslt::sys::cublasStatus_t => c_int,
    cudarc::cudnn::sys::cudnnStatus_t => c_int,
}

/// Function that cudarc declares.
pub trait Declared {
    /// The function as the library exports it.
    type Exported: Copy;
}

macro_rules! declared {
    () => { impl<R: Returned> Declared for unsafe fn() -> R { type Exported = unsafe extern "C" fn() -> R::Raw; } };
    ($first:ident $($rest:ident)*) => {
        impl<R: Returned, $first, $($rest),*> Declared for unsafe fn($first, $($rest),*) -> R {
            type Exported = unsafe extern "C" fn($first, $($rest),*) -> R::Raw;
        }
        declared!($($rest)*);
    };
}
declared!(A B C D E F G H I J K L M N O P);

/// Declares a table of functions by their names.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($function:ident)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the names of the library's header")]
        pub struct $table {
            $(pub $function: $crate::foreign::Symbol,)*
        }

        impl $table {
            /// Finds every function, or returns the name of the first one that the library lacks.
            pub fn find(library: &libloading::Library) -> Result<$table, &'static str> {
                Ok($table {
                    $($function: {
                        let name = concat!(stringify!($function), "\0");
                        $crate::foreign::Symbol::find(library, name).ok_or(stringify!($function))?
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

/// Calls a function of a table: `call!(table, sys::function(arguments))`, where `sys` is cudarc's module. Unsafe as the function is.
macro_rules! call {
    ($table:expr, $sys:ident::$function:ident($($argument:expr),* $(,)?)) => {{
        let declaration: unsafe fn($($crate::foreign::any!($argument)),*) -> _ = $sys::$function;
        ($table.$function.declared(declaration))($($argument),*)
    }};
}
pub(crate) use call;

/// A type to infer, whatever the argument.
macro_rules! any {
    ($argument:expr) => {
        _
    };
}
pub(crate) use any;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::path::Path;

    fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                found.push((path.display().to_string(), text));
            }
        }
    }

    /// Stands for a module of cudarc: its functions are never called, their types are taken.
    #[cfg(target_os = "linux")]
    mod sys {
        use cudarc::driver::sys::CUresult;

        pub unsafe fn abs(_: std::ffi::c_int) -> CUresult {
            panic!("the declaration was called")
        }
    }

    #[cfg(target_os = "linux")]
    super::functions!(Numbers { abs });
    #[cfg(target_os = "linux")]
    super::functions!(#[allow(dead_code, reason = "it is not found")] Newer { abs cuNotYet });

    #[cfg(target_os = "linux")]
    #[test]
    fn missing_functions_are_named_and_unknown_codes_stay_numbers() {
        // SAFETY: the C library is loaded already.
        let library = unsafe { libloading::Library::new("libc.so.6") }.unwrap();
        assert_eq!(Newer::find(&library).map(|_| ()), Err("cuNotYet"));
        let numbers = Numbers::find(&library).unwrap();
        // SAFETY: the function has this signature.
        assert_eq!(unsafe { super::call!(numbers, sys::abs(-424_242)) }, 424_242);
    }

    /// A direct call of a function of cudarc panics where the library or the function is missing.
    #[test]
    fn functions_of_cudarc_are_called_by_tables_only() {
        let mut all = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
        let (mut calls, mut direct) = (0, Vec::new());
        for (path, text) in all.iter().filter(|(path, _)| path.ends_with(".rs")) {
            for (at, _) in text.match_indices("sys::") {
                let rest = &text[at + 5..];
                let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').map_or(rest, |n| &rest[..n]);
                if !rest[name.len()..].starts_with('(') || name.is_empty() {
                    continue;
                }
                calls += 1;
                // `call!(table, sys::function(…))`, however the formatter breaks the line.
                let before = &text[..at];
                let table = before.rfind("call!(").map(|open| before[open + 6..].trim());
                if !table.is_some_and(|t| t.ends_with(',') && !t.contains(['(', ';'])) {
                    direct.push(format!("{path}: {name}"));
                }
            }
        }
        assert!(direct.is_empty(), "{direct:#?}");
        assert!(calls > 30, "only {calls} calls were found: does this test still read the sources?");
    }
}
