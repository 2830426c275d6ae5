//! Inputs of the user: archives, single arrays, random ones.

use crate::arrays::{self, ArrayPath, array_path};
use crate::failure::Failure;
use crate::load::LoadOptions;
use crate::print::Printer;
use clap::Args;
use kiln::{DType, IoMode, IoTensor, Profile, ShapeRequest, Tensor};
use kiln::{Dim, Elems};
use kiln_ir::problem::Rng;
use kiln_npz::NpyType;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Greatest number of elements of a random input.
const MAX_RANDOM: usize = 1 << 30;

/// One input from a file.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// The input.
    pub name: String,
    /// File of its elements.
    pub from: ArrayPath,
}

fn input_file(text: &str) -> Result<InputFile, String> {
    let (name, path) = text.split_once('=').ok_or("wanted NAME=FILE.npy or NAME=FILE.npz:ARRAY")?;
    Ok(InputFile { name: name.to_owned(), from: array_path(path)? })
}

/// Options for the source of inputs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Inputs")]
pub struct InputOptions {
    /// An archive with an array for each input, by the input's name
    #[arg(long, value_name = "FILE.npz")]
    pub inputs: Option<PathBuf>,
    /// One input from a file; goes before --inputs [repeatable]
    #[arg(long = "input", value_name = "NAME=FILE.npy|FILE.npz:ARRAY", value_parser = input_file)]
    pub input: Vec<InputFile>,
    /// Random elements, the same for the same seed, for inputs that are not given: floats in [-1, 1), integers 0 or 1
    #[arg(long, value_name = "SEED")]
    pub random_inputs: Option<u64>,
    /// Number of the engine's optimization profile to run in: shapes outside of it are refused, those that are not given are its
    /// usual ones
    #[arg(long, value_name = "N")]
    pub use_profile: Option<usize>,
    #[command(flatten)]
    pub load: LoadOptions,
}

/// Inputs by name.
pub type Given = BTreeMap<String, Tensor>;

impl InputOptions {
    /// Reads all files. Arrays of an archive that are not inputs are named in a note and not used.
    pub fn read(&self, io: &[IoTensor], out: &Printer) -> Result<Given, Failure> {
        let is_input = |name: &str| io.iter().any(|t| t.mode == IoMode::Input && t.name == name);
        let mut given = Given::new();
        if let Some(path) = &self.inputs {
            let mut unused = Vec::new();
            let wanted = |name: &str, dtype: NpyType, shape: &[u64]| match inputs(io).find(|t| t.name == name)
            {
                Some(input) => fits(input, dtype, shape).map(|()| true),
                None => {
                    unused.push(name.to_owned());
                    Ok(false)
                }
            };
            for (name, array) in arrays::read_archive_where(path, wanted)? {
                given.insert(name.clone(), arrays::tensor(&name, array)?);
            }
            if !unused.is_empty() {
                out.note(format!("{}: no inputs are named {}; not used", path.display(), unused.join(", ")));
            }
        }
        for file in &self.input {
            if !is_input(&file.name) {
                let known: Vec<&str> = inputs(io).map(|t| t.name.as_str()).collect();
                return Err(Failure::Input(format!(
                    "--input: there is no input \"{}\"; there is {}",
                    file.name,
                    known.join(", ")
                )));
            }
            given.insert(file.name.clone(), arrays::tensor(&file.name, file.from.read()?)?);
        }
        Ok(given)
    }

    /// Adds random tensors for what is missing, or refuses; in the order of the engine's inputs.
    pub fn complete(
        &self,
        given: Given,
        io: &[IoTensor],
        profile: &Profile,
    ) -> Result<Vec<(String, Tensor)>, Failure> {
        let missing: Vec<String> = inputs(io)
            .filter(|t| !given.contains_key(&t.name))
            .map(|t| format!("\"{}\" ({})", t.name, t.ty()))
            .collect();
        if !missing.is_empty() && self.random_inputs.is_none() {
            return Err(Failure::Input(format!(
                "no data for {}: give --inputs FILE.npz, --input NAME=FILE, or --random-inputs SEED",
                missing.join(", ")
            )));
        }
        let mut rng = Rng::new(self.random_inputs.unwrap_or_default());
        let mut all = Vec::new();
        for t in inputs(io) {
            // Every input draws its own seed, so that giving one does not change the others.
            let mut own = Rng::new(rng.bits());
            let tensor = match given.get(&t.name) {
                Some(x) => x.clone(),
                None => random(t, profile, &mut own)?,
            };
            all.push((t.name.clone(), tensor));
        }
        Ok(all)
    }
}

