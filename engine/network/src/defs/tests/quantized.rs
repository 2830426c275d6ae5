//! Quantize, dequantize, dynamic quantize.

use crate::tests::{constant, f32s, input, ints, refused, run, through};
use crate::*;
use kiln_ir::DType;
use kiln_ir::tensor::Tensor;

fn quantize(x: Tensor, s: Tensor, to: DType, axis: Option<i64>) -> Result<Tensor, NetworkError> {
    through(&[x], |n, x| {
        let s = constant(n, s);
        n.add_quantize(x[0], s, to, axis)?.output(0)
    })
}

#[test]
fn quantization_rounds_and_clamps() {
    let x = f32s(&[6], &[0.5, 1.5, -2.5, 1000.0, -1000.0, 0.0]);
    let y = quantize(x.clone(), f32s(&[], &[1.0]), DType::I8, None).unwrap();
    assert_eq!(y.to_i64(), [0, 2, -2, 127, -128, 0]);
    let y = quantize(x.clone(), f32s(&[], &[1.0]), DType::I4, None).unwrap();
    assert_eq!(y.to_i64(), [0, 2, -2, 7, -8, 0]);
    let y = quantize(x.clone(), f32s(&[], &[1.0]), DType::F8E4M3, None).unwrap();
    assert_eq!(y.to_f64(), [0.5, 1.5, -2.5, 448.0, -448.0, 0.0]);
    refused(quantize(x.clone(), f32s(&[], &[0.0]), DType::I8, None), "positive numbers");
    refused(quantize(x.clone(), f32s(&[], &[1.0]), DType::U8, None), "i8, i4 or f8e4m3");
    refused(quantize(f32s(&[], &[1.0]), f32s(&[], &[1.0]), DType::I8, None), "at least one dimension");
    refused(quantize(x, f32s(&[4], &[1.0; 4]), DType::I8, None), "input 1 has shape [4]");
}

#[test]
fn scales_by_channel_and_block() {
    let x = || f32s(&[2, 4], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]);
    let y = quantize(x(), f32s(&[2], &[1.0, 10.0]), DType::I8, Some(0)).unwrap();
    assert_eq!(y.to_i64(), [1, 2, 3, 4, 1, 2, 3, 4]);
    let y = quantize(x(), f32s(&[2, 2], &[1.0, 0.5, 10.0, 5.0]), DType::I8, None).unwrap();
    assert_eq!((y.shape(), y.to_i64()), (&[2, 4][..], vec![1, 2, 6, 8, 1, 2, 6, 8]));
    refused(quantize(x(), f32s(&[3], &[1.0; 3]), DType::I8, Some(0)), "one number a channel");
    refused(quantize(x(), f32s(&[2, 3], &[1.0; 6]), DType::I8, None), "divided by the size of the blocks");
}

#[test]
fn dequantization_multiplies_and_zero_points_are_zero() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::I8, &[2]);
    let s = constant(&mut net, f32s(&[], &[0.5]));
    let zero = constant(&mut net, ints(DType::I8, &[], &[0]));
    let one = constant(&mut net, ints(DType::I8, &[], &[1]));
    let y =
        net.add_dequantize(x, s, DType::F16, None).unwrap().set_input(2, zero).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[ints(DType::I8, &[2], &[3, -4])]);
    assert_eq!((out[0].dtype(), out[0].to_f64()), (DType::F16, vec![1.5, -2.0]));
    let l = net.add_dequantize(x, s, DType::F32, None).unwrap();
    refused(l.set_input(2, one), "a constant of zeros");
    refused(net.add_dequantize(x, s, DType::I32, None), "f32, f16 or bf16");
    refused(net.add_dequantize(s, s, DType::F32, None), "i8, i4 or f8e4m3");
}

#[test]
fn blocks_find_their_own_scales() {
    let go = |to, scale_type, out| {
        through(&[f32s(&[1, 4], &[127.0, -63.5, 0.0, 0.0])], |n, x| {
            n.add_dynamic_quantize(x[0], 1, 2, to, scale_type)?.output(out)
        })
    };
    assert_eq!(go(DType::I8, DType::F32, 0).unwrap().to_i64(), [127, -64, 0, 0]);
    assert_eq!(go(DType::I8, DType::F32, 1).unwrap(), f32s(&[1, 2], &[1.0, 0.0]));
    assert_eq!(go(DType::F8E4M3, DType::F8E4M3, 1).unwrap().dtype(), DType::F8E4M3);
    refused(go(DType::I4, DType::F32, 0), "f8e4m3 or i8");
    refused(go(DType::I8, DType::F16, 0), "f32 or f8e4m3");
    let odd = through(&[f32s(&[1, 3], &[0.0; 3])], |n, x| {
        n.add_dynamic_quantize(x[0], 1, 2, DType::I8, DType::F32)?.output(0)
    });
    refused(odd, "a constant multiple of 2 in dimension 1");
    let first = through(&[f32s(&[2, 1, 3], &[0.0; 6])], |n, x| {
        n.add_dynamic_quantize(x[0], 0, 2, DType::I8, DType::F32)?.output(0)
    });
    refused(first, "the last or the second last");
}
