//! Recognizes digits with engines that read images in several types and formats, packed as they are in memory.
//!
//! `cargo run -p kiln --example io_formats`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::{DType, Elems, EngineBuilder, Error, IoSpec, Tensor, TensorFormat, arrays, pack};
use std::path::Path;

/// A failed step.
type Failure = Box<dyn std::error::Error>;

/// Types and formats of the images.
pub const FORMATS: [(DType, TensorFormat); 8] = [
    (DType::F32, TensorFormat::Linear),
    (DType::F32, TensorFormat::Chw32),
    (DType::F32, TensorFormat::Hwc),
    (DType::F16, TensorFormat::Linear),
    (DType::F16, TensorFormat::Chw2),
    (DType::F16, TensorFormat::Hwc8),
    (DType::I8, TensorFormat::Chw4),
    (DType::I8, TensorFormat::Chw32),
];

/// Codes of 8 bits stand for pixels between 0 and 1.
const PIXELS: [f32; 2] = [0.0, 1.0];

/// The first test images `[count, 1, 28, 28]`, and the digits on them.
pub fn digits(folder: &Path, count: usize) -> Result<(Tensor, Vec<i64>), Failure> {
    let mut all = kiln_npz::read_npz(folder.join("digits_test.npz"))?;
    let mut take = |name: &str| {
        let array = all.remove(name).ok_or_else(|| format!("there is no array \"{name}\""))?;
        Ok::<Tensor, Failure>(arrays::tensor(name, array)?)
    };
    let (pixels, labels) = (take("images")?.to_vec::<f32>()?, take("labels")?.to_vec::<i64>()?);
    let few = pixels.get(..count * 28 * 28).ok_or("there are fewer images")?;
    Ok((Tensor::from_slice(&[count, 1, 28, 28], few)?, labels.into_iter().take(count).collect()))
}

/// The images in another type.
fn converted(images: &Tensor, dtype: DType) -> Option<Tensor> {
    let step = if dtype == DType::I8 { f64::from(PIXELS[1]) / 127.0 } else { 1.0 };
    let scaled = images.to_f64().into_iter().map(|x| if step == 1.0 { x } else { (x / step).round() });
    Tensor::from_elems(dtype, images.shape(), &Elems::F(scaled.collect()))
}

/// Builds an engine that reads images in this type and format, and runs it on the images as they are in memory then. Returns
/// the digits that it sees.
pub fn recognized(
    model: &Path,
    images: &Tensor,
    (dtype, format): (DType, TensorFormat),
    builder: &EngineBuilder,
) -> Result<Vec<i64>, Error> {
    let mut config = kiln::BuildConfig { estimates: true, ..kiln::BuildConfig::default() };
    config.ranges.insert("input".to_owned(), PIXELS);
    let dims: Vec<i64> = images.shape().iter().map(|&d| d as i64).collect();
    let spec = IoSpec { dtype: Some(dtype), formats: Some(format.into()) };
    let engine = builder.clone().config(config).io("input", spec).shape("input", &dims).build(model)?;
    let input = engine.io_tensor("input")?;
    println!("{}, {:?} bytes", input.format_description(), input.bytes(images.shape()));
    let memory = match converted(images, dtype) {
        Some(own) => pack(&own, format)?,
        None => Tensor::zeros(dtype, &[0])?,
    };
    let mut context = engine.create_context()?;
    context.set_packed_input("input", images.shape(), memory.shared_bytes())?;
    context.enqueue()?;
    let logits: Vec<f32> = context.outputs()?.get("logits")?.to_vec()?;
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i64;
    Ok(logits.chunks(10).map(best).collect())
}

fn main() -> Result<(), Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits");
    let (images, labels) = digits(&folder, 100)?;
    for format in FORMATS {
        let found = recognized(&folder.join("lenet_a.onnx"), &images, format, &kiln::Engine::builder())?;
        let right = found.iter().zip(&labels).filter(|(a, b)| a == b).count();
        println!("{} in {}: {right} of {} digits", format.0, format.1, labels.len());
    }
    Ok(())
}
