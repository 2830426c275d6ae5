//! Builds an engine that can be refitted, replaces its weights while a context exists, and saves it.
//!
//! ```text
//! cargo run -p kiln --example refit -- model.onnx weights.npz refitted.kiln
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::{Engine, EngineBuilder, Error, IoMode, Refit, Tensor, weights};
use std::path::Path;

/// Inputs of zeros, unknown dimensions 1.
fn zeros(engine: &Engine) -> Result<Vec<(&str, Tensor)>, Error> {
    let inputs = engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input);
    let zero = |t: &kiln::IoTensor| {
        let shape: Vec<usize> =
            t.dims_or_minus_one().iter().map(|&d| usize::try_from(d).unwrap_or(1)).collect();
        Tensor::zeros(t.dtype, &shape)
    };
    inputs.map(|t| Ok((t.name.as_str(), zero(t)?))).collect()
}

/// Builds a model, and replaces its engine's weights by those of a file while a context exists. Returns whether its outputs
/// changed, and the engine.
pub fn refitted(model: &str, file: &str, builder: &EngineBuilder) -> Result<(bool, Engine), Error> {
    let engine = builder.clone().refit(Refit::All).build(model)?;
    let mut context = engine.create_context()?;
    let before = context.run(&zeros(&engine)?)?;
    let mut refitter = engine.refitter()?;
    for (layer, role) in refitter.get_all_roles() {
        let w = refitter.prototype_of(&layer, role)?;
        println!("{layer} ({role}): {} {}{:?}", w.name, w.dtype, w.shape);
    }
    let found = weights::set_from_file(&mut refitter, file)?;
    println!("{} weights from {file}, missing: {:?}", found.set.len(), refitter.get_missing());
    refitter.refit()?;
    // The context goes on with the new weights.
    let after = context.run(&zeros(&engine)?)?;
    let changed = before.iter().zip(after.iter()).any(|(a, b)| a.1 != b.1);
    Ok((changed, engine))
}

fn main() -> Result<(), Error> {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits");
    let mut args = std::env::args().skip(1);
    let model = args.next().unwrap_or_else(|| format!("{data}/lenet_a.onnx"));
    let file = args.next().unwrap_or_else(|| format!("{data}/lenet_b_weights.npz"));
    let (changed, engine) = refitted(&model, &file, &Engine::builder())?;
    println!("outputs changed: {changed}");
    if let Some(path) = args.next() {
        engine.plan().write_file(Path::new(&path))?;
        println!("wrote {path}");
    }
    Ok(())
}
