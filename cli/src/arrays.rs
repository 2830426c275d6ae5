//! NumPy files as tensors, and back.

use crate::failure::Failure;
use kiln::{DType, Tensor};
use kiln_npz::{Array, Compression, NpyType};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Larger files of arrays are refused.
const MAX_FILE: u64 = 1 << 40;

/// Converts to a tensor: see [`kiln::arrays::tensor`].
pub fn tensor(name: &str, a: Array) -> Result<Tensor, Failure> {
    Ok(kiln::arrays::tensor(name, a)?)
}

/// Converts to an array; types that NumPy lacks are widened (bf16 and FP8 to f32, int4 to int8).
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

/// Reads the arrays of an archive that `wants` takes by name, type and shape, without inflating others.
pub fn read_archive_where(
    path: &Path,
    mut wants: impl FnMut(&str, NpyType, &[u64]) -> Result<bool, Failure>,
) -> Result<BTreeMap<String, Array>, Failure> {
    let asked = kiln_npz::read_npz_where(path, |name, dtype, shape| Ok(wants(name, dtype, shape)?));
    asked.map_err(|stopped| match stopped {
        Stopped::Read(source) => Failure::Arrays { path: path.to_owned(), source },
        Stopped::Refused(failure) => failure,
    })
}

/// Reason why the reading of an archive ended early.
enum Stopped {
    Read(kiln_npz::NpzError),
    Refused(Failure),
}

impl From<kiln_npz::NpzError> for Stopped {
    fn from(source: kiln_npz::NpzError) -> Self {
        Stopped::Read(source)
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Stopped::Refused(failure)
    }
}

/// Writes tensors as an archive, one after the other.
pub fn write_archive(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Failure> {
    let sorted: BTreeMap<&str, &Tensor> = tensors.iter().map(|(name, t)| (name.as_str(), t)).collect();
    let arrays = sorted.into_iter().map(|(name, t)| (name, array(t).map(Cow::Owned)));
    let written = kiln_npz::write_npz_from(path, arrays, Compression::Stored);
    written.map_err(|source| Failure::Arrays { path: path.to_owned(), source })
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
        let mut names = Vec::new();
        let mut all = read_archive_where(&self.path, |found, _, _| {
            names.push(found.to_owned());
            Ok(found == name)
        })?;
        all.remove(name).ok_or_else(|| {
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
    fn elements_survive_and_foreign_types_are_held_if_they_fit() {
        let t = Tensor::f32(&[2], &[1.5, -2.0]).unwrap();
        assert_eq!(tensor("x", array(&t).unwrap()).unwrap(), t);
        let of = |dtype, data: Vec<u8>| {
            let n = data.len() as u64 / NpyType::size(dtype);
            tensor("x", Array::new(dtype, vec![n], data).unwrap())
        };
        let doubles = [0.1f64, -3.0, f64::INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(
            of(NpyType::F64, doubles).unwrap(),
            Tensor::f32(&[3], &[0.1, -3.0, f32::INFINITY]).unwrap()
        );
        let shorts = [-5i16, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        let shorts = of(NpyType::I16, shorts).unwrap();
        assert_eq!((shorts.dtype(), shorts.to_i64()), (DType::I32, vec![-5, 7]));
        let words = u32::MAX.to_le_bytes().to_vec();
        assert_eq!(of(NpyType::U32, words).unwrap(), Tensor::i64(&[1], &[u32::MAX.into()]).unwrap());
        let e =
            of(NpyType::F64, [0.0, 1e300].iter().flat_map(|v: &f64| v.to_le_bytes()).collect()).unwrap_err();
        assert!(e.to_string().contains("element 1 is 1e300, which does not fit in f32"), "{e}");
        let e = of(NpyType::U64, u64::MAX.to_le_bytes().to_vec()).unwrap_err();
        assert!(
            e.to_string().contains("element 0 is 18446744073709551615, which does not fit in i64"),
            "{e}"
        );
    }
}
