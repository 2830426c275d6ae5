//! Loops and conditionals run as steps.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod common;

use common::run;
use kiln_backend::Region;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType};

/// y = c ? −x : eˣ.
fn conditional() -> Graph {
    let branch = |op: &str| {
        let mut b = Graph::new(op);
        let x = b.add_input("x", Fact::of(TensorType::new(DType::F32, [2])));
        let y = b.add("y", Op::new(op, Attrs::new()).unwrap(), &[x]).unwrap();
        b.outputs = vec![y];
        b
    };
    let mut g = Graph::new("conditional");
    let c = g.add_input("c", Fact::of(TensorType::scalar(DType::Bool)));
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2])));
    let op = Op::new("if", Attrs::new().with("then_captures", 1i64)).unwrap();
    let names = ["y".to_owned()];
    g.outputs = g.add_control("if", op, &[c, x, x], vec![branch("neg"), branch("exp")], &names).unwrap();
    g
}

#[test]
fn the_branch_that_is_taken_runs() {
    let g = conditional();
    let x = Tensor::f32(&[2], &[0.0, 2.0]).unwrap();
    for tactic in ["oracle", "fast"] {
        for (c, wanted) in [(1, [-0.0, -2.0]), (0, [1.0, 2f32.exp()])] {
            let c = Tensor::from_bytes(DType::Bool, &[], vec![c]).unwrap();
            let out = run(&g, tactic, &[c, x.clone()], false).unwrap();
            common::assert_close("if", &out, &[Tensor::f32(&[2], &wanted).unwrap()], 1e-6);
        }
    }
    let region = Region::extract(&g, g.order()).unwrap();
    assert_eq!(region.graph.nodes().next().unwrap().1.regions.len(), 2, "regions stay with their node");
}
