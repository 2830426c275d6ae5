//! NumPy files as tensors, and back.

use crate::failure::Failure;
use kiln::{DType, Tensor};
use kiln_npz::{Array, Compression, NpyType};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Larger files of arrays are refused.
const MAX_FILE: u64 = 1 << 40;

/// The element type of an array; `None` where Kiln has none.
fn dtype(t: NpyType) -> Option<DType> {
    Some(match t {
        NpyType::F16 => DType::F16,
        NpyType::F32 => DType::F32,
        NpyType::I8 => DType::I8,
        NpyType::I32 => DType::I32,
        NpyType::I64 => DType::I64,
        NpyType::U8 => DType::U8,
        NpyType::Bool => DType::Bool,
        NpyType::F64 | NpyType::I16 | NpyType::U16 | NpyType::U32 | NpyType::U64 => return None,
    })
}

/// The same elements as a tensor.
pub fn tensor(name: &str, a: Array) -> Result<Tensor, Failure> {
    let unknown = || {
        Failure::Input(format!(
            "array \"{name}\" has element type {}, which no engine takes; convert it, as with .astype(\"float32\")",
            a.dtype
        ))
    };
    let dtype = dtype(a.dtype).ok_or_else(unknown)?;
    let shape: Option<Vec<usize>> = a.shape.iter().map(|&d| usize::try_from(d).ok()).collect();
    let made = shape.and_then(|s| Tensor::from_bytes(dtype, &s, a.data));
    made.ok_or_else(|| {
        Failure::Input(format!("array \"{name}\" has shape {:?}, too large for this machine", a.shape))
    })
}

/// The same elements as an array; types that NumPy lacks are widened (bf16 and FP8 to f32, int4 to int8).
pub fn array(t: &Tensor) -> Result<Array, kiln_npz::NpzError> {
    let (code, wide) = match t.dtype() {
        DType::F16 => (NpyType::F16, None),
        DType::F32 => (NpyType::F32, None),
        DType::I8 => (NpyType::I8, None),
        DType::I32 => (NpyType::I32, None),
        DType::I64 => (NpyType::I64, None),
        DType::U8 => (NpyType::U8, None),
        DType::Bool => (NpyType::Bool, None),
        DType::I4 => (NpyType::I8, Some(DType::I8)),
        _ => (NpyType::F32, Some(DType::F32)),
    };
    let widened = wide.and_then(|d| Tensor::from_elems(d, t.shape(), &t.elems()));
    let bytes = widened.as_ref().unwrap_or(t).bytes().to_vec();
    Array::new(code, t.shape().iter().map(|&d| d as u64).collect(), bytes)
}

/// Reads an archive.
pub fn read_archive(path: &Path) -> Result<BTreeMap<String, Array>, Failure> {
    kiln_npz::read_npz(path).map_err(|source| Failure::Arrays { path: path.to_owned(), source })
}

/// Writes tensors as an archive.
pub fn write_archive(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Failure> {
    let fail = |source| Failure::Arrays { path: path.to_owned(), source };
    let mut arrays = BTreeMap::new();
    for (name, t) in tensors {
        arrays.insert(name.clone(), array(t).map_err(fail)?);
    }
    kiln_npz::write_npz(path, &arrays, Compression::Stored).map_err(fail)
}

/// One array: a `.npy` file, or `archive.npz:array`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPath {
    /// The file.
    pub path: PathBuf,
    /// The array's name, of archives.
    pub array: Option<String>,
}

/// Reads `x.npy` or `x.npz:array`.
pub fn array_path(text: &str) -> Result<ArrayPath, String> {
    let split = text.find(".npz:").map(|at| text.split_at(at + 4));
    match split {
        Some((path, array)) if array.len() > 1 => {
            Ok(ArrayPath { path: path.into(), array: Some(array[1..].to_owned()) })
        }
        Some(_) => Err("wanted the name of an array after the colon".into()),
        None if text.ends_with(".npz") => {
            Err(format!("{text} is an archive: say which array, as {text}:NAME"))
        }
        None => Ok(ArrayPath { path: text.into(), array: None }),
    }
}

impl ArrayPath {
    /// The array.
    pub fn read(&self) -> Result<Array, Failure> {
        let Some(name) = &self.array else {
            let bytes = kiln_files::read_regular(&self.path, MAX_FILE)
                .map_err(|source| Failure::File { path: self.path.clone(), source })?;
            return kiln_npz::read_npy(&bytes)
                .map_err(|source| Failure::Arrays { path: self.path.clone(), source });
        };
        let mut all = read_archive(&self.path)?;
        all.remove(name).ok_or_else(|| {
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            Failure::Input(format!(
                "{} has no array \"{name}\"; it has {}",
                self.path.display(),
                names.join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_select_an_array_of_an_archive() {
        let of = |s: &str| array_path(s).map(|p| (p.path.display().to_string(), p.array));
        assert_eq!(of("a/b.npz:x:0"), Ok(("a/b.npz".into(), Some("x:0".into()))));
        assert_eq!(of("a.npy"), Ok(("a.npy".into(), None)));
        assert!(of("a.npz").is_err() && of("a.npz:").is_err());
    }

    #[test]
    fn elements_survive_and_foreign_types_are_refused() {
        let t = Tensor::f32(&[2], &[1.5, -2.0]).unwrap();
        assert_eq!(tensor("x", array(&t).unwrap()).unwrap(), t);
        let e = tensor("x", Array::new(NpyType::F64, vec![0], vec![]).unwrap()).unwrap_err();
        assert!(e.to_string().contains("\"x\" has element type f8"), "{e}");
    }
}
