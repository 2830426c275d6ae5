//! Writes a small network with the API (exclusive or, as two layers of neurons), builds it and runs it.
//!
//! `cargo run -p kiln --example network_api`

use kiln::network::{ActivationKind, ElementwiseOp, MatrixOp};
use kiln::{DType, Dim, Engine, Error, Network, Tensor, TensorType};

/// y = relu(x·[[1, 1], [1, 1]] + [0, −1])·[1, −2] for any number of rows.
pub fn exclusive_or() -> Result<Network, Error> {
    let mut net = Network::new("exclusive or");
    let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("rows"), 2.into()]))?;
    let w = net.add_weights(Some("hidden.weight"), Tensor::from_slice(&[2, 2], &[1.0f32; 4])?)?;
    let b = net.add_weights(Some("hidden.bias"), Tensor::from_slice(&[1, 2], &[0.0f32, -1.0])?)?;
    let v = net.add_weights(Some("output.weight"), Tensor::from_slice(&[2, 1], &[1.0f32, -2.0])?)?;
    let sums = net.add_matrix_multiply(x, MatrixOp::None, w, MatrixOp::None)?.output(0)?;
    let sums = net.add_elementwise(sums, b, ElementwiseOp::Sum)?.output(0)?;
    let hidden = net.add_activation(sums, ActivationKind::Relu)?.set_name("hidden")?.output(0)?;
    let y = net.add_matrix_multiply(hidden, MatrixOp::None, v, MatrixOp::None)?.output(0)?;
    net.mark_output(y, "y")?;
    Ok(net)
}

/// The network's answers for pairs of numbers, on the CPU.
pub fn answers(pairs: &[[f32; 2]]) -> Result<Vec<f32>, Error> {
    let builder = Engine::builder().backend(kiln::CPU).shapes("x", &[1, 2], &[4, 2], &[64, 2]);
    let engine = builder.build(&exclusive_or()?)?;
    let x = Tensor::from_slice(&[pairs.len(), 2], pairs.as_flattened())?;
    Ok(engine.run([("x", x)])?.get("y")?.to_vec()?)
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Error> {
    let pairs = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]];
    for ([a, b], y) in pairs.iter().zip(answers(&pairs)?) {
        println!("{a} xor {b} = {y}");
    }
    Ok(())
}
