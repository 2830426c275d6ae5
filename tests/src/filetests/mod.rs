//! Filetests: graphs in text form, the passes to run on them, and the text that must come out.
//!
//! A file under `tests/filetests` is a list of cases:
//!
//! ```text
//! ## what it shows
//! #! run canonicalize fold-constants     # names of passes; `regions` last shows how the graph is cut into kernels
//! #! set reduced=f16 tolerance=1e-2      # optional: settings of the build and of the check; see [`Settings`]
//! graph "in" { … }
//! #=>
//! graph "out" { … }                      # or `unchanged`, or `error: message`
//! ```
//!
//! Each case is also checked by the oracle: the graphs before and after give the same outputs on random inputs.
//! `KILN_BLESS=1` writes the expectations; the oracle's check is never blessed.

mod build;
mod case;
mod numeric;
mod run;

pub use build::build_and_run;
pub use case::{Case, Settings, parse};
pub use numeric::{inputs, near, same_results};
pub use run::run;

use crate::bless::check;
use crate::suite::root;

/// The names of the files, sorted.
pub fn files() -> Vec<String> {
    let folder = std::fs::read_dir(root().join("tests/filetests"));
    let paths = folder.into_iter().flatten().flatten().map(|e| e.path());
    let kir = paths.filter(|p| p.extension().is_some_and(|e| e == "kir"));
    let mut names: Vec<String> =
        kir.filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// The cases of a file.
pub fn cases(name: &str) -> Result<Vec<Case>, String> {
    let path = format!("tests/filetests/{name}");
    let text = std::fs::read_to_string(root().join(&path)).map_err(|e| format!("{path}: {e}"))?;
    parse(&text).map_err(|e| format!("{path}: {e}"))
}

/// Runs a file's cases and compares them with their expectations. The error lists all cases that fail.
pub fn check_file(name: &str) -> Result<usize, String> {
    let path = format!("tests/filetests/{name}");
    let cases = cases(name)?;
    let (mut found, mut wrong) = (String::new(), Vec::new());
    for case in &cases {
        match run(case) {
            Ok(Some(out)) => found += &case.with_expected(&out),
            Ok(None) => found += &case.with_expected(&case.expected),
            Err(e) => wrong.push(format!("{path}: {}: {e}", case.title)),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    check(&path, &found).map(|()| cases.len())
}