/// Refuses an array by its header, before its elements are inflated, if no run of the input can take it.
fn fits(input: &IoTensor, dtype: NpyType, shape: &[u64]) -> Result<(), Failure> {
    let held = kiln::arrays::held_as(dtype);
    let same = |(dim, found): (&Dim, &u64)| dim.as_const().is_none_or(|d| u64::try_from(d) == Ok(*found));
    let shape_fits = input.dims.len() == shape.len() && input.dims.iter().zip(shape).all(same);
    let type_fits = held == input.dtype || (held.is_float() && input.dtype.is_float());
    if shape_fits && type_fits {
        return Ok(());
    }
    let name = &input.name;
    Err(Failure::Input(format!(
        "array \"{name}\" is {dtype}{shape:?}: wanted {}, as the input is",
        input.ty()
    )))
}

/// Rounds arrays of f32 for inputs that take a narrower float, with a note of each: one file serves engines of all types.
pub fn round_to_inputs(
    given: Vec<(String, Tensor)>,
    io: &[IoTensor],
    out: &Printer,
) -> Vec<(String, Tensor)> {
    let wanted = |name: &str| inputs(io).find(|t| t.name == name).map(|t| t.dtype);
    let narrower = |name: &str, x: &Tensor| {
        let to = wanted(name).filter(|t| x.dtype() == DType::F32 && matches!(t, DType::F16 | DType::BF16))?;
        out.note(format!("input \"{name}\" is f32, the engine takes {to}: rounded"));
        Tensor::from_elems(to, x.shape(), &Elems::F(x.to_f64()))
    };
    let rounded = |(name, x): (String, Tensor)| {
        let x = narrower(&name, &x).unwrap_or(x);
        (name, x)
    };
    given.into_iter().map(rounded).collect()
}

/// Asks for exactly the shapes (and of shape inputs, values) of what is given, where nothing else was asked for.
pub fn ask_for_given(request: &mut ShapeRequest, given: &Given, io: &[IoTensor]) {
    request.take_from(io, given.iter().map(|(name, x)| (name.as_str(), x)));
}

fn inputs(io: &[IoTensor]) -> impl Iterator<Item = &IoTensor> {
    io.iter().filter(|t| t.mode == IoMode::Input)
}

fn random(t: &IoTensor, profile: &Profile, rng: &mut Rng) -> Result<Tensor, Failure> {
    let fail = |why: &str| Failure::Input(format!("no random data for \"{}\" ({}): {why}", t.name, t.ty()));
    let dims = match profile.shapes.get(&t.name) {
        Some(r) => r.opt.clone(),
        None => t.dims_or_minus_one(),
    };
    let shape: Option<Vec<usize>> = dims.iter().map(|&d| usize::try_from(d).ok()).collect();
    let shape = shape.ok_or_else(|| fail("its shape is not known; give --shapes"))?;
    let n = kiln_ir::tensor::volume(&shape)
        .filter(|&n| n <= MAX_RANDOM)
        .ok_or_else(|| fail("it is too large"))?;
    let elems = match profile.values.get(&t.name) {
        Some(r) => Elems::I(r.opt.clone()),
        None if t.dtype.is_float() => Elems::F((0..n).map(|_| rng.float(-1.0, 1.0)).collect()),
        None => Elems::I((0..n).map(|_| rng.int(0, 1)).collect()),
    };
    Tensor::from_elems(t.dtype, &shape, &elems).ok_or_else(|| fail("its values do not fit its shape"))
}
