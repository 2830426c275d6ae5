//! Networks with an implicit batch.

use crate::tests::{f32s, input, refused, run, ty};
use crate::*;
use kiln_ir::{DType, Dim, TensorType};

#[test]
fn axes_leave_the_batch_out() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[1, 2, 2]);
    assert_eq!(
        (net.ty(x).to_string(), net.fact(x).ty.to_string()),
        ("f32[1,2,2]".into(), "f32[batch,1,2,2]".into())
    );
    let conv = net.add_convolution_nd(x, 2, &[1, 1], f32s(&[2], &[1.0, 10.0]), Weights::None).unwrap();
    let conv = conv.output(0).unwrap();
    assert_eq!(net.ty(conv).to_string(), "f32[2,2,2]");
    let sum = net.add_reduce(conv, ReduceOp::Sum, 0b001, false).unwrap().output(0).unwrap();
    assert_eq!(net.ty(sum).to_string(), "f32[2,2]");
    let flat = net.add_shuffle(sum).unwrap().set_first_transpose(&[1, 0]).unwrap();
    let flat = flat.set_reshape_dimensions(&[-1]).unwrap().output(0).unwrap();
    assert_eq!(net.ty(flat).to_string(), "f32[4]");
    let bias = net.add_constant(f32s(&[4], &[0.5, 0.0, 0.0, 0.0])).unwrap().output(0).unwrap();
    let y = net.add_elementwise(flat, bias, ElementwiseOp::Sum).unwrap().output(0).unwrap();
    let top = net.add_topk(y, TopKOp::Max, 1, 1).unwrap().output(0).unwrap();
    let part = net.add_slice(y, &[1], &[2], &[2]).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net.mark_output(top, "top").unwrap();
    net.mark_output(part, "part").unwrap();
    let out = run(&net, &[f32s(&[2, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 1.0, 0.0])]);
    assert_eq!(out[0], f32s(&[2, 4], &[11.5, 33.0, 22.0, 44.0, 0.5, 11.0, 0.0, 0.0]));
    assert_eq!(out[1], f32s(&[2, 1], &[44.0, 11.0]));
    assert_eq!(out[2], f32s(&[2, 2], &[33.0, 44.0, 11.0, 0.0]));
    let g = net.lower().unwrap();
    assert_eq!(g.ty(g.inputs[0]).dims[0], Dim::host("batch"));
}

#[test]
fn defaults_are_those_without_a_batch() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[2, 1, 1]);
    let s = net.add_softmax(x).unwrap().output(0).unwrap();
    let c = net.add_concatenation(&[x, x]).unwrap().output(0).unwrap();
    let fc =
        net.add_fully_connected(x, 1, f32s(&[2], &[1.0, 3.0]), Weights::None).unwrap().output(0).unwrap();
    let scale = net.add_scale(x, ScaleMode::Channel, None, Some(f32s(&[2], &[2.0, 0.0])), None).unwrap();
    let scale = scale.output(0).unwrap();
    for (t, name) in [(s, "s"), (c, "c"), (fc, "fc"), (scale, "scaled")] {
        net.mark_output(t, name).unwrap();
    }
    let out = run(&net, &[f32s(&[1, 2, 1, 1], &[1.0, 1.0])]);
    assert_eq!(out[0], f32s(&[1, 2, 1, 1], &[0.5, 0.5]));
    assert_eq!(out[1].shape(), [1, 4, 1, 1]);
    assert_eq!(out[2], f32s(&[1, 1, 1, 1], &[4.0]));
    assert_eq!(out[3], f32s(&[1, 2, 1, 1], &[2.0, 0.0]));
}

#[test]
fn inputs_may_be_the_same_for_the_whole_batch() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[2]);
    let w = input(&mut net, "w", DType::F32, &[2]);
    net.set_broadcast_across_batch(w, true).unwrap();
    let y = net.add_elementwise(x, w, ElementwiseOp::Prod).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), f32s(&[1, 2], &[1.0, 10.0])]);
    assert_eq!(out, [f32s(&[2, 2], &[1.0, 20.0, 3.0, 40.0])]);
    refused(net.set_broadcast_across_batch(y, true), "no input \"y\" with an implicit batch");
}

#[test]
fn what_crosses_the_batch_is_refused() {
    let mut net = Network::with_implicit_batch("old");
    refused(net.add_input("x", TensorType::new(DType::F32, [Dim::host("n")])), "unknown dimension");
    let x = input(&mut net, "x", DType::F32, &[2, 3]);
    refused(net.add_shape(x), "\"shape\": shape may mix entries of the batch");
    refused(net.add_non_zero(x), "may mix entries of the batch");
    refused(net.add_layer("raw", "size", kiln_ir::Attrs::new(), &[Some(x)]), "may mix entries of the batch");
    refused(net.add_loop(), "control flow is refused");
    refused(net.add_if_conditional(), "control flow is refused");
    refused(net.add_reduce(x, ReduceOp::Sum, 0b100, false), "lowest 2 bits");
    refused(net.add_shuffle(x).unwrap().set_first_transpose(&[0, 1, 2]), "every axis of 2 once");
    let mut explicit = Network::new("new");
    let y = explicit.add_input("y", ty(DType::F32, &[2])).unwrap();
    refused(explicit.set_broadcast_across_batch(y, true), "with an implicit batch");
}
