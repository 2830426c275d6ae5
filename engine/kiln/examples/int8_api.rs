//! Runs a LeNet on codes of 8 bits without calibration: the ranges of its tensors are read from a file. One layer is asked to stay in
//! f32, and another one to compute on codes, whatever the times are.
//!
//! `cargo run -p kiln --example int8_api -- [BACKEND]`

#![allow(clippy::print_stdout, reason = "an example prints")]

pub mod digits;

use digits::{Failure, likeliest, scans};
use kiln::selection::StepReport;
use kiln::{BuildConfig, Constraints, DType, Engine, EngineBuilder, LayerTypes, Narrowing, Tensor};
use std::collections::BTreeMap;

/// The least and the greatest value of each tensor of the model, by name.
pub fn ranges() -> Result<BTreeMap<String, [f32; 2]>, Failure> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/expected.json");
    let mut all: serde_json::Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let of: BTreeMap<String, [f32; 2]> =
        serde_json::from_value(all["lenet_a_activation_ranges_on_calib"].take())?;
    // A tensor of an imported model has the name of the node that makes it.
    let own = |(name, range): (String, [f32; 2])| (name.trim_end_matches("_output_0").to_owned(), range);
    Ok(of.into_iter().map(own).collect())
}

/// Settings: codes of 8 bits by these ranges, f32 for the layers `wide`, and codes for the layers `narrow`.
pub fn settings(ranges: BTreeMap<String, [f32; 2]>, wide: &str, narrow: &str) -> BuildConfig {
    let of = |layers: &str, dtype| LayerTypes {
        layers: layers.to_owned(),
        precision: Some(dtype),
        ..LayerTypes::default()
    };
    BuildConfig {
        reduced: vec![DType::I8],
        ranges,
        // Without it layers run on codes only where that is faster.
        narrowing: Narrowing::Everywhere,
        layer_types: vec![of(wide, DType::F32), of(narrow, DType::I8)],
        // A build that cannot do what is asked fails.
        constraints: Constraints::Obey,
        ..BuildConfig::default()
    }
}

/// Whether a layer of an engine reads codes.
fn reads_codes(step: &StepReport) -> bool {
    step.inputs.iter().any(|t| t.dtype == DType::I8)
}

/// The digits on the images, and the layers that read codes of 8 bits.
pub fn recognized(
    builder: &EngineBuilder,
    config: BuildConfig,
    images: Tensor,
) -> Result<(Vec<i64>, Vec<String>), Failure> {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    let shape: Vec<i64> = images.shape().iter().map(|&d| d as i64).collect();
    let engine = builder.clone().config(config).shape("input", &shape).build(model)?;
    let steps = engine.report().map_or(&[][..], |r| &r.steps);
    let codes = steps.iter().filter(|s| reads_codes(s)).map(|s| s.name.clone()).collect();
    Ok((likeliest(engine.run([("input", images)])?.get("logits")?)?, codes))
}

fn main() -> Result<(), Failure> {
    let mut builder = Engine::builder();
    if let Some(backend) = std::env::args().nth(1) {
        builder = builder.backend(backend);
    }
    let (images, labels) = scans(64)?;
    let (found, codes) = recognized(&builder, settings(ranges()?, "/conv1/Conv", "/fc1/Gemm"), images)?;
    let right = found.iter().zip(&labels).filter(|(a, b)| a == b).count();
    println!("{right} of {} digits; on codes of 8 bits: {codes:?}", labels.len());
    Ok(())
}
