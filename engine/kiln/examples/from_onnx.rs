//! Runs an ONNX model, a plan or a network as text once, on inputs of zeros, on the best device here.
//! Prints the backend, the device and the outputs.
//!
//! `cargo run --release -p kiln --example from_onnx -- MODEL [BACKEND]`; dimensions that the model leaves open are 1. Plug-ins that
//! cargo built are found: `cargo build --release -p kiln-backend-cuda -p kiln-backend-wgpu`.

use kiln::{DiscoverOptions, Engine, EngineBuilder, Error, IoMode, Outputs, Tensor};
use std::path::{Path, PathBuf};

/// Runs the model on zeros.
pub fn run_on_zeros(model: &Path, builder: &EngineBuilder) -> Result<(Engine, Outputs), Error> {
    let engine = builder.build(model)?;
    let mut inputs = Vec::new();
    for input in engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input) {
        let one = |d: i64| usize::try_from(d).unwrap_or(1);
        let shape: Vec<usize> = input.dims_or_minus_one().into_iter().map(one).collect();
        inputs.push((input.name.as_str(), Tensor::zeros(input.dtype, &shape)?));
    }
    let outputs = engine.run(inputs)?;
    Ok((engine, outputs))
}

/// The folder that cargo puts plug-ins into: the one above that of the examples.
fn plugins() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.parent()?.to_owned())
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: from_onnx MODEL [BACKEND]")?;
    let mut discover = DiscoverOptions::default();
    discover.search = discover.search.with(plugins());
    let mut builder = Engine::builder().plugins(discover);
    if let Some(backend) = args.next() {
        builder = builder.backend(backend);
    }
    let (engine, outputs) = run_on_zeros(Path::new(&model), &builder)?;
    println!("{} on {} ({})", engine.name(), engine.backend(), engine.target().device);
    for (name, value) in outputs {
        println!("{name}: {value:?}");
    }
    Ok(())
}
