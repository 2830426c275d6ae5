//! Layers of networks with an implicit batch do for each entry what they do with the batch as a dimension.

use crate::tests::{f32s, ints, refused, run, through};
use crate::*;
use kiln_ir::{DType, Dim, Tensor, TensorType};

type Build = fn(&mut Network, &[TensorId]) -> Result<TensorId, NetworkError>;

/// The result for inputs with the batch in front.
fn one(implicit: bool, inputs: &[Tensor], build: Build) -> Tensor {
    let mut net = if implicit { Network::with_implicit_batch("old") } else { Network::new("new") };
    let add = |(i, t): (usize, &Tensor)| {
        let mut dims: Vec<Dim> = t.shape().iter().map(|&d| (d as i64).into()).collect();
        if implicit {
            dims.remove(0);
        }
        net.add_input(&format!("x{i}"), TensorType::new(t.dtype(), dims)).unwrap()
    };
    let x: Vec<TensorId> = inputs.iter().enumerate().map(add).collect();
    let y = build(&mut net, &x).unwrap();
    net.mark_output(y, "y").unwrap();
    run(&net, inputs).remove(0)
}

fn same(inputs: &[Tensor], build: Build) {
    let [implicit, explicit] = [true, false].map(|i| one(i, inputs, build));
    assert_eq!(implicit, explicit);
    assert_eq!(implicit.shape()[0], inputs[0].shape()[0]);
}

fn numbers(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    f32s(shape, &(0..count).map(|i| ((i * 31) % 17) as f64 / 4.0 - 2.0).collect::<Vec<_>>())
}

#[test]
fn attention_and_rotary_embedding() {
    let qkv = [numbers(&[2, 2, 3, 4]), numbers(&[2, 1, 5, 4]), numbers(&[2, 1, 5, 4])];
    same(&qkv, |n, x| {
        n.add_attention(x[0], x[1], x[2], AttentionNorm::Softmax, CausalMask::UpperLeft)?.output(0)
    });
    same(&qkv, |n, x| {
        n.add_attention(x[0], x[1], x[2], AttentionNorm::None, CausalMask::LowerRight)?.output(0)
    });
    let angles = [numbers(&[2, 2, 3, 4]), numbers(&[2, 3, 2]), numbers(&[2, 3, 2])];
    same(&angles, |n, x| n.add_rotary_embedding(x[0], x[1], x[2], false, 0)?.output(0));
}

#[test]
fn softmax_up_to_bounds_sums_and_grids() {
    let ragged = [numbers(&[2, 2, 3]), ints(DType::I32, &[2, 2, 1], &[2, 3, 1, 0])];
    same(&ragged, |n, x| n.add_ragged_softmax(x[0], x[1])?.output(0));
    let rank = |x: &[usize], n: &[usize]| {
        through(&[numbers(x), ints(DType::I32, n, &[1])], |net, x| {
            net.add_ragged_softmax(x[0], x[1])?.output(0)
        })
    };
    refused(rank(&[1, 2], &[1, 1]), "3 dimensions");
    same(&[numbers(&[2, 3, 4])], |n, x| {
        let axis = n.add_weights(None, ints(DType::I32, &[], &[-1]))?;
        n.add_cumulative(x[0], axis, true, true)?.output(0)
    });
    let sampled = [numbers(&[2, 3, 4, 4]), numbers(&[2, 2, 5, 2])];
    same(&sampled, |n, x| n.add_grid_sample(x[0], x[1])?.output(0));
}

#[test]
fn codes_by_blocks_and_classes() {
    same(&[numbers(&[2, 3, 4])], |n, x| {
        let q = n.add_dynamic_quantize(x[0], -1, 2, DType::I8, DType::F32)?;
        let (codes, scales) = (q.output(0)?, q.output(1)?);
        n.add_dequantize(codes, scales, DType::F32, None)?.output(0)
    });
    let ids = ints(DType::I32, &[2, 3], &[0, 2, 1, 1, 3, 0]);
    for axis in [-1, -2] {
        let build: Build = match axis {
            -1 => |n, x| hot(n, x[0], -1),
            _ => |n, x| hot(n, x[0], -2),
        };
        same(&[ids.clone()], build);
    }
    let mut net = Network::with_implicit_batch("old");
    let x = net.add_input("x", TensorType::new(DType::I32, [2])).unwrap();
    let on = net.add_input("on", TensorType::new(DType::F32, [2])).unwrap();
    let depth = net.add_weights(None, ints(DType::I32, &[], &[4])).unwrap();
    refused(net.add_one_hot(x, on, depth, 0), "the same for the whole batch");
}

fn hot(n: &mut Network, x: TensorId, axis: i64) -> Result<TensorId, NetworkError> {
    let values = n.add_weights(None, f32s(&[2], &[-1.0, 5.0]))?;
    let depth = n.add_weights(None, ints(DType::I32, &[], &[4]))?;
    n.add_one_hot(x, values, depth, axis)?.output(0)
}

#[test]
fn tuples_gather_within_their_entry() {
    let picked = [numbers(&[2, 3, 4]), ints(DType::I32, &[2, 2, 2], &[0, 1, 2, 3, 1, 1, 0, 0])];
    // With the batch as a dimension tuples index behind it.
    let implicit = one(true, &picked, |n, x| n.add_gather_v2(x[0], x[1], GatherMode::Nd)?.output(0));
    let data = picked[0].to_f64();
    let at = |entry: usize, i: usize, j: usize| data[entry * 12 + i * 4 + j];
    assert_eq!(implicit, f32s(&[2, 2], &[at(0, 0, 1), at(0, 2, 3), at(1, 1, 1), at(1, 0, 0)]));
}
