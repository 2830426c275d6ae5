//! Inputs and wanted outputs from files, and shapes to run with.

use super::log::Log;
use super::settings::{ProfileShapes, Settings};
use crate::arrays::{self, array_path};
use crate::failure::Failure;
use crate::given::{Given, InputOptions, ask_for_given, round_to_inputs};
use crate::options::Named;
use crate::print::{Printer, dims};
use crate::subject::run_profile;
use kiln::{Engine, IoMode, IoTensor, ShapeRequest, Tensor};
use std::path::Path;

/// Larger files of elements are refused.
const MAX_FILE: u64 = 1 << 40;

/// A tensor's name, and the file of its elements.
type File<'a> = (&'a IoTensor, &'a str);

/// Shapes, and elements of shape inputs, that are set in a request.
type Setters = [for<'a> fn(&'a mut ShapeRequest, &str, &[i64]) -> &'a mut ShapeRequest; 2];

/// Sets shapes, or elements of shape inputs, whose elements a model's shapes depend on.
fn set(r: &mut ShapeRequest, all: &[Named], io: &[IoTensor], [shape, values]: Setters) {
    for n in all {
        let of = io.iter().find(|t| t.mode == IoMode::Input && t.name == n.name);
        match of.filter(|t| t.is_shape_input) {
            Some(t) => {
                values(r, &n.name, &n.numbers);
                if t.ty().static_dims().is_none() && t.dims.len() == 1 {
                    shape(r, &n.name, &[n.numbers.len() as i64]);
                }
            }
            None => drop(shape(r, &n.name, &n.numbers)),
        }
    }
}

/// The shapes that a profile asks for.
pub fn request(p: &ProfileShapes, io: &[IoTensor]) -> ShapeRequest {
    let mut r = ShapeRequest::default();
    set(&mut r, &p.min, io, [ShapeRequest::min, ShapeRequest::min_values]);
    set(&mut r, &p.opt, io, [ShapeRequest::opt, ShapeRequest::opt_values]);
    set(&mut r, &p.max, io, [ShapeRequest::max, ShapeRequest::max_values]);
    r
}

/// One shape of each input.
pub fn fixed(shapes: &[Named], io: &[IoTensor]) -> ShapeRequest {
    let p = ProfileShapes { min: shapes.to_vec(), opt: shapes.to_vec(), max: shapes.to_vec() };
    request(&p, io)
}

/// The tensors that files are for. Of names that fit the longest counts, as names may hold colons.
fn files<'a>(specs: &'a [String], io: &'a [IoTensor], mode: IoMode) -> Result<Vec<File<'a>>, Failure> {
    let of = |spec: &'a String| {
        let fits = |t: &&IoTensor| {
            t.mode == mode && spec.strip_prefix(t.name.as_str()).is_some_and(|rest| rest.starts_with(':'))
        };
        let found = io.iter().filter(fits).max_by_key(|t| t.name.len());
        found.map(|t| (t, &spec[t.name.len() + 1..])).ok_or_else(|| {
            let names: Vec<&str> = io.iter().filter(|t| t.mode == mode).map(|t| t.name.as_str()).collect();
            Failure::Input(format!("\"{spec}\" names no tensor of the engine: there is {}", names.join(", ")))
        })
    };
    specs.iter().map(of).collect()
}

/// Whether a file says its shape and type itself.
fn is_array(path: &str) -> bool {
    path.ends_with(".npy") || path.contains(".npz:")
}

fn array(name: &str, path: &str) -> Result<Tensor, Failure> {
    arrays::tensor(name, array_path(path).map_err(Failure::Input)?.read()?)
}

/// Reads raw elements of a tensor of this type and shape.
fn raw(t: &IoTensor, shape: &[usize], path: &str) -> Result<Tensor, Failure> {
    let bytes = kiln_files::read_regular(Path::new(path), MAX_FILE)
        .map_err(|source| Failure::File { path: path.into(), source })?;
    let found = bytes.len();
    Tensor::from_bytes(t.dtype, shape, bytes).ok_or_else(|| {
        let wanted = kiln_ir::tensor::volume(shape).and_then(|n| t.dtype.bytes_for(n as u64)).unwrap_or(0);
        Failure::Input(format!(
            "{path} has {found} bytes, and \"{}\" of type {} and shape {} has {wanted}: give --shapes, or another file",
            t.name,
            t.dtype,
            dims(shape)
        ))
    })
}

/// All inputs of a run: from files, else random, of the shapes that are asked for.
pub fn read(
    specs: &[String],
    engine: &Engine,
    s: &Settings,
    log: &Log,
) -> Result<Vec<(String, Tensor)>, Failure> {
    let io = engine.io_tensors();
    let files = files(specs, io, IoMode::Input)?;
    let mut given = Given::new();
    for (t, path) in files.iter().filter(|f| is_array(f.1)) {
        given.insert(t.name.clone(), array(&t.name, path)?);
    }
    let mut request = fixed(&s.shapes, io);
    ask_for_given(&mut request, &given, io);
    let profile = run_profile(engine, &request, s.use_profile)?;
    for (t, path) in files.iter().filter(|f| !is_array(f.1)) {
        let opt = profile.shapes.get(&t.name).map(|r| r.opt.as_slice()).unwrap_or_default();
        let shape: Vec<usize> = opt.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
        given.insert(t.name.clone(), raw(t, &shape, path)?);
    }
    for t in io.iter().filter(|t| t.mode == IoMode::Input) {
        match files.iter().find(|f| f.0.name == t.name) {
            Some((_, path)) => log.info(format!("Using values loaded from {path} for input {}", t.name)),
            None => log.info(format!("Using random values for input {}", t.name)),
        }
    }
    let random = InputOptions { random_inputs: Some(0), ..InputOptions::default() };
    let all = random.complete(given, io, &profile)?;
    let all = round_to_inputs(all, io, &Printer::new(false));
    for (name, t) in &all {
        log.info(format!("Input binding for {name} with dimensions {} is created.", dims(t.shape())));
    }
    Ok(all)
}

/// The wanted tensors of outputs that were found.
pub fn wanted(
    specs: &[String],
    io: &[IoTensor],
    found: &[(String, Tensor)],
) -> Result<Vec<(Tensor, Tensor, String)>, Failure> {
    let mut all = Vec::new();
    for (t, path) in files(specs, io, IoMode::Output)? {
        let Some((name, f)) = found.iter().find(|(n, _)| *n == t.name) else { continue };
        let w = if is_array(path) { array(name, path)? } else { raw(t, f.shape(), path)? };
        if w.shape() != f.shape() {
            return Err(Failure::Input(format!(
                "{path} has shape {}, and output \"{name}\" has {}",
                dims(w.shape()),
                dims(f.shape())
            )));
        }
        all.push((f.clone(), w, name.clone()));
    }
    Ok(all)
}
