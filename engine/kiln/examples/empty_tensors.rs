//! Tensors without elements: a batch of no images, a concatenation with nothing, sums and products of nothing.
//!
//! `cargo run -p kiln --example empty_tensors`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::network::{ElementwiseOp, ReduceOp};
use kiln::{DType, Dim, Engine, EngineBuilder, Error, Network, Tensor, TensorType};
use std::collections::BTreeMap;

/// Shape and elements by the name of an output.
pub type Results = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Joins a [x, y, z] and b [x, y, w]. Adds rows [1, y, z] to columns [x, 1, z]. Reduces a over its last axis.
pub fn network() -> Result<Network, Error> {
    let mut net = Network::new("empty");
    let of = |dims: [Dim; 3]| TensorType::new(DType::F32, dims);
    let [x, y, z, w] = ["x", "y", "z", "w"].map(Dim::host);
    let a = net.add_input("a", of([x.clone(), y.clone(), z.clone()]))?;
    let b = net.add_input("b", of([x.clone(), y.clone(), w]))?;
    let row = net.add_input("row", of([1.into(), y, z.clone()]))?;
    let column = net.add_input("column", of([x, 1.into(), z]))?;
    let joined = net.add_concatenation(&[a, b])?.set_axis(2)?.output(0)?;
    let spread = net.add_elementwise(row, column, ElementwiseOp::Sum)?.output(0)?;
    let sum = net.add_reduce(a, ReduceOp::Sum, 0b100, false)?.output(0)?;
    let product = net.add_reduce(a, ReduceOp::Prod, 0b100, false)?.output(0)?;
    for (tensor, name) in [(joined, "joined"), (spread, "spread"), (sum, "sum"), (product, "product")] {
        net.mark_output(tensor, name)?;
    }
    Ok(net)
}

/// Runs the network with dimensions [x, y, z, w], each from 0 to 4; all inputs are twos.
pub fn results(builder: &EngineBuilder, cases: &[[usize; 4]]) -> Result<Vec<Results>, Error> {
    let mut builder = builder.clone();
    let limits = [("a", [4, 4, 4], [0, 0, 0]), ("b", [4, 4, 4], [0, 0, 0])];
    let more = [("row", [1, 4, 4], [1, 0, 0]), ("column", [4, 1, 4], [0, 1, 0])];
    for (name, most, least) in limits.into_iter().chain(more) {
        builder = builder.shapes(name, &least, &most, &most);
    }
    let engine = builder.build(&network()?)?;
    let mut context = engine.create_context()?;
    let mut all = Vec::new();
    for &[x, y, z, w] in cases {
        let twos = |shape: [usize; 3]| Tensor::from_slice(&shape, &vec![2.0f32; shape.iter().product()]);
        let inputs = [
            ("a", twos([x, y, z])?),
            ("b", twos([x, y, w])?),
            ("row", twos([1, y, z])?),
            ("column", twos([x, 1, z])?),
        ];
        let outputs = context.run(&inputs)?;
        let one = |(name, t): &(String, Tensor)| Ok((name.clone(), (t.shape().to_vec(), t.to_vec::<f32>()?)));
        all.push(outputs.iter().map(one).collect::<Result<Results, Error>>()?);
    }
    Ok(all)
}

fn main() -> Result<(), Error> {
    let cases = [[2, 1, 0, 3], [0, 2, 1, 1], [1, 2, 3, 0]];
    for (case, outputs) in cases.iter().zip(results(&Engine::builder(), &cases)?) {
        println!("[x, y, z, w] = {case:?}:");
        for (name, (shape, numbers)) in outputs {
            println!("  {name} {shape:?} {numbers:?}");
        }
    }
    Ok(())
}
