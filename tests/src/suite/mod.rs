//! The ONNX backend test suite as files: cases, their data, and the comparison that the suite prescribes.

mod compare;
mod run;

pub use compare::{Tolerance, compare};
pub use run::{Setting, run_case, run_case_by, run_graph};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The root of the workspace: where this crate was built, or, on another machine, the current folder.
pub fn root() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    if built.join("tests").is_dir() { built } else { PathBuf::from(".") }
}

/// A release of the suite: its cases are folders under `.cache`, written by `scripts/setup.sh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// Version of the PyPI package `onnx` that the cases come from.
    pub version: &'static str,
    /// Number of cases in scope.
    pub in_scope: usize,
}

impl Suite {
    /// The newest release.
    pub const NEWEST: Suite = Suite { version: "1.23.2", in_scope: 1616 };
    /// An older release, most of whose cases are those of the newest.
    pub const OLDER: Suite = Suite { version: "1.19.1", in_scope: 1388 };

    /// The folder that holds the cases.
    pub fn folder(&self) -> PathBuf {
        root().join(format!(".cache/onnx-suite-{}", self.version))
    }

    /// Names of the cases in scope.
    pub fn cases(&self) -> Vec<String> {
        let list = root().join(format!("tests/onnx/scope-{}.txt", self.version));
        std::fs::read_to_string(list).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Names of the cases in scope whose files differ from those of another release, or that it lacks.
    pub fn cases_unlike(&self, other: &Suite) -> Vec<String> {
        let (own, other) = (self.folder(), other.folder());
        self.cases().into_iter().filter(|c| !same_files(&own.join(c), &other.join(c))).collect()
    }

    /// Cases that a backend is expected to fail, each with its reason: lines `case: reason`. Lines about the older
    /// release have its version in front, as `1.19.1/node/test_x: reason`.
    pub fn expected_failures(&self, backend: &str) -> BTreeMap<String, String> {
        let path = root().join(format!("tests/onnx/expected-failures/{backend}.txt"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let older = format!("{}/", Suite::OLDER.version);
        let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
        let mine = lines.filter_map(|l| match (l.strip_prefix(&older), *self == Suite::OLDER) {
            (Some(line), true) => Some(line),
            (None, false) => Some(l),
            _ => None,
        });
        mine.filter_map(|l| l.split_once(": ")).map(|(c, r)| (c.to_owned(), r.to_owned())).collect()
    }
}

/// Cases whose runs a backend can't finish without the host, by name, each with what it needs the host for.
pub fn host_cases(backend: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(host_cases_file(backend)).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines.filter_map(|l| l.split_once(": ")).map(|(case, why)| (case.to_owned(), why.to_owned())).collect()
}

/// Path of the list of host cases.
pub fn host_cases_file(backend: &str) -> PathBuf {
    root().join(format!("tests/onnx/host/{backend}.txt"))
}

/// Whether two folders hold the same files, down to the last byte.
fn same_files(a: &Path, b: &Path) -> bool {
    let names = |folder: &Path| -> Option<Vec<_>> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.file_name())).collect();
        names.sort();
        Some(names)
    };
    let (Some(own), Some(other)) = (names(a), names(b)) else { return false };
    own == other
        && own.iter().all(|name| {
            let (a, b) = (a.join(name), b.join(name));
            if a.is_dir() {
                return same_files(&a, &b);
            }
            matches!((std::fs::read(a), std::fs::read(b)), (Ok(a), Ok(b)) if a == b)
        })
}
