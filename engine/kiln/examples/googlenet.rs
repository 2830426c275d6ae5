//! Builds GoogLeNet for the types that flags permit, and compares what it says of a picture with another runtime's answer in f32.
//! `scripts/setup.sh` makes the model and the answer: the topology that ONNX ships, with random weights.
//!
//! `cargo run --release -p kiln --example googlenet -- [--fp16] [--bf16] [--int8] [BACKEND]`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::calibration::{Algorithm, Calibrator};
use kiln::{BuildConfig, DType, Engine, EngineBuilder, Tensor, arrays};
use std::path::{Path, PathBuf};

/// A failed step.
pub type Failure = Box<dyn std::error::Error>;

/// The model, a picture, and the answer.
pub struct Sample {
    model: PathBuf,
    input: (String, Tensor),
    answer: Vec<f32>,
}

impl Sample {
    /// Reads the model `NAME.onnx` with `NAME.npz`.
    pub fn read(name: &str) -> Result<Sample, Failure> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/topologies");
        let model = folder.join(format!("{name}.onnx"));
        if !model.is_file() {
            return Err(format!("{} is missing: run scripts/setup.sh", model.display()).into());
        }
        let (mut input, mut answer) = (None, Vec::new());
        for (key, array) in kiln_npz::read_npz(folder.join(format!("{name}.npz")))? {
            match key.split_once(':') {
                Some(("in", n)) => input = Some((n.to_owned(), arrays::tensor(n, array)?)),
                Some(("out", "logits")) => answer = arrays::tensor(&key, array)?.to_vec::<f32>()?,
                _ => (),
            }
        }
        Ok(Sample { model, input: input.ok_or("there is no input")?, answer })
    }

    /// Settings that permit these types beside f32. Codes of 8 bits need ranges, which are measured on the picture.
    pub fn settings(&self, builder: &EngineBuilder, types: &[DType]) -> Result<BuildConfig, Failure> {
        let mut config = BuildConfig { reduced: types.to_vec(), ..BuildConfig::default() };
        if types.contains(&DType::I8) {
            let mut calibrator = Calibrator::new(self.model.as_path(), builder, Algorithm::MinMax)?;
            calibrator.add(&[(self.input.0.as_str(), self.input.1.clone())])?;
            config.ranges = calibrator.table()?.ranges();
        }
        Ok(config)
    }

    /// Builds the model by these settings and runs it. Returns the correlation of its numbers with the answer, and the engine.
    pub fn compare(&self, builder: &EngineBuilder, config: BuildConfig) -> Result<(f64, Engine), Failure> {
        let engine = builder.clone().config(config).build(self.model.as_path())?;
        let outputs = engine.run([(self.input.0.as_str(), self.input.1.clone())])?;
        Ok((correlation(&outputs.get("logits")?.to_vec::<f32>()?, &self.answer), engine))
    }
}

/// The correlation of two lists of numbers: 1 if they are the same up to a scale.
fn correlation(a: &[f32], b: &[f32]) -> f64 {
    let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len().max(1) as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        a.iter().zip(b).map(|(&x, &y)| f(f64::from(x) - ma, f64::from(y) - mb)).sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

fn main() -> Result<(), Failure> {
    let (mut builder, mut types) = (Engine::builder(), Vec::new());
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--fp16" => types.push(DType::F16),
            "--bf16" => types.push(DType::BF16),
            "--int8" => types.push(DType::I8),
            backend => builder = builder.backend(backend),
        }
    }
    let sample = Sample::read("inception_v1")?;
    let config = sample.settings(&builder, &types)?;
    let (correlation, engine) = sample.compare(&builder, config)?;
    println!("{}: correlation with the answer {correlation:.6}", engine.target().device);
    Ok(())
}
