//! Loads an ONNX model, builds an engine for the best device here, and runs it.
//!
//! `cargo run --release -p kiln --example hello`

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
pub fn main() -> Result<(), kiln::Error> {
    let engine = kiln::Engine::open("tests/data/digits/lenet_a.onnx")?;
    let image = kiln::Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784])?;
    let outputs = engine.run([("input", image)])?;
    println!("{}: {:?}", engine.backend(), outputs.get("logits")?.to_vec::<f32>()?);
    Ok(())
}
