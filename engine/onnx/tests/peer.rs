//! Small models of one operator or a few have the results of ONNX Runtime. `tests/peer/make.py` makes them,
//! with the answers.
//!
//! `KILN_PEER_CASES` names a folder with other archives (made with another seed, say), `KILN_PEER` a part of the names of
//! cases to run.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use half::f16;
use kiln_ir::{DType, Elems, Tensor};
use kiln_npz::{Array, NpyType};
use kiln_onnx::{ImportOptions, Model, ModelFile, import};

/// A model, its inputs, and the peer's outputs.
#[derive(Default)]
struct Case {
    model: Vec<u8>,
    inputs: BTreeMap<String, Array>,
    outputs: BTreeMap<String, Array>,
    /// Greatest difference of codes.
    slack: i64,
    /// Text of the importer's refusal, if it has to refuse the model.
    says: Option<String>,
}

fn folder() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/peer/cases");
    std::env::var_os("KILN_PEER_CASES").map_or(own, PathBuf::from)
}

fn cases(family: &str) -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for (key, array) in kiln_npz::read_npz(folder().join(format!("{family}.npz"))).unwrap() {
        let mut parts = key.splitn(3, '/');
        let case = cases.entry(parts.next().unwrap().to_owned()).or_default();
        match (parts.next(), parts.next()) {
            (Some("model"), None) => case.model = array.data,
            (Some("says"), None) => case.says = Some(String::from_utf8(array.data).unwrap()),
            (Some("slack"), None) => case.slack = array.to_i64().unwrap()[0],
            (Some("in"), Some(name)) => drop(case.inputs.insert(name.to_owned(), array)),
            (Some("out"), Some(name)) => drop(case.outputs.insert(name.to_owned(), array)),
            _ => panic!("{family}.npz has an array {key}"),
        }
    }
    cases
}

fn elems(a: &Array) -> Elems {
    fn map<T, const N: usize>(a: &Array, f: impl Fn([u8; N]) -> T) -> Vec<T> {
        a.data.as_chunks().0.iter().map(|b| f(*b)).collect()
    }
    match a.dtype {
        NpyType::F16 => Elems::F(map(a, |b| f16::from_le_bytes(b).to_f64())),
        NpyType::F32 => Elems::F(map(a, |b| f32::from_le_bytes(b).into())),
        NpyType::F64 => Elems::F(map(a, f64::from_le_bytes)),
        NpyType::I8 => Elems::I(map(a, |b| i8::from_le_bytes(b).into())),
        NpyType::I16 => Elems::I(map(a, |b| i16::from_le_bytes(b).into())),
        NpyType::I32 => Elems::I(map(a, |b| i32::from_le_bytes(b).into())),
        NpyType::I64 => Elems::I(map(a, i64::from_le_bytes)),
        NpyType::U8 | NpyType::Bool => Elems::I(map(a, |b| u8::from_le_bytes(b).into())),
        NpyType::U16 => Elems::I(map(a, |b| u16::from_le_bytes(b).into())),
        NpyType::U32 => Elems::I(map(a, |b| u32::from_le_bytes(b).into())),
        NpyType::U64 => Elems::I(map(a, |b| u64::from_le_bytes(b) as i64)),
    }
}

fn shape(a: &Array) -> Vec<usize> {
    a.shape.iter().map(|&d| d as usize).collect()
}

/// Runs a case on the oracle and compares it.
fn run(case: &Case) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let file = ModelFile::from_bytes(case.model.clone(), None).map_err(|e| text(&e))?;
    let model = Model::check(&file).map_err(|e| text(&e))?;
    let done = import(&model, &ImportOptions::default()).map_err(|e| text(&e));
    if let Some(says) = &case.says {
        return match done {
            Err(error) if error.contains(says) => Ok(()),
            Err(error) => Err(format!("is refused without \"{says}\": {error}")),
            Ok(_) => Err(format!("is not refused: wanted \"{says}\"")),
        };
    }
    let done = done?;
    let graph = done.network.lower().map_err(|e| text(&e))?;
    let mut inputs = Vec::new();
    for input in &model.graph.inputs {
        let array = case.inputs.get(&input.name).ok_or(format!("no input {}", input.name))?;
        let id = done.network.find(&input.name).ok_or(format!("no tensor {}", input.name))?;
        let dtype = done.network.ty(id).dtype;
        inputs.push(Tensor::from_elems(dtype, &shape(array), &elems(array)).ok_or("an input does not fit")?);
    }
    let found = graph.eval(&inputs).map_err(|e| text(&e))?;
    for (info, found) in model.graph.outputs.iter().zip(&found) {
        compare(found, &case.outputs[&info.name], case.slack)
            .map_err(|e| format!("output {}: {e}", info.name))?;
    }
    Ok(())
}

/// Integers are equal, or as near as the case says. Floats differ by some roundings of the type, of numbers as large as the greatest.
fn compare(found: &Tensor, wanted: &Array, slack: i64) -> Result<(), String> {
    if found.shape() != shape(wanted) {
        return Err(format!("has shape {:?}, wanted {:?}", found.shape(), wanted.shape));
    }
    let (found_elems, wanted_elems) = (found.elems(), elems(wanted));
    match (&found_elems, &wanted_elems) {
        (Elems::I(f), Elems::I(w)) => match f.iter().zip(w).position(|(f, w)| (f - w).abs() > slack) {
            Some(i) => Err(format!("{} at {i}, wanted {}; {f:?} against {w:?}", f[i], w[i])),
            None => Ok(()),
        },
        (Elems::F(f), Elems::F(w)) => {
            let roundings = if found.dtype() == DType::F16 { 4e-3 } else { 1e-5 };
            let greatest = w.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
            let near = |f: f64, w: f64| {
                f == w || (f.is_nan() && w.is_nan()) || (f - w).abs() <= roundings * greatest
            };
            match f.iter().zip(w).position(|(f, w)| !near(*f, *w)) {
                Some(i) => Err(format!("{} at {i}, wanted {}; {f:?} against {w:?}", f[i], w[i])),
                None => Ok(()),
            }
        }
        _ => Err(format!("is {}, wanted {}", found.dtype(), wanted.dtype)),
    }
}

/// Runs every case of a family, and says which fail.
fn family(name: &str) {
    let part = std::env::var("KILN_PEER").unwrap_or_default();
    let all = cases(name);
    assert!(!all.is_empty());
    let failed: Vec<String> = all
        .iter()
        .filter(|(case, _)| case.contains(&part))
        .filter_map(|(case, made)| Some(format!("{case}: {}", run(made).err()?)))
        .collect();
    let shown: Vec<String> = failed.iter().map(|f| f.chars().take(600).collect()).collect();
    assert!(failed.is_empty(), "{} of {} differ:\n{}", failed.len(), all.len(), shown.join("\n"));
}

#[test]
fn held_types() {
    family("held");
}

#[test]
fn operators_of_the_quantizer() {
    family("quantized");
}

#[test]
fn operators_of_the_optimizer() {
    family("transformer");
}

#[test]
fn sequences_that_are_known() {
    family("sequences");
}
