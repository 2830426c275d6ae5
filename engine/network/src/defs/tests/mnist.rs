//! The network of the documentation's example, written through the API: two convolutions with pooling, a fully connected
//! part from shuffle, matrix multiplication and bias, ReLU, softmax.

use crate::tests::{f32s, run};
use crate::*;
use kiln_ir::{DType, Dim, TensorType};

/// A network of 6×6 images with kernels small enough to follow by hand.
fn build() -> Network {
    let mut net = Network::new("mnist");
    let image = TensorType::new(DType::F32, [Dim::host("batch"), 1.into(), 6.into(), 6.into()]);
    let x = net.add_input("input", image).unwrap();
    // Each map sums a row of two, or copies the right of two.
    let kernel = f32s(&[4], &[1.0, 1.0, 0.0, 1.0]);
    let conv1 = net.add_convolution_nd(x, 2, &[1, 2], kernel, f32s(&[2], &[0.0, 1.0])).unwrap();
    let conv1 = conv1.set_name("conv1").unwrap().set_post_padding(&[0, 1]).unwrap().output(0).unwrap();
    let pool1 = net.add_pooling_nd(conv1, PoolingKind::Max, &[2, 2]).unwrap();
    let pool1 = pool1.set_stride_nd(&[2, 2]).unwrap().output(0).unwrap();
    let kernel = f32s(&[2], &[1.0, -1.0]);
    let conv2 = net.add_convolution_nd(pool1, 1, &[1, 1], kernel, Weights::None).unwrap();
    let conv2 = conv2.set_stride_nd(&[2, 2]).unwrap().set_name("conv2").unwrap().output(0).unwrap();
    let flat = net.add_shuffle(conv2).unwrap().set_reshape_dimensions(&[-1, 4]).unwrap().output(0).unwrap();
    let w = net
        .add_constant(f32s(&[3, 4], &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]))
        .unwrap();
    let w = w.set_weights_name(WeightsRole::Constant, "fc.weight").unwrap().output(0).unwrap();
    let fc =
        net.add_matrix_multiply(flat, MatrixOp::None, w, MatrixOp::Transpose).unwrap().output(0).unwrap();
    let bias = net.add_constant(f32s(&[1, 3], &[0.0, -1.0, -20.0])).unwrap().output(0).unwrap();
    let fc = net.add_elementwise(fc, bias, ElementwiseOp::Sum).unwrap().output(0).unwrap();
    let relu = net.add_activation(fc, ActivationKind::Relu).unwrap().output(0).unwrap();
    let prob = net.add_softmax(relu).unwrap().set_axes(1 << 1).unwrap().output(0).unwrap();
    net.mark_output(relu, "logits").unwrap();
    net.mark_output(prob, "prob").unwrap();
    net
}

#[test]
fn the_example_network_computes() {
    let net = build();
    assert_eq!(net.ty(net.find("logits").unwrap()).to_string(), "f32[batch,3]");
    // Rows 0, 1, …, 5 of the image hold their own number; the second image is zero.
    let mut pixels: Vec<f64> = (0..36).map(|i| (i / 6) as f64).collect();
    pixels.extend([0.0; 36]);
    let out = run(&net, &[f32s(&[2, 1, 6, 6], &pixels)]);
    // After the first pooling, map 0 holds 2·1, 2·3, 2·5 by rows and map 1 holds 1 + 1, 3 + 1, 5 + 1. The second
    // convolution takes rows and columns 0 and 2 of the difference: 0, 0, 4, 4. For zeros map 1 is 1 everywhere.
    assert_eq!(out[0], f32s(&[2, 3], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
    assert_eq!(out[1].shape(), [2, 3]);
    for p in out[1].to_f64() {
        assert!((p - 1.0 / 3.0).abs() < 1e-6);
    }
    let bright: Vec<f64> = pixels.iter().map(|p| p * 10.0).collect();
    let out = run(&net, &[f32s(&[2, 1, 6, 6], &bright)]);
    // Ten times as bright: differences 9, 9, 49, 49.
    assert_eq!(out[0], f32s(&[2, 3], &[9.0, 8.0, 78.0, 0.0, 0.0, 0.0]));
    assert!(out[1].to_f64()[2] > 0.999_999);
}

#[test]
fn its_weights_and_layers_have_their_names() {
    let g = build().lower().unwrap();
    let named: Vec<_> = g.value_ids().filter_map(|v| g.weight(v)?.name.clone()).collect();
    assert_eq!(
        named.iter().map(|n| &**n).collect::<Vec<_>>(),
        ["conv1/kernel", "conv1/bias", "conv2/kernel", "fc.weight", "constant.2/constant"]
    );
    let layers: Vec<_> = g.nodes().map(|(_, n)| n.name.as_str()).collect();
    assert!(layers.contains(&"conv1") && layers.contains(&"conv2"), "{layers:?}");
    assert!(g.find("conv1/kernel").is_some() && g.find("conv1/bias").is_some());
}
