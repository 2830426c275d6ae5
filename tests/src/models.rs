//! The trained models under `tests/data`, their inputs and expected outputs.

use crate::suite::root;
use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{DType, Tensor};
use kiln_npz::{Array, NpyType};
use kiln_onnx::{ImportOptions, parse_file};
use kiln_runtime::{Engine, Profile};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A result whose error is text for a test's message.
pub type Outcome<T> = Result<T, String>;

/// A file under `tests/data`.
pub fn data(path: &str) -> PathBuf {
    root().join("tests/data").join(path)
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// The arrays of an archive under `tests/data`, as tensors.
pub fn archive(path: &str) -> Outcome<BTreeMap<String, Tensor>> {
    let arrays = kiln_npz::read_npz(data(path)).map_err(text)?;
    arrays.into_iter().map(|(name, a)| Ok((name, tensor(&a)?))).collect()
}

/// An array of a file as a tensor.
pub(crate) fn tensor(a: &Array) -> Outcome<Tensor> {
    let shape: Vec<usize> = a.shape.iter().map(|&d| d as usize).collect();
    let dtype = match a.dtype {
        NpyType::F32 => DType::F32,
        NpyType::F16 => DType::F16,
        NpyType::I64 => DType::I64,
        NpyType::I32 => DType::I32,
        NpyType::I8 => DType::I8,
        NpyType::U8 => DType::U8,
        NpyType::Bool => DType::Bool,
        other => return Err(format!("no tensor of {other:?}")),
    };
    Tensor::from_bytes(dtype, &shape, a.data.clone()).ok_or_else(|| "wrong number of bytes".into())
}

/// Rows `from..to` of the first dimension.
pub fn rows(t: &Tensor, from: usize, to: usize) -> Outcome<Tensor> {
    let row = t.bytes().len() / t.shape()[0].max(1);
    let shape = [&[to - from], &t.shape()[1..]].concat();
    Tensor::from_bytes(t.dtype(), &shape, t.bytes()[from * row..to * row].to_vec())
        .ok_or_else(|| "rows".into())
}

/// Least, usual and greatest shape of each input.
pub type Shapes<'a> = &'a [(&'a str, [&'a [i64]; 3])];

/// A model of `tests/data` as an engine on the first device of a backend.
pub fn engine(
    path: &str,
    backend: &Arc<dyn Backend>,
    shapes: Shapes<'_>,
    config: BuildConfig,
) -> Outcome<Engine> {
    let network = parse_file(data(path), &ImportOptions::default()).map_err(text)?.network;
    let mut profile = Profile::new();
    for (name, [min, opt, max]) in shapes {
        profile.set_shape(name, min, opt, max).map_err(text)?;
    }
    let target = backend.targets().map_err(text)?.into_iter().next().ok_or("no device")?;
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { profiles: vec![profile.clone()], ..config };
    let built = builder.build(&network).map_err(text)?;
    Engine::on_target(built.program, vec![profile], backend.as_ref(), target).map_err(text)
}

/// The position of the greatest element of each row of a matrix.
pub fn argmax(logits: &Tensor) -> Vec<usize> {
    let n = logits.shape().last().copied().unwrap_or(1).max(1);
    let v = logits.to_f64();
    v.chunks(n).map(|r| (0..n).max_by(|&a, &b| r[a].total_cmp(&r[b]).then(b.cmp(&a))).unwrap_or(0)).collect()
}

/// The greatest absolute difference of two tensors of one shape; infinite where they do not compare.
pub fn difference(a: &Tensor, b: &Tensor) -> f64 {
    if a.shape() != b.shape() {
        return f64::INFINITY;
    }
    let pairs = a.to_f64().into_iter().zip(b.to_f64());
    pairs.map(|(x, y)| (x - y).abs()).fold(0.0, |m, d| if d.is_nan() { f64::INFINITY } else { m.max(d) })
}
