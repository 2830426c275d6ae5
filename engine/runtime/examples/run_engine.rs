//! Loads an engine file and runs it: all that a program which ships engines needs. It links the runtime and the
//! reference backend; another backend is looked for and loaded where the engine was built for it.
//!
//! `cargo run --release -p kiln-runtime --example run_engine -- ENGINE.kiln [INPUT=FILE]...`, each file holding the
//! elements as they lie in memory. Inputs that are not given are zeros.

use kiln_backend_cpu::Cpu;
use kiln_ir::Tensor;
use kiln_plan::PlanHeader;
use kiln_runtime::plugin::{Policy, Search, find};
use kiln_runtime::{Backends, Engine, IoMode, IoTensor};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Loads an engine on the backend that it was built for.
pub fn open(path: &Path) -> Result<Engine, Box<dyn Error>> {
    let mut backends = Backends::new();
    backends.register(Arc::new(Cpu::new()))?;
    let wanted = PlanHeader::peek(path)?.target.backend;
    if backends.get(&wanted).is_err() {
        let plugin = find(&wanted, &Search::from_env(), &Policy::default())?;
        backends.register(Arc::new(plugin.backend()?))?;
    }
    Ok(Engine::load(path, &backends)?)
}

/// The shape that an input usually has: that of the first profile, or its only one.
fn usual_shape(engine: &Engine, input: &IoTensor) -> Option<Vec<usize>> {
    let range = engine.profiles().first().and_then(|p| p.shapes.get(&input.name));
    let dims = range.map_or_else(|| input.dims_or_minus_one(), |r| r.opt.clone());
    dims.into_iter().map(|d| usize::try_from(d).ok()).collect()
}

fn tensor(engine: &Engine, input: &IoTensor, file: Option<&PathBuf>) -> Result<Tensor, Box<dyn Error>> {
    let shape = usual_shape(engine, input).ok_or_else(|| format!("{} has no usual shape", input.name))?;
    let Some(file) = file else { return Ok(Tensor::zeros(input.dtype, &shape)?) };
    let wrong = || format!("{} is not {}{shape:?}", file.display(), input.dtype);
    Ok(Tensor::from_bytes(input.dtype, &shape, std::fs::read(file)?).ok_or_else(wrong)?)
}

/// Runs an engine once on the given files. Outputs by name.
pub fn run(engine: &Engine, files: &[(String, PathBuf)]) -> Result<Vec<(String, Tensor)>, Box<dyn Error>> {
    let inputs: Vec<&IoTensor> = engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input).collect();
    if let Some((name, _)) = files.iter().find(|(n, _)| inputs.iter().all(|i| i.name != *n)) {
        return Err(format!("the engine has no input {name}").into());
    }
    let mut context = engine.create_context()?;
    for input in inputs {
        let file = files.iter().find(|(n, _)| *n == input.name).map(|(_, f)| f);
        context.set_input(&input.name, tensor(engine, input, file)?)?;
    }
    context.enqueue()?;
    Ok(context.outputs()?.into_vec())
}

#[allow(clippy::print_stdout, reason = "it is what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: run_engine ENGINE.kiln [INPUT=FILE]...")?;
    let file = |a: String| a.split_once('=').map(|(n, f)| (n.to_owned(), PathBuf::from(f)));
    let files: Vec<_> = args.map(file).collect::<Option<_>>().ok_or("wanted INPUT=FILE")?;
    let engine = open(Path::new(&path))?;
    let start = Instant::now();
    let outputs = run(&engine, &files)?;
    println!("{} on {}: first run {:.2?}", engine.name(), engine.backend(), start.elapsed());
    for (name, value) in outputs {
        let first: Vec<f64> = value.to_f64().into_iter().take(8).collect();
        println!("{name}: {}{:?} {first:.4?}", value.dtype(), value.shape());
    }
    Ok(())
}
