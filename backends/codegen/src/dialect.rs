//! Differences between the languages of kernels.

use crate::Kernel;
use kiln_ir::DType;
use std::fmt;

/// A language for kernels: how declarations are written, and which kernels it has.
///
/// Expressions have one meaning in WGSL and in C++ under a small prelude: `select(no, yes, test)`,
/// `bitcast<f32>(x)`, conversions `i32(x)`, constants `0.0f` and `i64(0)`, `let` for names. The prelude of
/// each language defines the functions that `scalar.rs` calls.
pub struct Dialect {
    /// A digest of the code that plans launches, which backends take from their build scripts.
    pub launch_code: &'static str,
    /// A function: name, arguments with their types (`"u32"`, `"[u32; 3]"`), type of the result, the expression that it returns.
    pub function: fn(&str, &[(&str, &str)], &str, &str) -> String,
    /// A constant: name, type, value.
    pub constant: fn(&str, &str, &str) -> String,
    /// Another name of a type: name, type.
    pub alias: fn(&str, &str) -> String,
    /// The position among the words of a launch, of the first one behind those of the kernel and its views.
    pub tail: &'static str,
    /// The lane of a word as a value of this type: word, number of the lane.
    pub decode: fn(DType, &str, &str) -> String,
    /// Kernels that only this backend has; they are preferred.
    pub own: &'static [&'static [Kernel]],
    /// Kernels of [`crate::FAMILIES`] that it has files for.
    pub generic: &'static [&'static [Kernel]],
    /// Loops may be too long for one launch: functions `keep`, `kept` and `resume`, by which numbers of a type stay in
    /// scratch memory from launch to launch. `None` if launches take any time.
    pub spans: Option<fn(DType) -> String>,
    /// May an expression read extras through reshapes and prefixes of the region, and may the region have shapes that the
    /// host alone reads?
    pub reshapes: bool,
    /// Neighbours of a row that an expression reads at once; those of several rows are read one by one.
    pub at_once: usize,
    /// Whether kernels can count positions in an input in 64 bits (`limits.rs`).
    pub far: bool,
}

impl Dialect {
    /// The kernels that fit, the preferred ones of an operator first. A backend's own kernel takes the place of the generic one of
    /// its name.
    pub fn kernels<'a>(
        &'static self,
        fits: impl Fn(&Kernel) -> bool + 'a,
    ) -> impl Iterator<Item = &'static Kernel> + 'a {
        let own = || self.own.iter().flat_map(|f| f.iter());
        let generic = self.generic.iter().flat_map(|f| f.iter());
        let all = own().map(|k| (k, false)).chain(generic.map(|k| (k, true)));
        let replaced = move |k: &Kernel| own().any(|o| o.name == k.name);
        all.filter(move |&(k, generic)| fits(k) && !(generic && replaced(k))).map(|(k, _)| k)
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialect").field("own", &self.own.len()).finish_non_exhaustive()
    }
}
