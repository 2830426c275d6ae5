//! Writes a small network with the API (exclusive or, as two layers of neurons), builds it and runs it.
//!
//! `cargo run -p kiln --example network_api`

use kiln::ir::{Dim, TensorType};
use kiln::network::{ActivationKind, ElementwiseOp, MatrixOp};
use kiln::{BuildOptions, DType, DiscoverOptions, Engine, Network, Tensor};
use std::error::Error;

fn floats(shape: &[usize], values: &[f32]) -> Result<Tensor, Box<dyn Error>> {
    Ok(Tensor::f32(shape, values).ok_or("as many values as the shape has")?)
}

/// y = relu(x·[[1, 1], [1, 1]] + [0, −1])·[1, −2] for any number of rows.
pub fn exclusive_or() -> Result<Network, Box<dyn Error>> {
    let mut net = Network::new("exclusive or");
    let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("rows"), 2.into()]))?;
    let w = net.add_weights(Some("hidden.weight"), floats(&[2, 2], &[1.0; 4])?)?;
    let b = net.add_weights(Some("hidden.bias"), floats(&[1, 2], &[0.0, -1.0])?)?;
    let v = net.add_weights(Some("output.weight"), floats(&[2, 1], &[1.0, -2.0])?)?;
    let sums = net.add_matrix_multiply(x, MatrixOp::None, w, MatrixOp::None)?.output(0)?;
    let sums = net.add_elementwise(sums, b, ElementwiseOp::Sum)?.output(0)?;
    let hidden = net.add_activation(sums, ActivationKind::Relu)?.set_name("hidden")?.output(0)?;
    let y = net.add_matrix_multiply(hidden, MatrixOp::None, v, MatrixOp::None)?.output(0)?;
    net.mark_output(y, "y")?;
    Ok(net)
}

/// The network's answers for pairs of numbers.
pub fn answers(pairs: &[[f32; 2]]) -> Result<Vec<f64>, Box<dyn Error>> {
    let (backends, _) = kiln::backends(&DiscoverOptions::linked());
    let mut options = BuildOptions { backend: Some(kiln::REFERENCE.to_owned()), ..BuildOptions::default() };
    options.shapes.min("x", &[1, 2]).opt("x", &[4, 2]).max("x", &[64, 2]);
    let built = kiln::build(&exclusive_or()?, &options, &backends)?;
    let engine = Engine::from_plan(built.plan, backends.get(kiln::REFERENCE)?)?;
    let outputs = engine.create_context()?.run(&[("x", floats(&[pairs.len(), 2], pairs.as_flattened())?)])?;
    Ok(outputs.iter().flat_map(|(_, y)| y.to_f64()).collect())
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let pairs = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]];
    for ([a, b], y) in pairs.iter().zip(answers(&pairs)?) {
        println!("{a} xor {b} = {y}");
    }
    Ok(())
}
