//! Writes a LeNet with the network API, layer by layer, with trained weights from an archive; builds it and recognizes digits.
//!
//! `cargo run -p kiln --example mnist_api -- [BACKEND]`

#![allow(clippy::print_stdout, reason = "an example prints")]

pub mod digits;

use digits::{Failure, arrays_of, likeliest, scans};
use kiln::network::{ActivationKind, ElementwiseOp, MatrixOp, PoolingKind, WeightsRole};
use kiln::{DType, Dim, Engine, EngineBuilder, Network, Tensor, TensorType};

/// The network: input `data` f32 [batch, 1, 28, 28], output `prob` f32 [batch, 10].
pub fn lenet(weights: &str) -> Result<Network, Failure> {
    let trained = arrays_of(weights)?;
    let w = |name: &str| trained.get(name).cloned().ok_or_else(|| format!("no weights \"{name}\""));
    let mut net = Network::new("lenet");
    let image = TensorType::new(DType::F32, [Dim::host("batch"), 1.into(), 28.into(), 28.into()]);
    let mut x = net.add_input("data", image)?;

    for (name, maps) in [("conv1", 20), ("conv2", 50)] {
        let (kernel, bias) = (w(&format!("{name}.weight"))?, w(&format!("{name}.bias"))?);
        let conv = net.add_convolution_nd(x, maps, &[5, 5], kernel, bias)?.set_name(name)?;
        x = conv.set_stride_nd(&[1, 1])?.output(0)?;
        x = net.add_activation(x, ActivationKind::Relu)?.output(0)?;
        x = net.add_pooling_nd(x, PoolingKind::Max, &[2, 2])?.set_stride_nd(&[2, 2])?.output(0)?;
    }

    // A matrix with a row for each image. The exporter stores the weights transposed.
    let flat = net.add_shuffle(x)?.set_reshape_dimensions(&[-1, 800])?.output(0)?;
    let filter = net.add_constant(w("fc1.weight")?)?.set_weights_name(WeightsRole::Constant, "fc1.weight")?;
    let filter = filter.output(0)?;
    let product = net.add_matrix_multiply(flat, MatrixOp::None, filter, MatrixOp::Transpose)?.output(0)?;
    // The bias is the same for all images.
    let row = w("fc1.bias")?.reshaped(&[1, 128]).ok_or("fc1.bias has not 128 numbers")?;
    let bias = net.add_constant(row)?.output(0)?;
    let sum = net.add_elementwise(product, bias, ElementwiseOp::Sum)?.output(0)?;
    let hidden = net.add_activation(sum, ActivationKind::Relu)?.output(0)?;

    let deep = net.add_shuffle(hidden)?.set_reshape_dimensions(&[-1, 128, 1, 1])?.output(0)?;
    let last = net.add_fully_connected(deep, 10, w("fc2.weight")?, w("fc2.bias")?)?.set_name("fc2")?;
    let last = last.output(0)?;
    let logits = net.add_shuffle(last)?.set_reshape_dimensions(&[-1, 10])?.output(0)?;
    let prob = net.add_softmax(logits)?.set_axes(1 << 1)?.output(0)?;
    net.set_tensor_name(prob, "prob")?;
    net.mark_output(prob, "prob")?;
    Ok(net)
}

/// Probabilities of the digits on images [count, 1, 28, 28].
pub fn probabilities(builder: &EngineBuilder, images: Tensor) -> Result<Tensor, Failure> {
    let builder = builder.clone().shapes("data", &[1, 1, 28, 28], &[16, 1, 28, 28], &[64, 1, 28, 28]);
    let engine = builder.build(&lenet("lenet_a_weights.npz")?)?;
    Ok(engine.run([("data", images)])?.get("prob")?.clone())
}

fn main() -> Result<(), Failure> {
    let mut builder = Engine::builder();
    if let Some(backend) = std::env::args().nth(1) {
        builder = builder.backend(backend);
    }
    let (images, labels) = scans(64)?;
    let found = likeliest(&probabilities(&builder, images)?)?;
    let right = found.iter().zip(&labels).filter(|(a, b)| a == b).count();
    println!("{right} of {} digits", labels.len());
    Ok(())
}
