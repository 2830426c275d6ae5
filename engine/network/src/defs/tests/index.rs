//! Gather, scatter, one-hot, non-zero, non-maximum suppression.

use crate::tests::{constant, f32s, input, ints, refused, run, through};
use crate::*;
use kiln_ir::DType;
use kiln_ir::tensor::Tensor;

fn gather(
    data: Tensor,
    at: Tensor,
    mode: GatherMode,
    axis: i64,
    dims: usize,
) -> Result<Tensor, NetworkError> {
    through(&[data, at], |n, x| {
        let l = n.add_gather_v2(x[0], x[1], mode)?.set_gather_axis(axis)?;
        l.set_nb_elementwise_dims(dims)?.output(0)
    })
}

fn at(shape: &[usize], v: &[i64]) -> Tensor {
    ints(DType::I32, shape, v)
}

#[test]
fn gathers_in_three_modes() {
    let x = || f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = gather(x(), at(&[2], &[2, 0]), GatherMode::Default, 1, 0).unwrap();
    assert_eq!(y, f32s(&[2, 2], &[3.0, 1.0, 6.0, 4.0]));
    let y = gather(x(), at(&[2, 1], &[2, 0]), GatherMode::Default, 1, 1).unwrap();
    assert_eq!(y, f32s(&[2, 1], &[3.0, 4.0]));
    let y = gather(x(), at(&[1, 3], &[1, 0, 1]), GatherMode::Element, 0, 0).unwrap();
    assert_eq!(y, f32s(&[1, 3], &[4.0, 2.0, 6.0]));
    let y = gather(x(), at(&[2, 2], &[1, 1, 0, 2]), GatherMode::Nd, 0, 0).unwrap();
    assert_eq!(y, f32s(&[2], &[5.0, 3.0]));
    let y = gather(x(), at(&[2, 1], &[1, 2]), GatherMode::Nd, 0, 1).unwrap();
    assert_eq!(y, f32s(&[2], &[2.0, 6.0]));
    let simple = through(&[x(), at(&[], &[1])], |n, x| n.add_gather(x[0], x[1], 0)?.output(0)).unwrap();
    assert_eq!(simple, f32s(&[3], &[4.0, 5.0, 6.0]));
}

#[test]
fn gathers_refuse_what_does_not_fit() {
    let x = || f32s(&[2, 3], &[0.0; 6]);
    refused(gather(x(), at(&[3, 1], &[0; 3]), GatherMode::Default, 1, 1), "the same first 1 dimensions");
    refused(gather(x(), at(&[2, 1], &[0; 2]), GatherMode::Default, 1, 2), "at most 1 in this mode");
    refused(gather(x(), at(&[2, 1], &[0; 2]), GatherMode::Default, 0, 1), "gone through together");
    refused(gather(x(), at(&[2, 1], &[0; 2]), GatherMode::Element, 1, 1), "at most 0 in this mode");
    refused(gather(x(), f32s(&[1], &[0.0]), GatherMode::Default, 0, 0), "wants i32 or i64");
    refused(gather(x(), at(&[1], &[0]), GatherMode::Default, 2, 0), "in -2..2");
}

#[test]
fn scatters_replace() {
    let go = |x: Tensor, i: Tensor, u: Tensor, mode| {
        through(&[x, i, u], |n, x| {
            n.add_scatter(x[0], x[1], x[2], mode)?
                .set_axis(if mode == ScatterMode::Nd { 0 } else { 1 })?
                .output(0)
        })
    };
    let x = || f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let y = go(x(), at(&[2, 1], &[1, 0]), f32s(&[2, 1], &[8.0, 9.0]), ScatterMode::Element).unwrap();
    assert_eq!(y, f32s(&[2, 2], &[1.0, 8.0, 9.0, 4.0]));
    let y = go(x(), at(&[1, 1], &[1]), f32s(&[1, 2], &[8.0, 9.0]), ScatterMode::Nd).unwrap();
    assert_eq!(y, f32s(&[2, 2], &[1.0, 2.0, 8.0, 9.0]));
    refused(go(x(), at(&[1, 1], &[1]), at(&[1, 2], &[8, 9]), ScatterMode::Nd), "wants f32, as input 0 is");
}

#[test]
fn one_hot_and_non_zero() {
    let mut net = Network::new("n");
    let i = input(&mut net, "i", DType::I32, &[3]);
    let values = constant(&mut net, f32s(&[2], &[-1.0, 5.0]));
    let depth = constant(&mut net, at(&[], &[2]));
    let y = net.add_one_hot(i, values, depth, -1).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[at(&[3], &[1, 0, 7])]);
    assert_eq!(out, [f32s(&[3, 2], &[-1.0, 5.0, 5.0, -1.0, -1.0, -1.0])]);
    let zero = constant(&mut net, at(&[], &[0]));
    refused(net.add_one_hot(i, values, zero, -1), "greater than 0");
    let free = input(&mut net, "depth", DType::I32, &[]);
    refused(net.add_one_hot(i, values, free, -1), "known when the network is built");
    refused(net.add_one_hot(i, values, depth, 2), "layer \"one_hot");

    let x = f32s(&[2, 2], &[0.0, 3.0, 4.0, 0.0]);
    let y = through(&[x.clone()], |n, x| n.add_non_zero(x[0])?.output(0)).unwrap();
    assert_eq!(y, at(&[2, 2], &[0, 1, 1, 0]));
    let wide = through(&[x.clone()], |n, x| n.add_non_zero(x[0])?.set_indices_type(DType::I64)?.output(0));
    assert_eq!(wide.unwrap().dtype(), DType::I64);
    refused(
        through(&[x], |n, x| n.add_non_zero(x[0])?.set_indices_type(DType::F32)?.output(0)),
        "i32 or i64",
    );
}

#[test]
fn suppression_picks_by_batch_entry_and_score() {
    let mut net = Network::new("n");
    let boxes = input(&mut net, "boxes", DType::F32, &[1, 3, 4]);
    let scores = input(&mut net, "scores", DType::F32, &[1, 3, 2]);
    let most = constant(&mut net, at(&[], &[2]));
    let iou = constant(&mut net, f32s(&[], &[0.5]));
    let l = net.add_nms(boxes, scores, most).unwrap().set_input(3, iou).unwrap();
    let (picked, count) = (l.output(0).unwrap(), l.output(1).unwrap());
    net.mark_output(picked, "picked").unwrap();
    net.mark_output(count, "count").unwrap();
    // Boxes 0 and 1 overlap; class 0 scores .3 .6 .5, class 1 scores .9 .1 .2.
    let b = f32s(&[1, 3, 4], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.9, 5.0, 5.0, 6.0, 6.0]);
    let s = f32s(&[1, 3, 2], &[0.3, 0.9, 0.6, 0.1, 0.5, 0.2]);
    let out = run(&net, &[b, s]);
    assert_eq!(out[0], at(&[4, 3], &[0, 1, 0, 0, 0, 1, 0, 0, 2, 0, 1, 2]));
    assert_eq!(out[1], at(&[], &[4]));
    let l = net.add_nms(boxes, scores, most).unwrap();
    refused(l.set_topk_box_limit(5001), "0 to 5000");
    refused(net.add_nms(boxes, boxes, iou), "layer \"nms");
    refused(net.add_nms(boxes, scores, scores), "wants no dimensions");
}
