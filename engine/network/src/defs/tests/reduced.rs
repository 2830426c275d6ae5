//! Reduce, softmax, ragged softmax, topk, cumulative, normalization.

use crate::tests::{constant, f32s, input, ints, refused, through};
use crate::*;
use kiln_ir::DType;
use kiln_ir::tensor::Tensor;

fn reduce(x: Tensor, op: ReduceOp, axes: u32, keep: bool) -> Result<Tensor, NetworkError> {
    through(&[x], |n, x| n.add_reduce(x[0], op, axes, keep)?.output(0))
}

#[test]
fn reductions_by_mask() {
    use ReduceOp as R;
    let x = || f32s(&[2, 2], &[1.0, 2.0, 3.0, 5.0]);
    for (op, want) in [
        (R::Sum, [4.0, 7.0]),
        (R::Prod, [3.0, 10.0]),
        (R::Max, [3.0, 5.0]),
        (R::Min, [1.0, 2.0]),
        (R::Avg, [2.0, 3.5]),
    ] {
        assert_eq!(reduce(x(), op, 1, false).unwrap(), f32s(&[2], &want), "{op:?}");
    }
    assert_eq!(reduce(x(), R::Sum, 0b11, true).unwrap(), f32s(&[1, 1], &[11.0]));
    let none = |op| reduce(f32s(&[0, 1], &[]), op, 1, false).unwrap().to_f64()[0];
    assert_eq!((none(R::Sum), none(R::Prod)), (0.0, 1.0));
    assert_eq!((none(R::Max), none(R::Min)), (f64::NEG_INFINITY, f64::INFINITY));
    assert!(none(R::Avg).is_nan());
    let none = |op| reduce(ints(DType::I32, &[0], &[]), op, 1, false).unwrap().to_i64()[0];
    assert_eq!((none(R::Max), none(R::Min)), (i64::from(i32::MIN), i64::from(i32::MAX)));
    refused(reduce(x(), R::Sum, 0, false), "at least one of the lowest 2 bits");
    refused(reduce(x(), R::Sum, 0b100, false), "at least one of the lowest 2 bits");
    refused(reduce(ints(DType::Bool, &[1], &[1]), R::Max, 1, false), "wants a number");
}

#[test]
fn softmaxes_have_one_axis() {
    let e = std::f64::consts::E;
    let go = |x: Tensor, axes: Option<u32>| {
        through(&[x], |n, x| match axes {
            Some(a) => n.add_softmax(x[0])?.set_axes(a)?.output(0),
            None => n.add_softmax(x[0])?.output(0),
        })
    };
    let y = go(f32s(&[1, 2], &[0.0, 1.0]), Some(2)).unwrap().to_f64();
    assert!((y[1] - e / (1.0 + e)).abs() < 1e-6);
    // By default the channels of an image, the first axis of a matrix.
    assert_eq!(go(f32s(&[1, 2, 1, 1], &[3.0, 3.0]), None).unwrap().to_f64(), [0.5, 0.5]);
    assert_eq!(go(f32s(&[2, 1], &[3.0, 3.0]), None).unwrap().to_f64(), [0.5, 0.5]);
    refused(go(f32s(&[1, 2], &[0.0; 2]), Some(3)), "exactly one bit");
    refused(go(f32s(&[1, 2], &[0.0; 2]), Some(4)), "lowest 2 bits");
    refused(go(ints(DType::I32, &[1], &[0]), None), "wants a float type");
    refused(go(f32s(&[], &[0.0]), None), "at least one dimension");

    let ragged =
        |x: Tensor, n: Tensor| through(&[x, n], |net, x| net.add_ragged_softmax(x[0], x[1])?.output(0));
    let y = ragged(f32s(&[1, 1, 3], &[2.0, 2.0, 9.0]), ints(DType::I32, &[1, 1, 1], &[2])).unwrap();
    assert_eq!(y, f32s(&[1, 1, 3], &[0.5, 0.5, 0.0]));
    refused(ragged(f32s(&[1, 3], &[0.0; 3]), ints(DType::I32, &[1, 1], &[2])), "3 dimensions");
    refused(
        ragged(f32s(&[1, 1, 3], &[0.0; 3]), ints(DType::I32, &[1, 1, 3], &[2; 3])),
        "a last dimension of 1",
    );
}

