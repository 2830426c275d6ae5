//! Builds an engine from an ONNX model, runs it on zeros and prints its outputs.
//!
//! `cargo run --release -p kiln --example from_onnx -- MODEL.onnx [BACKEND]`; dimensions that the model leaves open are 1.

use kiln::{BuildOptions, DiscoverOptions, Engine, IoMode, Tensor};
use std::error::Error;
use std::path::Path;

/// Builds and runs. Outputs by name.
pub fn build_and_run(model: &Path, backend: &str) -> Result<Vec<(String, Tensor)>, Box<dyn Error>> {
    let (backends, _) = kiln::backends(&DiscoverOptions::default());
    let options = BuildOptions { backend: Some(backend.to_owned()), ..BuildOptions::default() };
    let built = kiln::build(model, &options, &backends)?;
    let engine = Engine::from_plan(built.plan, backends.get(&built.report.backend)?)?;
    let mut context = engine.create_context()?;
    for input in engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input) {
        let shape: Vec<usize> =
            input.dims_or_minus_one().into_iter().map(|d| usize::try_from(d).unwrap_or(1)).collect();
        context.set_input(&input.name, Tensor::zeros(input.dtype, &shape)?)?;
    }
    context.enqueue()?;
    Ok(context.outputs()?)
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: from_onnx MODEL.onnx [BACKEND]")?;
    let backend = args.next().unwrap_or_else(|| kiln::REFERENCE.to_owned());
    for (name, value) in build_and_run(Path::new(&model), &backend)? {
        println!("{name}: {value:?}");
    }
    Ok(())
}
