//! Shows the layers of an engine: a line for each, JSON, and dimensions at the shapes that a context has.
//!
//! `cargo run -p kiln --example inspector -- [MODEL]`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::{Engine, EngineBuilder, Error, Verbosity};

/// Dimensions of a tensor by name, as JSON has them.
pub fn dimensions(json: &serde_json::Value, tensor: &str) -> Option<Vec<i64>> {
    let layers = json["Layers"].as_array()?;
    let tensors =
        layers.iter().flat_map(|l| ["Inputs", "Outputs"].map(|k| &l[k])).filter_map(|v| v.as_array());
    let found = tensors.flatten().find(|t| t["Name"] == tensor)?;
    found["Dimensions"].as_array()?.iter().map(serde_json::Value::as_i64).collect()
}

/// An engine as its inspector describes it.
pub struct Inspected {
    /// A line for each layer.
    pub lines: Vec<String>,
    /// All about the engine as it was built.
    pub json: String,
    /// All about it at a batch of 4.
    pub at_shapes: String,
}

/// Builds a model of the input `input` [batch, 1, 28, 28], and inspects its engine.
pub fn inspected(model: &str, builder: &EngineBuilder, verbosity: Verbosity) -> Result<Inspected, Error> {
    let builder = builder.clone().shapes("input", &[1, 1, 28, 28], &[4, 1, 28, 28], &[8, 1, 28, 28]);
    let engine = builder.verbosity(verbosity).build(model)?;
    let table = engine.inspector();
    let lines = (0..table.layers.len()).filter_map(|i| table.line(i)).collect();
    // Dimensions that vary are -1 until a context has shapes.
    let mut context = engine.create_context()?;
    context.set_input_shape("input", &[4, 1, 28, 28])?;
    let at_shapes = context.inspector()?.to_json();
    Ok(Inspected { lines, json: table.to_json(), at_shapes })
}

fn main() -> Result<(), Error> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    let model = std::env::args().nth(1).unwrap_or_else(|| own.to_owned());
    for verbosity in [Verbosity::None, Verbosity::Names, Verbosity::Detailed] {
        let found = inspected(&model, &Engine::builder(), verbosity)?;
        println!("{verbosity:?}:\n{}", found.lines.join("\n"));
        if verbosity == Verbosity::Detailed {
            println!("{}", found.at_shapes);
        }
    }
    Ok(())
}
