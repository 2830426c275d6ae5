//! The digits that examples classify, as files for C programs.

use kiln_npz::{Array, read_npz};
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of the digits.
pub fn digits(name: &str) -> PathBuf {
    root().join("tests/data/digits").join(name)
}

fn array(file: &str, name: &str) -> Array {
    let all = read_npz(digits(file)).unwrap();
    all.into_iter().find(|(n, _)| n == name).unwrap().1
}

/// Writes the test images as floats, and returns the file.
pub fn images(folder: &Path) -> PathBuf {
    let path = folder.join("images.f32");
    std::fs::write(&path, array("digits_test.npz", "images").data).unwrap();
    path
}

/// The digits that a model finds in the first test images, by its stored results.
pub fn expected(model: &str, count: usize) -> Vec<i64> {
    let a = array(&format!("logits_{model}.npz"), "pred");
    a.data.chunks_exact(8).take(count).map(|c| i64::from_le_bytes(c.try_into().unwrap())).collect()
}
