//! Hashes the sources of the backend: cached times are those of the code that was timed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    println!("cargo::rustc-env=KILN_CPU_SOURCES={:016x}", hasher.finish());
}

/// Names and contents of all files below a folder.
fn collect(folder: &Path, out: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, out),
            false => out.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default())),
        }
    }
}
