//! Loops of the network API: one that counts and stacks what it computes, and one that ends by a condition.
//!
//! `cargo run -p kiln --example loops`

#![allow(clippy::print_stdout, reason = "an example prints")]

use kiln::network::{ElementwiseOp, LoopOutputKind, TripLimitKind, UnaryOp};
use kiln::{DType, Dim, Engine, EngineBuilder, Error, Network, Tensor, TensorType};

/// Running sums of the rows of `x` f32 [rows, 3]: `last` is the sum of all, `running` stacks the sum up to each row, and `reversed`
/// does so from the last iteration to the first.
pub fn running_sums() -> Result<Network, Error> {
    let mut net = Network::new("running sums");
    let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("rows"), 3.into()]))?;
    let rows = net.add_shape(x)?.output(0)?;
    let rows = net.add_slice(rows, &[0], &[1], &[1])?.output(0)?;
    let rows = net.add_shuffle(rows)?.set_reshape_dimensions(&[])?.output(0)?;
    let zeros = net.add_weights(None, Tensor::zeros(DType::F32, &[3])?)?;

    let each = net.add_loop()?;
    net.set_loop_name(each, "each row")?;
    net.add_trip_limit(each, rows, TripLimitKind::Count)?;
    let row = net.add_iterator(each, x, 0, false)?.output(0)?;
    let sum = net.add_recurrence(each, zeros)?;
    let (layer, before) = (sum.id(), sum.output(0)?);
    let after = net.add_elementwise(before, row, ElementwiseOp::Sum)?.output(0)?;
    // The only edge that goes back.
    net.set_input(layer, 1, after)?;

    let last = net.add_loop_output(each, before, LoopOutputKind::LastValue, 0)?.output(0)?;
    let running = net.add_loop_output(each, after, LoopOutputKind::Concatenate, 0)?;
    let running = running.set_input(1, rows)?.output(0)?;
    let reversed = net.add_loop_output(each, after, LoopOutputKind::Reverse, 0)?;
    let reversed = reversed.set_input(1, rows)?.output(0)?;
    for (tensor, name) in [(last, "last"), (running, "running"), (reversed, "reversed")] {
        net.mark_output(tensor, name)?;
    }
    Ok(net)
}

/// Doubles `x` f32 [] until it is `limit` f32 [] or more; also counts how often: `for (i = 0; x < limit; i += 1) x *= 2`.
pub fn doublings() -> Result<Network, Error> {
    let mut net = Network::new("doublings");
    let scalar = || TensorType::new(DType::F32, [0i64; 0]);
    let (x, limit) = (net.add_input("x", scalar())?, net.add_input("limit", scalar())?);
    let zero = net.add_weights(None, Tensor::from_slice(&[], &[0i32])?)?;
    let one = net.add_weights(None, Tensor::from_slice(&[], &[1i32])?)?;

    let until = net.add_loop()?;
    let value = net.add_recurrence(until, x)?;
    let (value_layer, value) = (value.id(), value.output(0)?);
    let count = net.add_recurrence(until, zero)?;
    let (count_layer, count) = (count.id(), count.output(0)?);
    // Asked before each iteration.
    let enough = net.add_elementwise(value, limit, ElementwiseOp::Less)?.output(0)?;
    net.add_trip_limit(until, enough, TripLimitKind::While)?;
    let twice = net.add_elementwise(value, value, ElementwiseOp::Sum)?.output(0)?;
    let more = net.add_elementwise(count, one, ElementwiseOp::Sum)?.output(0)?;
    net.set_input(value_layer, 1, twice)?;
    net.set_input(count_layer, 1, more)?;
    let value = net.add_loop_output(until, value, LoopOutputKind::LastValue, 0)?.output(0)?;
    let count = net.add_loop_output(until, count, LoopOutputKind::LastValue, 0)?.output(0)?;
    // A layer behind the loop reads its result as any tensor.
    let negative = net.add_unary(value, UnaryOp::Neg)?.output(0)?;
    for (tensor, name) in [(value, "value"), (count, "count"), (negative, "negative")] {
        net.mark_output(tensor, name)?;
    }
    Ok(net)
}

/// `last`, `running` and `reversed` for these rows.
pub fn sums(builder: &EngineBuilder, rows: &[[f32; 3]]) -> Result<[Vec<f32>; 3], Error> {
    let engine = builder.clone().shapes("x", &[0, 3], &[4, 3], &[16, 3]).build(&running_sums()?)?;
    let x = Tensor::from_slice(&[rows.len(), 3], rows.as_flattened())?;
    let outputs = engine.run([("x", x)])?;
    let numbers = |name: &str| Ok::<_, Error>(outputs.get(name)?.to_vec::<f32>()?);
    Ok([numbers("last")?, numbers("running")?, numbers("reversed")?])
}

/// The value and the number of doublings.
pub fn doubled(builder: &EngineBuilder, x: f32, limit: f32) -> Result<(f32, i32), Error> {
    let engine = builder.build(&doublings()?)?;
    let scalar = |v: f32| Tensor::from_slice(&[], &[v]);
    let outputs = engine.run([("x", scalar(x)?), ("limit", scalar(limit)?)])?;
    let (value, count) = (outputs.get("value")?.to_vec::<f32>()?, outputs.get("count")?.to_vec::<i32>()?);
    Ok((value[0], count[0]))
}

fn main() -> Result<(), Error> {
    let builder = Engine::builder();
    let [last, running, reversed] = sums(&builder, &[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])?;
    println!("last {last:?}, running {running:?}, reversed {reversed:?}");
    let (value, count) = doubled(&builder, 3.0, 100.0)?;
    println!("3 doubled {count} times is {value}");
    Ok(())
}
