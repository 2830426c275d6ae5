//! Helpers of the tests of the plug-in ABI: compiling C.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

pub mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A folder of this test binary for what it compiles.
pub fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Compiles source text with all warnings as errors. Returns the path of the result. `file` names the source,
/// `more` are further arguments.
pub fn compile(compiler: &str, std: &str, file: &str, source: &str, more: &[&str]) -> PathBuf {
    let dir = folder(&format!("{}-{std}", file.replace('.', "-")));
    let source_path = dir.join(file);
    std::fs::write(&source_path, source).unwrap();
    let out = dir.join("a.out");
    run_compiler(compiler, std, &[source_path], &out, more);
    out
}

/// Compiles a shared library under this file name.
pub fn library(name: &str, sources: &[PathBuf], more: &[&str]) -> PathBuf {
    let out = folder(&format!("lib-{name}")).join(format!("libkiln_backend_{name}.so"));
    let more: Vec<&str> = ["-shared", "-fPIC", "-fvisibility=hidden"].iter().chain(more).copied().collect();
    run_compiler("cc", "c99", sources, &out, &more);
    out
}

/// `mutant.c` as a library of this name, wrong in the ways that these macros say ("MAJOR=0").
pub fn mutant(name: &str, wrongs: &[&str]) -> PathBuf {
    let macros: Vec<String> = wrongs.iter().map(|w| format!("-D{w}")).collect();
    let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
    library(name, &[root().join("tests/tests/abi/mutant.c")], &macros)
}

pub fn run_compiler(compiler: &str, std: &str, sources: &[PathBuf], out: &Path, more: &[&str]) {
    let result = Command::new(compiler)
        .arg(format!("-std={std}"))
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-g"])
        .arg("-I")
        .arg(root().join("plugins/include"))
        .arg("-o")
        .arg(out)
        .args(sources)
        .args(more)
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}; run scripts/setup.sh"));
    assert!(result.status.success(), "{compiler} {sources:?}: {}", String::from_utf8_lossy(&result.stderr));
}
