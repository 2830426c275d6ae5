//! Recognizes digits on images of any size with two engines. One of dynamic shapes scales images to 28×28 pixels; the other one
//! has two profiles, for one image and for many, each run by a context of its own.
//!
//! `cargo run -p kiln --example dynamic_shapes -- [BACKEND]`

#![allow(clippy::print_stdout, reason = "an example prints")]

pub mod digits;

use digits::{Failure, likeliest, scans};
use kiln::network::InterpolationMode;
use kiln::{DType, Engine, EngineBuilder, Network, ShapeRequest, Tensor, TensorType};

/// Scales images f32 [n, 1, height, width] to [n, 1, 28, 28].
pub fn preprocessor() -> Result<Network, Failure> {
    let mut net = Network::new("preprocessor");
    // Dimensions of -1 are known when the network runs.
    let images = net.add_input("images", TensorType::new(DType::F32, [-1, 1, -1, -1]))?;
    let one = net.add_shape(images)?.output(0)?;
    let count = net.add_slice(one, &[0], &[1], &[1])?.output(0)?;
    let size = net.add_weights(None, Tensor::from_slice(&[3], &[1i64, 28, 28])?)?;
    let wanted = net.add_concatenation(&[count, size])?.set_axis(0)?.output(0)?;
    let resize = net.add_resize(images)?.set_resize_mode(InterpolationMode::Linear)?.set_input(1, wanted)?;
    let scaled = resize.output(0)?;
    net.mark_output(scaled, "scaled")?;
    Ok(net)
}

/// Preprocessor and classifier.
pub struct Reader {
    preprocessor: Engine,
    classifier: Engine,
}

impl Reader {
    /// Builds both engines.
    pub fn new(builder: &EngineBuilder) -> Result<Reader, Failure> {
        let sizes = builder.clone().shapes("images", &[1, 1, 8, 8], &[1, 1, 56, 56], &[32, 1, 112, 112]);
        let preprocessor = sizes.build(&preprocessor()?)?;
        let (mut single, mut many) = (ShapeRequest::default(), ShapeRequest::default());
        single.fixed("input", &[1, 1, 28, 28]);
        many.min("input", &[2, 1, 28, 28]).opt("input", &[16, 1, 28, 28]).max("input", &[32, 1, 28, 28]);
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
        let classifier = builder.clone().profile(single).profile(many).build(model)?;
        Ok(Reader { preprocessor, classifier })
    }

    /// The digits on each set of images, [n, 1, height, width] with up to 32 images of up to 112×112 pixels.
    pub fn read(&self, sets: &[Tensor]) -> Result<Vec<Vec<i64>>, Failure> {
        // One context for each profile; what a context allocated serves all its runs.
        let mut single = self.classifier.create_context()?;
        single.set_profile(Some(0))?;
        let mut many = self.classifier.create_context()?;
        many.set_profile(Some(1))?;
        let mut scaling = self.preprocessor.create_context()?;
        let mut found = Vec::new();
        for images in sets {
            let scaled = scaling.run(&[("images", images.clone())])?.get("scaled")?.clone();
            let context = if scaled.shape()[0] == 1 { &mut single } else { &mut many };
            context.set_input_shape("input", scaled.shape())?;
            for (name, ty) in context.infer_shapes()? {
                println!("{:?} -> {name} {ty}", images.shape());
            }
            found.push(likeliest(context.run(&[("input", scaled)])?.get("logits")?)?);
        }
        Ok(found)
    }
}

/// Each pixel repeated `times` times in both directions.
pub fn enlarged(images: &Tensor, times: usize) -> Result<Tensor, Failure> {
    let (count, pixels) = (images.shape()[0], images.to_vec::<f32>()?);
    let side = 28 * times;
    let at = |i: usize| {
        let (image, y, x) = (i / (side * side), i / side % side, i % side);
        pixels[(image * 28 + y / times) * 28 + x / times]
    };
    let large: Vec<f32> = (0..count * side * side).map(at).collect();
    Ok(Tensor::from_slice(&[count, 1, side, side], &large)?)
}

fn main() -> Result<(), Failure> {
    let mut builder = Engine::builder();
    if let Some(backend) = std::env::args().nth(1) {
        builder = builder.backend(backend);
    }
    let reader = Reader::new(&builder)?;
    let ((one, label), (some, labels)) = (scans(1)?, scans(8)?);
    let found = reader.read(&[enlarged(&one, 3)?, some.clone(), enlarged(&some, 2)?])?;
    println!("wanted {label:?}, {labels:?}; found {found:?}");
    Ok(())
}
