//! The ONNX backend test suite as files: cases, their data, and the comparison that the suite prescribes.

mod compare;
mod run;

pub use compare::compare;
pub use run::{Setting, run_case, run_graph};

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The root of the workspace: where this crate was built, or, on another machine, the current folder.
pub fn root() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    if built.join("tests").is_dir() { built } else { PathBuf::from(".") }
}

/// The folder that `scripts/setup.sh` unpacks the suite into.
pub fn folder() -> PathBuf {
    root().join(".cache/onnx-suite-1.19.1")
}

/// Names of the cases in scope.
pub fn cases() -> Vec<String> {
    let list = std::fs::read_to_string(root().join("tests/onnx/scope-1.19.1.txt")).unwrap_or_default();
    list.lines().map(str::to_owned).collect()
}

/// Cases that a backend is expected to fail, each with its reason: lines `case: reason`.
pub fn expected_failures(backend: &str) -> BTreeMap<String, String> {
    let path = root().join(format!("tests/onnx/expected-failures/{backend}.txt"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines.filter_map(|l| l.split_once(": ")).map(|(c, r)| (c.to_owned(), r.to_owned())).collect()
}
