//! Conditionals of the network API: a sum or a difference, and a loop that adds only even numbers.
//!
//! `cargo run -p kiln --example conditional`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::network::{ElementwiseOp, LoopOutputKind, TripLimitKind};
use kiln::{DType, Dim, Engine, EngineBuilder, Error, Network, Tensor, TensorType};

/// output = if condition { x + y } else { x − y }, for vectors of five numbers.
pub fn sum_or_difference() -> Result<Network, Error> {
    let mut net = Network::new("sum or difference");
    let condition = net.add_input("condition", TensorType::new(DType::Bool, [0i64; 0]))?;
    let x = net.add_input("x", TensorType::new(DType::F32, [5]))?;
    let y = net.add_input("y", TensorType::new(DType::F32, [5]))?;
    let choice = net.add_if_conditional()?;
    net.set_condition(choice, condition)?;
    // Layers that depend on these are computed only in the branch that is taken.
    let x = net.add_if_input(choice, x)?.output(0)?;
    let y = net.add_if_input(choice, y)?.output(0)?;
    let sum = net.add_elementwise(x, y, ElementwiseOp::Sum)?.set_name("sum")?.output(0)?;
    let difference = net.add_elementwise(x, y, ElementwiseOp::Sub)?.set_name("difference")?.output(0)?;
    let output = net.add_if_output(choice, sum, difference)?.output(0)?;
    net.mark_output(output, "output")?;
    Ok(net)
}

/// The sum of the even ones among `items` i32 [n], by a conditional inside of a loop.
pub fn sum_even() -> Result<Network, Error> {
    let mut net = Network::new("sum of even items");
    let number = |n: i32| Tensor::from_slice(&[], &[n]);
    let items = net.add_input("items", TensorType::new(DType::I32, [Dim::host("n")]))?;
    let (zero, two) = (net.add_weights(None, number(0)?)?, net.add_weights(None, number(2)?)?);
    let count = net.add_shape(items)?.output(0)?;
    let count = net.add_shuffle(count)?.set_reshape_dimensions(&[])?.output(0)?;

    let each = net.add_loop()?;
    net.add_trip_limit(each, count, TripLimitKind::Count)?;
    let item = net.add_iterator(each, items, 0, false)?.output(0)?;
    let total = net.add_recurrence(each, zero)?;
    let (total, now) = (total.id(), total.output(0)?);

    // even = item == item/2·2
    let half = net.add_elementwise(item, two, ElementwiseOp::FloorDiv)?.output(0)?;
    let twice = net.add_elementwise(half, two, ElementwiseOp::Prod)?.output(0)?;
    let even = net.add_elementwise(item, twice, ElementwiseOp::Equal)?.output(0)?;
    let choice = net.add_if_conditional()?;
    net.set_condition(choice, even)?;
    let (inner, inner_item) =
        (net.add_if_input(choice, now)?.output(0)?, net.add_if_input(choice, item)?.output(0)?);
    let more = net.add_elementwise(inner, inner_item, ElementwiseOp::Sum)?.output(0)?;
    // The false branch is empty: the total stays.
    let next = net.add_if_output(choice, more, now)?.output(0)?;

    net.set_input(total, 1, next)?;
    let sum = net.add_loop_output(each, now, LoopOutputKind::LastValue, 0)?.output(0)?;
    net.mark_output(sum, "sum")?;
    Ok(net)
}

/// Runs the first network.
pub fn add_or_subtract(
    builder: &EngineBuilder,
    condition: bool,
    x: [f32; 5],
    y: [f32; 5],
) -> Result<Vec<f32>, Error> {
    let engine = builder.build(&sum_or_difference()?)?;
    let vector = |v: [f32; 5]| Tensor::from_slice(&[5], &v);
    let condition = Tensor::from_slice(&[], &[condition])?;
    let outputs = engine.run([("condition", condition), ("x", vector(x)?), ("y", vector(y)?)])?;
    Ok(outputs.get("output")?.to_vec()?)
}

/// Runs the second network on each of these lists, with one engine.
pub fn sums_of_even(builder: &EngineBuilder, lists: &[Vec<i32>]) -> Result<Vec<i32>, Error> {
    let engine = builder.clone().shapes("items", &[0], &[8], &[64]).build(&sum_even()?)?;
    let mut context = engine.create_context()?;
    let mut sums = Vec::new();
    for list in lists {
        let outputs = context.run(&[("items", Tensor::from_slice(&[list.len()], list)?)])?;
        sums.extend(outputs.get("sum")?.to_vec::<i32>()?);
    }
    Ok(sums)
}

fn main() -> Result<(), Error> {
    let builder = Engine::builder();
    let (x, y) = ([1.0, 2.0, 3.0, 4.0, 5.0], [10.0; 5]);
    for condition in [true, false] {
        println!("{condition}: {:?}", add_or_subtract(&builder, condition, x, y)?);
    }
    let lists = vec![vec![1, 2, 3, 4], vec![1, 3], Vec::new()];
    println!("sums of even items of {lists:?}: {:?}", sums_of_even(&builder, &lists)?);
    Ok(())
}
