//! Layers with side effects in loops that give nothing.

use crate::tests::{constant, f32s, int};
use crate::*;
use kiln_ir::tensor::Tensor;
use kiln_ir::{DType, Graph};

/// An outer loop of `iterations` iterations carries i = 0, 1, …. Its inner loop of min(i, 2) iterations has
/// no outputs, and asserts that the elements that it goes through are above 0.
fn asserting(iterations: i64, elements: [f64; 2]) -> Graph {
    let mut net = Network::new("effects");
    let x = net.add_input("x", f32s(&[2], &elements).ty()).unwrap();
    let outer = net.add_loop().unwrap();
    let n = int(&mut net, DType::I64, iterations);
    net.add_trip_limit(outer, n, TripLimitKind::Count).unwrap();
    let zero = int(&mut net, DType::I64, 0);
    let r = net.add_recurrence(outer, zero).unwrap();
    let (id, i) = (r.id(), r.output(0).unwrap());
    let (one, two) = (int(&mut net, DType::I64, 1), int(&mut net, DType::I64, 2));
    let next = net.add_elementwise(i, one, ElementwiseOp::Sum).unwrap().output(0).unwrap();
    net.set_input(id, 1, next).unwrap();

    let inner = net.add_loop().unwrap();
    let count = net.add_elementwise(i, two, ElementwiseOp::Min).unwrap().output(0).unwrap();
    net.add_trip_limit(inner, count, TripLimitKind::Count).unwrap();
    let each = net.add_iterator(inner, x, 0, false).unwrap().output(0).unwrap();
    let above = constant(&mut net, f32s(&[], &[0.0]));
    let fine = net.add_elementwise(each, above, ElementwiseOp::Greater).unwrap().output(0).unwrap();
    net.add_assertion(fine, "an element is not above 0").unwrap();

    let last = net.add_loop_output(outer, i, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(last, "i").unwrap();
    net.lower().unwrap()
}

#[test]
fn a_loop_inside_that_only_asserts_makes_its_own_trips() {
    let last = |iterations, elements| {
        let found = asserting(iterations, elements).eval(&[f32s(&[2], &elements)]);
        found.map(|out: Vec<Tensor>| out[0].scalar_i64())
    };
    assert_eq!(last(4, [1.0, 2.0]).unwrap(), Some(4));
    // The second element is reached in the third iteration of the outer loop.
    assert_eq!(last(2, [1.0, -2.0]).unwrap(), Some(2));
    let why = last(3, [1.0, -2.0]).unwrap_err().to_string();
    assert!(why.contains("an element is not above 0"), "{why}");
    assert_eq!(last(1, [-1.0, -2.0]).unwrap(), Some(1));
}