#[test]
fn topk_is_sorted_and_limited() {
    let x = || f32s(&[1, 4], &[3.0, 9.0, 1.0, 9.0]);
    let go = |x: Tensor, op, k, axes, out| through(&[x], |n, x| n.add_topk(x[0], op, k, axes)?.output(out));
    assert_eq!(go(x(), TopKOp::Max, 2, 2, 0).unwrap(), f32s(&[1, 2], &[9.0, 9.0]));
    assert_eq!(go(x(), TopKOp::Max, 2, 2, 1).unwrap(), ints(DType::I32, &[1, 2], &[1, 3]));
    assert_eq!(go(x(), TopKOp::Min, 2, 2, 0).unwrap(), f32s(&[1, 2], &[1.0, 3.0]));
    refused(go(x(), TopKOp::Max, 3841, 2, 0), "\"k\" is 3841");
    refused(go(x(), TopKOp::Max, 5, 2, 0), "in 0 to 4");
    refused(go(x(), TopKOp::Max, 1, 3, 0), "exactly one bit");
    refused(go(f32s(&[2, 1, 1, 1, 1], &[0.0; 2]), TopKOp::Max, 1, 1, 0), "one of the last four dimensions");
    let mut net = Network::new("n");
    let v = input(&mut net, "v", DType::F32, &[4]);
    let k = constant(&mut net, ints(DType::I32, &[], &[3]));
    let l = net.add_topk(v, TopKOp::Max, 1, 1).unwrap().set_input(1, k).unwrap();
    let y = l.set_indices_type(DType::I64).unwrap().output(1).unwrap();
    assert_eq!(net.ty(y).to_string(), "i64[3]");
    let far = constant(&mut net, ints(DType::I32, &[], &[5000]));
    refused(net.add_topk(v, TopKOp::Max, 1, 1).unwrap().set_input(1, far), "\"k\" is 5000");
}

#[test]
fn running_sums_in_four_ways() {
    for (exclusive, reverse, want) in [
        (false, false, [1.0, 3.0, 6.0]),
        (true, false, [0.0, 1.0, 3.0]),
        (false, true, [6.0, 5.0, 3.0]),
        (true, true, [5.0, 3.0, 0.0]),
    ] {
        let y = through(&[f32s(&[3], &[1.0, 2.0, 3.0])], |n, x| {
            let axis = constant(n, ints(DType::I32, &[], &[0]));
            n.add_cumulative(x[0], axis, exclusive, reverse)?.output(0)
        });
        assert_eq!(y.unwrap(), f32s(&[3], &want));
    }
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[3]);
    let axis = input(&mut net, "axis", DType::I32, &[]);
    refused(net.add_cumulative(x, axis, false, false), "known when the network is built");
    let b = input(&mut net, "b", DType::Bool, &[3]);
    refused(net.add_cumulative(b, axis, false, false), "wants a float type, i32 or i64");
}

fn norm(x: Tensor, s: Tensor, b: Tensor, axes: u32, groups: i64, v2: bool) -> Result<Tensor, NetworkError> {
    through(&[x, s, b], |n, x| {
        let l = match v2 {
            true => n.add_normalization_v2(x[0], x[1], x[2], axes)?.set_nb_groups(groups)?,
            false => n.add_group_normalization(x[0], x[1], x[2], axes, groups)?,
        };
        l.set_epsilon(0.0)?.output(0)
    })
}

fn near(y: &Tensor, want: &[f64]) {
    for (y, want) in y.to_f64().iter().zip(want) {
        assert!((y - want).abs() < 1e-5, "{y}, wanted {want}");
    }
    assert_eq!(y.len(), want.len());
}

#[test]
fn normalizations_over_axes_and_groups() {
    let one = |shape: &[usize], v: f64| f32s(shape, &vec![v; shape.iter().product()]);
    // The last axis: layer normalization.
    let y =
        norm(f32s(&[2, 2], &[1.0, 3.0, 5.0, 9.0]), f32s(&[1, 2], &[1.0, 2.0]), one(&[1, 1], 0.5), 2, 1, true)
            .unwrap();
    near(&y, &[-0.5, 2.5, -0.5, 2.5]);
    // The first axis: step by step.
    let y =
        norm(f32s(&[2, 2], &[1.0, 3.0, 5.0, 9.0]), one(&[1, 2], 1.0), one(&[1, 2], 0.0), 1, 1, true).unwrap();
    near(&y, &[-1.0, -1.0, 1.0, 1.0]);
    // Two groups of two channels, scale and bias by channel or by group.
    let x = f32s(&[1, 4, 1, 1], &[1.0, 3.0, 10.0, 30.0]);
    let y =
        norm(x.clone(), f32s(&[1, 4, 1, 1], &[1.0, 1.0, 2.0, 3.0]), one(&[1, 4, 1, 1], 0.0), 0b1100, 2, true)
            .unwrap();
    near(&y, &[-1.0, 1.0, -2.0, 3.0]);
    let y = norm(
        x.clone(),
        f32s(&[1, 2, 1, 1], &[1.0, 2.0]),
        f32s(&[1, 2, 1, 1], &[0.0, 10.0]),
        0b1100,
        2,
        false,
    )
    .unwrap();
    near(&y, &[-1.0, 1.0, 8.0, 12.0]);
    let four = || one(&[1, 4, 1, 1], 1.0);
    refused(norm(x.clone(), four(), four(), 0b1100, 3, true), "a positive divisor of 4 channels");
    refused(norm(x.clone(), four(), four(), 0b1000, 2, true), "[2, 3], as there are groups");
    refused(norm(x.clone(), four(), four(), 0b1100, 2, false), "2 in dimension 1");
    refused(norm(x, one(&[4], 1.0), four(), 0b1100, 1, true), "as many dimensions as input 0");
}
