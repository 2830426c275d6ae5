//! Weights in files, for refits: archives of NumPy, safetensors, and ONNX models of the same graph.

mod safetensors;

use crate::{Error, arrays};
use kiln_files::{open_regular, read_regular};
use kiln_ir::{Bytes, DType, Tensor};
use kiln_npz::NpzError;
use kiln_runtime::Refitter;
use std::io::Read;
use std::path::Path;

/// Larger files of weights are refused.
const MAX_FILE: u64 = 1 << 40;
/// The longest header of safetensors that is read, as their own reader has it.
const MAX_HEADER: u64 = 100_000_000;

/// Outcome of [`set_from_file`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileWeights {
    /// Names of the weights that were set.
    pub set: Vec<String>,
    /// Names in the file that the plan has no weight of.
    pub unused: Vec<String>,
    /// Weights that cannot be replaced, and that the file has as they are.
    pub fixed: Vec<String>,
}

/// Sets the weights that a file has by name: an archive of NumPy (.npz), safetensors, or an ONNX model of the same graph. The content
/// of the file decides which it is. Floats of other types are converted where that is exact. Names that the plan lacks are
/// reported, and left out. Nothing is put in before [`Refitter::refit`].
///
/// ```
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits");
/// use kiln::{Engine, Refit, weights};
///
/// let engine = Engine::builder().backend("cpu").refit(Refit::All).build(format!("{folder}/lenet_a.onnx").as_str())?;
/// let mut refitter = engine.refitter()?;
/// let found = weights::set_from_file(&mut refitter, format!("{folder}/lenet_b_weights.npz"))?;
/// assert_eq!(found.set.len(), 8);
/// refitter.refit()?;
/// # Ok::<(), kiln::Error>(())
/// ```
///
/// # Errors
/// [`Error::WeightsFile`] if the file is none of these; [`Error::Import`] if the model is refused; [`Error::Runtime`] if a
/// weight has another type or shape, or cannot be replaced and differs.
pub fn set_from_file(refitter: &mut Refitter, path: impl AsRef<Path>) -> Result<FileWeights, Error> {
    let path = path.as_ref();
    let fail = |source| Error::File { path: path.to_owned(), source };
    let mut start = Vec::new();
    open_regular(path).and_then(|f| f.take(9).read_to_end(&mut start)).map_err(fail)?;
    let mut found = FileWeights::default();
    if start.starts_with(b"PK") {
        from_npz(refitter, path, &mut found)?;
    } else if is_safetensors(&start) {
        let bytes = read_regular(path, MAX_FILE).map_err(fail)?;
        let tensors = safetensors::read(Bytes::from(bytes)).map_err(|message| wrong(path, message))?;
        for (name, tensor) in tensors {
            put(refitter, &name, tensor, &mut found)?;
        }
    } else {
        from_model(refitter, path, &mut found)?;
    }
    if found.set.is_empty() && found.fixed.is_empty() {
        let message =
            format!("none of its {} tensors has the name of a weight of the plan", found.unused.len());
        return Err(wrong(path, message));
    }
    Ok(found)
}

fn wrong(path: &Path, message: String) -> Error {
    Error::WeightsFile { path: path.to_owned(), message }
}

/// Whether a file begins with the length of a header, and a header in JSON.
fn is_safetensors(start: &[u8]) -> bool {
    let length = start.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    length.is_some_and(|n| (2..=MAX_HEADER).contains(&n)) && start.get(8) == Some(&b'{')
}

/// Reads only arrays that the plan has weights of.
fn from_npz(refitter: &mut Refitter, path: &Path, found: &mut FileWeights) -> Result<(), Error> {
    let mut unused = Vec::new();
    let wanted = |name: &str, _, _: &[u64]| {
        let known = refitter.prototype(name).is_ok();
        if !known {
            unused.push(name.to_owned());
        }
        Ok::<bool, NpzError>(known)
    };
    let arrays = kiln_npz::read_npz_where(path, wanted).map_err(|e| wrong(path, e.to_string()))?;
    found.unused.extend(unused);
    for (name, array) in arrays {
        put(refitter, &name, arrays::tensor(&name, array)?, found)?;
    }
    Ok(())
}

#[cfg(feature = "build")]
fn from_model(refitter: &mut Refitter, path: &Path, found: &mut FileWeights) -> Result<(), Error> {
    let network = crate::Model::open(path)?.into_network();
    let (graph, _) = network.map_err(|e| match e {
        Error::NotPortable { .. } => wrong(
            path,
            "it is an engine that does not store its network: give an archive of NumPy, safetensors, or the ONNX model of its weights"
                .to_owned(),
        ),
        e => e,
    })?;
    let mut named = std::collections::BTreeMap::new();
    collect(&graph, &mut named);
    drop(graph);
    named.into_iter().try_for_each(|(name, tensor)| put(refitter, &name, tensor, found))
}

#[cfg(feature = "build")]
fn collect(g: &kiln_ir::Graph, named: &mut std::collections::BTreeMap<String, Tensor>) {
    for w in g.value_ids().filter_map(|v| g.weight(v)) {
        if let Some(name) = &w.name {
            named.insert(name.to_string(), w.tensor.clone());
        }
    }
    g.nodes().flat_map(|(_, n)| &n.regions).for_each(|r| collect(r, named));
}

#[cfg(not(feature = "build"))]
fn from_model(_: &mut Refitter, path: &Path, _: &mut FileWeights) -> Result<(), Error> {
    let message =
        "neither an archive of NumPy nor safetensors, and models are read with the feature \"build\" only";
    Err(wrong(path, message.into()))
}

fn put(refitter: &mut Refitter, name: &str, tensor: Tensor, found: &mut FileWeights) -> Result<(), Error> {
    let Ok(wanted) = refitter.prototype(name) else {
        found.unused.push(name.to_owned());
        return Ok(());
    };
    let tensor = exactly(tensor, wanted.dtype);
    if wanted.fixed.is_some() && refitter.is_current(name, &tensor) {
        found.fixed.push(name.to_owned());
        return Ok(());
    }
    refitter.set(name, tensor)?;
    found.set.push(name.to_owned());
    Ok(())
}

/// Floats in another type, where that changes none; else as they are.
fn exactly(tensor: Tensor, wanted: DType) -> Tensor {
    if tensor.dtype() == wanted || !tensor.dtype().is_float() || !wanted.is_float() {
        return tensor;
    }
    let converted = Tensor::from_elems(wanted, tensor.shape(), &tensor.elems());
    converted.filter(|t| t.elems() == tensor.elems()).unwrap_or(tensor)
}
