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

/// An output of the layer that was just added.
fn first<P>(layer: Result<Layer<'_, P>, NetworkError>) -> TensorId {
    layer.unwrap().output(0).unwrap()
}

fn values(net: &mut Network, shape: &[usize], v: &[f64]) -> TensorId {
    first(net.add_constant(f32s(shape, v)))
}

#[test]
fn quantization_has_scales_for_the_whole_batch() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[2, 2]);
    let one = values(&mut net, &[], &[0.5]);
    let each = values(&mut net, &[2], &[0.5, 2.0]);
    let blocks = values(&mut net, &[2, 1], &[0.5, 2.0]);
    let q = first(net.add_quantize(x, one, DType::I8, None));
    let y = first(net.add_dequantize(q, one, DType::F32, None));
    assert_eq!(net.ty(q).to_string(), "i8[2,2]");
    let by_channel = first(net.add_quantize(x, each, DType::I8, Some(0)));
    let by_channel = first(net.add_dequantize(by_channel, each, DType::F32, Some(0)));
    let by_block = first(net.add_quantize(x, blocks, DType::I8, None));
    for (t, name) in [(y, "y"), (by_channel, "by_channel"), (by_block, "by_block")] {
        net.mark_output(t, name).unwrap();
    }
    let out = run(&net, &[f32s(&[2, 2, 2], &[0.4, 1.0, 3.0, 5.0, 0.0, 2.2, 4.0, 9.0])]);
    assert_eq!(out[0], f32s(&[2, 2, 2], &[0.5, 1.0, 3.0, 5.0, 0.0, 2.0, 4.0, 9.0]));
    assert_eq!(out[1], f32s(&[2, 2, 2], &[0.5, 1.0, 4.0, 4.0, 0.0, 2.0, 4.0, 8.0]));
    assert_eq!(out[2].to_f64(), [1.0, 2.0, 2.0, 2.0, 0.0, 4.0, 2.0, 4.0]);
    let own = input(&mut net, "own", DType::F32, &[]);
    refused(net.add_quantize(x, own, DType::I8, None), "the same for the whole batch");
}

#[test]
fn sums_of_products_go_by_entries() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[2, 2]);
    let v = input(&mut net, "v", DType::F32, &[2]);
    let w = values(&mut net, &[2, 1], &[1.0, 10.0]);
    let shared = first(net.add_einsum(&[x, w], "ij,jk->ik"));
    assert_eq!(net.ty(shared).to_string(), "f32[2,1]");
    let own = first(net.add_einsum(&[x, v], "ij,j"));
    let constant = first(net.add_einsum(&[w, w], "ij, ij ->"));
    let spread = first(net.add_elementwise(own, own, ElementwiseOp::Sum));
    for (t, name) in [(shared, "shared"), (spread, "own"), (constant, "fixed")] {
        net.mark_output(t, name).unwrap();
    }
    let xs = f32s(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let out = run(&net, &[xs, f32s(&[2, 2], &[1.0, 0.0, 0.0, 1.0])]);
    assert_eq!(out[0], f32s(&[2, 2, 1], &[21.0, 43.0, 65.0, 87.0]));
    assert_eq!(out[1], f32s(&[2, 2], &[2.0, 6.0, 12.0, 16.0]));
    assert_eq!(out[2], f32s(&[1], &[101.0]));
    refused(net.add_einsum(&[x], "ij,jk->ik"), "labels of 1 inputs");
    refused(net.add_einsum(&[x, v], "ijk,j"), "as many labels");
}

#[test]
fn elements_are_gathered_by_entry() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[3]);
    let ids = input(&mut net, "ids", DType::I32, &[2]);
    let m = input(&mut net, "m", DType::F32, &[2, 2]);
    let table = values(&mut net, &[3, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let fixed = first(net.add_constant(crate::tests::ints(DType::I32, &[1], &[1])));
    let words = first(net.add_gather(table, ids, 0));
    assert_eq!(net.ty(words).to_string(), "f32[2,2]");
    let columns = first(net.add_gather(table, ids, 1));
    assert_eq!(net.ty(columns).to_string(), "f32[3,2]");
    let own = first(net.add_gather(x, ids, 0));
    let same = first(net.add_gather(m, fixed, 1));
    let flags = first(net.add_gather_v2(x, ids, GatherMode::Element));
    for (t, name) in [(words, "words"), (columns, "columns"), (own, "own"), (same, "same"), (flags, "flags")]
    {
        net.mark_output(t, name).unwrap();
    }
    let inputs = [
        f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        crate::tests::ints(DType::I32, &[2, 2], &[0, 1, 1, 0]),
        f32s(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
    ];
    let out = run(&net, &inputs);
    assert_eq!(out[0], f32s(&[2, 2, 2], &[0.0, 1.0, 10.0, 11.0, 10.0, 11.0, 0.0, 1.0]));
    let columns = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 1.0, 0.0, 11.0, 10.0, 21.0, 20.0];
    assert_eq!(out[1], f32s(&[2, 3, 2], &columns));
    assert_eq!(out[2], f32s(&[2, 2], &[1.0, 2.0, 5.0, 4.0]));
    assert_eq!(out[3], f32s(&[2, 2, 1], &[2.0, 4.0, 6.0, 8.0]));
    assert_eq!(out[4], f32s(&[2, 2], &[1.0, 2.0, 5.0, 4.0]));
    refused(net.add_gather(x, ids, 1), "axis");
}

#[test]
fn normalizations_and_moves_count_axes_without_the_batch() {
    let mut net = Network::with_implicit_batch("old");
    let x = input(&mut net, "x", DType::F32, &[2, 2]);
    let (ones, zeros) = (values(&mut net, &[1, 2], &[1.0, 3.0]), values(&mut net, &[1, 2], &[0.0, 0.0]));
    let norm = net.add_normalization(x, ones, zeros, 0b10).unwrap().set_epsilon(0.0).unwrap();
    let norm = norm.output(0).unwrap();
    let axis = first(net.add_constant(crate::tests::ints(DType::I32, &[1], &[0])));
    let deep = first(net.add_unsqueeze(x, axis));
    assert_eq!(net.ty(deep).to_string(), "f32[1,2,2]");
    let flat = first(net.add_squeeze(deep, axis));
    let along = net.add_weights(None, crate::tests::ints(DType::I32, &[], &[0])).unwrap();
    let sums = first(net.add_cumulative(flat, along, false, false));
    net.mark_output(norm, "norm").unwrap();
    net.mark_output(sums, "sums").unwrap();
    let out = run(&net, &[f32s(&[2, 2, 2], &[1.0, 3.0, 5.0, 1.0, 0.0, 2.0, 4.0, 8.0])]);
    assert_eq!(out[0], f32s(&[2, 2, 2], &[-1.0, 3.0, 1.0, -3.0, -1.0, 3.0, -1.0, 3.0]));
    assert_eq!(out[1], f32s(&[2, 2, 2], &[1.0, 3.0, 6.0, 4.0, 0.0, 2.0, 4.0, 10.0]));
}
