//! Values whose rank a run decides.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{body, check, graph, model, node, tensor, typed as input};
use kiln_ir::{DType, Tensor};
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Imported, OnnxError, import};

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::f32(shape, values).unwrap()
}

fn truth(b: bool) -> Tensor {
    Tensor::from_bytes(DType::Bool, &[], vec![u8::from(b)]).unwrap()
}

/// Inputs c and x f32[3]; r is x[0] without dimensions if c, x otherwise.
fn with_ranks(then: Vec<NodeProto>, outputs: &[&str]) -> Result<Imported, OnnxError> {
    let first = node("ReduceMax", &["x"], &["t"]);
    let squeezed = vec![first, node("Squeeze", &["t"], &["u"])];
    let mut branch = node("If", &["c"], &["r"]);
    let other = graph(&[], vec![node("Neg", &["x"], &["e"])], &["e"]);
    branch.attribute = vec![body("then_branch", graph(&[], squeezed, &["u"])), body("else_branch", other)];
    let weights = [("m", vec![-1]), ("two", vec![2])];
    let initializer = weights.into_iter().map(|(name, v)| {
        let dims = [v.len() as i64];
        TensorProto { int64_data: v, ..tensor(name, DataType::Int64, &dims) }
    });
    let g = GraphProto {
        input: vec![input("c", DataType::Bool, &[]), input("x", DataType::Float, &["3"])],
        initializer: initializer.collect(),
        ..graph(&[], [vec![branch], then].concat(), outputs)
    };
    import(&check(&model(g)).unwrap(), &ImportOptions::default())
}

fn run(done: &Imported, c: bool) -> Vec<Tensor> {
    let x = floats(&[3], &[1.0, -4.0, 2.0]);
    let graph = done.network.lower().unwrap();
    let named = |v: &kiln_ir::ValueId| if graph.value(*v).name == "c" { truth(c) } else { x.clone() };
    let inputs: Vec<Tensor> = graph.inputs.iter().map(named).collect();
    graph.eval(&inputs).unwrap()
}

#[test]
fn what_reads_a_value_of_two_ranks_is_converted_for_each() {
    let done = with_ranks(vec![node("Abs", &["r"], &["a"]), node("Reshape", &["a", "m"], &["y"])], &["y"]);
    let done = done.unwrap();
    assert_eq!(run(&done, true), [floats(&[1], &[2.0])]);
    assert_eq!(run(&done, false), [floats(&[3], &[1.0, 4.0, 2.0])]);
}

#[test]
fn the_branch_that_is_not_taken_is_not_computed() {
    let then = vec![node("Exp", &["r"], &["a"]), node("Reshape", &["a", "m"], &["y"])];
    let g = with_ranks(then, &["y"]).unwrap().network.lower().unwrap();
    let outside: Vec<&str> = g.nodes().map(|(_, n)| n.op.name()).collect();
    assert_eq!(outside, ["if"]);
    let inside = |i: usize| {
        let (_, n) = g.nodes().next().unwrap();
        n.regions[i].nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>()
    };
    assert!(inside(0).contains(&"exp") && !inside(0).contains(&"neg"), "{:?}", inside(0));
    assert!(inside(1).contains(&"exp") && inside(1).contains(&"neg"), "{:?}", inside(1));
}

#[test]
fn values_that_follow_from_it_meet_it_again() {
    // s = x + r has one rank; |s|·r reads both.
    let then = vec![
        node("Add", &["x", "r"], &["s"]),
        node("Abs", &["s"], &["a"]),
        node("Mul", &["a", "r"], &["y"]),
        node("Sub", &["a", "y"], &["z"]),
    ];
    let done = with_ranks(then, &["z", "s"]).unwrap();
    let (taken, not) = (run(&done, true), run(&done, false));
    assert_eq!(taken, [floats(&[3], &[-3.0, -2.0, -4.0]), floats(&[3], &[3.0, -2.0, 4.0])]);
    assert_eq!(not, [floats(&[3], &[0.0; 3]), floats(&[3], &[0.0; 3])]);
}

#[test]
fn an_output_of_two_ranks_is_refused_with_both() {
    let e = with_ranks(vec![node("Abs", &["r"], &["y"])], &["y"]).unwrap_err().to_string();
    assert!(e.contains("0 and 1 dimensions") && e.contains("If_r"), "{e}");
}

#[test]
fn a_loop_that_gives_a_value_of_two_ranks_is_refused() {
    let mut inner = node("If", &["c"], &["r"]);
    let then = graph(&[], vec![node("Unsqueeze", &["v", "zero"], &["t"])], &["t"]);
    let other = graph(&[], vec![node("Neg", &["v"], &["e"])], &["e"]);
    inner.attribute = vec![body("then_branch", then), body("else_branch", other)];
    let mut looping = node("Loop", &["n", ""], &["last", "all"]);
    looping.input.push("x".into());
    let nodes = vec![node("Identity", &["go"], &["on"]), node("Identity", &["v"], &["w"]), inner];
    looping.attribute = vec![body("body", graph(&["i", "go", "v"], nodes, &["on", "w", "r"]))];
    let zero = TensorProto { int64_data: vec![0], ..tensor("zero", DataType::Int64, &[1]) };
    let g = GraphProto {
        input: vec![
            input("c", DataType::Bool, &[]),
            input("n", DataType::Int64, &[]),
            input("x", DataType::Float, &["3"]),
        ],
        initializer: vec![zero],
        ..graph(&[], vec![looping], &["last", "all"])
    };
    let e = import(&check(&model(g)).unwrap(), &ImportOptions::default()).unwrap_err().to_string();
    assert!(e.contains("If_r") && e.contains("2 and 1 dimensions"), "{e}");
}

#[test]
fn squeezing_keeps_dimensions_that_are_not_known_and_checks_them() {
    let g = GraphProto {
        input: vec![input("x", DataType::Float, &["1", "n", "1", "2"])],
        ..graph(&[], vec![node("Squeeze", &["x"], &["y"])], &["y"])
    };
    let done = import(&check(&model(g)).unwrap(), &ImportOptions::default()).unwrap();
    assert!(done.report.notes.iter().any(|n| n.contains("Squeeze_y") && n.contains("dimension 1")));
    let g = done.network.lower().unwrap();
    let of = |n: usize| g.eval(&[Tensor::zeros(DType::F32, &[1, n, 1, 2]).unwrap()]);
    assert_eq!(of(3).unwrap()[0].shape(), [3, 2]);
    let e = of(1).unwrap_err().to_string();
    assert!(e.contains("Squeeze_y") && e.contains("dimension 1"), "{e}");
}
