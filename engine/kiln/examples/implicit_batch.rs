//! A network with an implicit batch: its dimensions leave the batch out, and the build is told the greatest one. A second input is
//! the same for all entries.
//!
//! `cargo run -p kiln --example implicit_batch`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::network::{ActivationKind, ElementwiseOp, MatrixOp};
use kiln::{DType, Engine, EngineBuilder, Error, Network, Tensor, TensorType};

/// y = relu(x·w + shift) for each entry x [1, 2] of the batch; w is [2, 3], and `shift` [1, 3] is an input.
pub fn network() -> Result<Network, Error> {
    let mut net = Network::with_implicit_batch("affine");
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 2]))?;
    let shift = net.add_input("shift", TensorType::new(DType::F32, [1, 3]))?;
    net.set_broadcast_across_batch(shift, true)?;
    let w = Tensor::from_slice(&[2, 3], &[1.0f32, 0.0, 1.0, 0.0, 1.0, 1.0])?;
    let w = net.add_constant(w)?.output(0)?;
    let product = net.add_matrix_multiply(x, MatrixOp::None, w, MatrixOp::None)?.output(0)?;
    let sum = net.add_elementwise(product, shift, ElementwiseOp::Sum)?.output(0)?;
    let y = net.add_activation(sum, ActivationKind::Relu)?.output(0)?;
    net.mark_output(y, "y")?;
    Ok(net)
}

/// Runs one engine on each of these batches of pairs.
pub fn results(builder: &EngineBuilder, batches: &[Vec<[f32; 2]>]) -> Result<Vec<Vec<f32>>, Error> {
    let engine = builder.clone().max_batch(4).build(&network()?)?;
    let mut context = engine.create_context()?;
    let shift = Tensor::from_slice(&[1, 1, 3], &[0.0f32, -1.0, 1.0])?;
    let mut all = Vec::new();
    for batch in batches {
        let x = Tensor::from_slice(&[batch.len(), 1, 2], batch.as_flattened())?;
        all.push(context.run(&[("x", x), ("shift", shift.clone())])?.get("y")?.to_vec()?);
    }
    Ok(all)
}

fn main() -> Result<(), Error> {
    let batches = [vec![[1.0, 2.0]], vec![[0.0, 0.0], [3.0, 0.5], [-4.0, 1.0]]];
    for (batch, y) in batches.iter().zip(results(&Engine::builder(), &batches)?) {
        println!("{batch:?} -> {y:?}");
    }
    Ok(())
}
