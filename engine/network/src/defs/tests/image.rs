//! Convolution, deconvolution, pooling, scale, LRN, resize, grid sample.

use crate::tests::{f32s, input, ints, refused, run, through};
use crate::*;
use kiln_ir::tensor::Tensor;
use kiln_ir::{DType, Dim, TensorType};

fn grid(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(1..=n).map(|i| i as f64).collect::<Vec<_>>())
}

type Change<P> = for<'a> fn(Layer<'a, P>) -> Result<Layer<'a, P>, NetworkError>;

fn conv(
    x: Tensor,
    maps: i64,
    kernel: &[i64],
    w: Tensor,
    f: Change<Convolution>,
) -> Result<Tensor, NetworkError> {
    through(&[x], |n, x| f(n.add_convolution_nd(x[0], maps, kernel, w, Weights::None)?)?.output(0))
}

#[test]
fn convolutions_place_windows_as_they_are_told() {
    // 3×3 of 1 to 9, a kernel of ones.
    let (x, w) = (grid(&[1, 1, 3, 3]), f32s(&[4], &[1.0; 4]));
    let go = |f: Change<Convolution>| conv(x.clone(), 1, &[2, 2], w.clone(), f).unwrap();
    assert_eq!(go(|l| Ok(l)), f32s(&[1, 1, 2, 2], &[12.0, 16.0, 24.0, 28.0]));
    assert_eq!(go(|l| l.set_stride_nd(&[2, 2])), f32s(&[1, 1, 1, 1], &[12.0]));
    let up = go(|l| l.set_stride_nd(&[2, 2])?.set_padding_mode(PaddingMode::ExplicitRoundUp));
    assert_eq!(up, f32s(&[1, 1, 2, 2], &[12.0, 9.0, 15.0, 9.0]));
    let same =
        go(|l| l.set_stride_nd(&[2, 2])?.set_padding_mode(PaddingMode::SameUpper)?.set_padding_nd(&[7, 7]));
    assert_eq!(same, f32s(&[1, 1, 2, 2], &[12.0, 9.0, 15.0, 9.0]));
    let lower = go(|l| l.set_stride_nd(&[2, 2])?.set_padding_mode(PaddingMode::SameLower));
    assert_eq!(lower, f32s(&[1, 1, 2, 2], &[1.0, 5.0, 11.0, 28.0]));
    assert_eq!(go(|l| l.set_dilation_nd(&[2, 2])), f32s(&[1, 1, 1, 1], &[20.0]));
    let padded = go(|l| l.set_pre_padding(&[1, 0])?.set_stride_nd(&[2, 1]));
    assert_eq!(padded, f32s(&[1, 1, 2, 2], &[3.0, 5.0, 24.0, 28.0]));
    // Three dimensions: the whole volume at once.
    let volume = conv(
        grid(&[1, 1, 1, 2, 2]),
        2,
        &[1, 2, 2],
        f32s(&[8], &[1.0, 1.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.0]),
        |l| Ok(l),
    );
    assert_eq!(volume.unwrap(), f32s(&[1, 2, 1, 1, 1], &[10.0, 2.0]));
}

#[test]
fn groups_convolve_by_themselves() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[1, 2, 1, 1]);
    let w = f32s(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let l = net.add_convolution_nd(x, 2, &[1, 1], w, Weights::None).unwrap();
    refused(l.set_nb_groups(2), "4 numbers, wants as many as [2, 1, 1, 1] holds");
    // Half as many weights are for two groups.
    let l = net.add_convolution_nd(x, 2, &[1, 1], f32s(&[2], &[5.0, 7.0]), Weights::None).unwrap();
    let y = l.set_nb_groups(2).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[f32s(&[1, 2, 1, 1], &[1.0, 10.0])]);
    assert_eq!(out, [f32s(&[1, 2, 1, 1], &[5.0, 70.0])]);
}

#[test]
fn kernels_and_biases_may_be_computed() {
    let go = |w: Tensor, bias: Tensor| {
        through(&[grid(&[1, 1, 2, 2]), w, bias], |n, x| {
            n.add_convolution_nd(x[0], 1, &[2, 2], x[1], x[2])?.output(0)
        })
    };
    let y = go(f32s(&[1, 1, 2, 2], &[1.0, 0.0, 0.0, 2.0]), f32s(&[1], &[0.5])).unwrap();
    assert_eq!(y, f32s(&[1, 1, 1, 1], &[9.5]));
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[1, 1, 2, 2]);
    let w = input(&mut net, "w", DType::F32, &[1, 1, 2, 2]);
    let l = net.add_convolution_nd(x, 1, &[2, 2], f32s(&[4], &[1.0; 4]), Weights::None).unwrap();
    refused(l.set_input(1, w), "kernel weights\" is given, wants absent");
    refused(
        net.add_convolution_nd(x, 1, &[2, 2], Weights::None, Weights::None),
        "\"kernel weights\") is missing",
    );
}

#[test]
fn convolutions_refuse_what_they_can_not_do() {
    let ones = |n: usize| f32s(&[n], &vec![1.0; n]);
    refused(conv(grid(&[1, 1, 3]), 1, &[2], ones(2), |l| Ok(l)), "two or three spatial dimensions");
    refused(
        conv(grid(&[1, 1, 3, 3]), 1, &[2, 2], ones(3), |l| Ok(l)),
        "3 numbers, wants as many as [1, 1, 2, 2]",
    );
    refused(
        conv(grid(&[1, 3, 3, 3]), 4, &[1, 1], ones(12), |l| l.set_nb_groups(2)),
        "a divisor of 3 channels",
    );
    let x = ints(DType::I32, &[1, 1, 2, 2], &[1; 4]);
    refused(conv(x, 1, &[1, 1], ones(1), |l| Ok(l)), "is i32, wants a float type or i8");
    let mut net = Network::new("n");
    let x = net
        .add_input("x", TensorType::new(DType::F32, [1.into(), Dim::host("c"), 2.into(), 2.into()]))
        .unwrap();
    refused(net.add_convolution_nd(x, 1, &[1, 1], ones(1), Weights::None), "a constant number of channels");
    let bad = conv(grid(&[1, 1, 3, 3]), 1, &[2, 2], ones(4), |l| l.set_pre_padding(&[-1, 0]));
    refused(bad, "2 numbers of 0 or more");
    let huge = [1i64 << 31; 3];
    let far = conv(grid(&[1, 1, 1, 2, 2]), 1, &huge, ones(1), |l| Ok(l));
    refused(far, "1 numbers, wants as many as");
}

#[test]
fn groups_of_narrow_integers_are_multiples_of_four() {
    let go = |channels: i64| {
        let n = channels as usize;
        let x = ints(DType::I8, &[1, n, 1, 1], &vec![1; n]);
        let w = ints(DType::I8, &[n, n / 2, 1, 1], &vec![2; n * n / 2]);
        through(&[x, w], |n, x| n.add_convolution_nd(x[0], channels, &[1, 1], x[1], Weights::None)?.output(0))
    };
    assert_eq!(go(8).unwrap().to_i64(), [8; 8]);
    refused(go(6), "groups of a multiple of 4 channels");
}

#[test]
fn deconvolutions_are_transposes() {
    let go = |f: Change<Deconvolution>| {
        through(&[grid(&[1, 1, 2, 2])], |n, x| {
            f(n.add_deconvolution_nd(x[0], 1, &[2, 2], f32s(&[4], &[1.0; 4]), f32s(&[1], &[0.0]))?)?.output(0)
        })
    };
    assert_eq!(go(|l| Ok(l)).unwrap(), f32s(&[1, 1, 3, 3], &[1.0, 3.0, 2.0, 4.0, 10.0, 6.0, 3.0, 7.0, 4.0]));
    let spread = go(|l| l.set_stride_nd(&[2, 2])).unwrap();
    assert_eq!(spread.shape(), [1, 1, 4, 4]);
    assert_eq!(go(|l| l.set_padding_nd(&[1, 1])).unwrap(), f32s(&[1, 1, 1, 1], &[10.0]));
    // The padding is 1 in all: after for same_upper, before for same_lower.
    let upper = go(|l| l.set_padding_mode(PaddingMode::SameUpper)).unwrap();
    assert_eq!(upper, f32s(&[1, 1, 2, 2], &[1.0, 3.0, 4.0, 10.0]));
    let lower = go(|l| l.set_padding_mode(PaddingMode::SameLower)).unwrap();
    assert_eq!(lower, f32s(&[1, 1, 2, 2], &[10.0, 6.0, 7.0, 4.0]));
    // A stride beyond the kernel: (I − 1)·S + K.
    let far = go(|l| l.set_stride_nd(&[3, 3])?.set_padding_mode(PaddingMode::SameUpper)).unwrap();
    assert_eq!(far.shape(), [1, 1, 5, 5]);
    refused(go(|l| l.set_pre_padding(&[-1, 0])), "2 numbers of 0 or more");
}

fn pool(kind: PoolingKind, f: Change<Pooling>) -> Result<Tensor, NetworkError> {
    through(&[grid(&[1, 1, 3, 3])], |n, x| f(n.add_pooling_nd(x[0], kind, &[2, 2])?)?.output(0))
}

#[test]
fn poolings_and_blends() {
    let max = pool(PoolingKind::Max, |l| Ok(l)).unwrap();
    assert_eq!(max, f32s(&[1, 1, 2, 2], &[5.0, 6.0, 8.0, 9.0]));
    let mean = pool(PoolingKind::Average, |l| Ok(l)).unwrap();
    assert_eq!(mean, f32s(&[1, 1, 2, 2], &[3.0, 4.0, 6.0, 7.0]));
    let blend = pool(PoolingKind::MaxAverageBlend, |l| l.set_blend_factor(0.25)).unwrap();
    assert_eq!(blend, f32s(&[1, 1, 2, 2], &[4.5, 5.5, 7.5, 8.5]));
    let padded: Change<Pooling> = |l| l.set_padding_nd(&[1, 1])?.set_stride_nd(&[2, 2]);
    let mean = pool(PoolingKind::Average, padded).unwrap();
    assert_eq!(mean, f32s(&[1, 1, 2, 2], &[1.0, 2.5, 5.5, 7.0]));
    let all = pool(PoolingKind::Average, |l| {
        l.set_padding_nd(&[1, 1])?.set_stride_nd(&[2, 2])?.set_average_count_excludes_padding(false)
    });
    assert_eq!(all.unwrap(), f32s(&[1, 1, 2, 2], &[0.25, 1.25, 2.75, 7.0]));
    let up =
        pool(PoolingKind::Max, |l| l.set_stride_nd(&[2, 2])?.set_padding_mode(PaddingMode::ExplicitRoundUp));
    assert_eq!(up.unwrap(), f32s(&[1, 1, 2, 2], &[5.0, 6.0, 8.0, 9.0]));
    let same = pool(PoolingKind::Max, |l| l.set_padding_mode(PaddingMode::SameUpper)).unwrap();
    assert_eq!(same, f32s(&[1, 1, 3, 3], &[5.0, 6.0, 6.0, 8.0, 9.0, 9.0, 8.0, 9.0, 9.0]));
    refused(pool(PoolingKind::MaxAverageBlend, |l| l.set_blend_factor(1.5)), "in 0 to 1");
    refused(pool(PoolingKind::Max, |l| l.set_window_size_nd(&[2])), "2 numbers of 1 or more");
    let x = ints(DType::I32, &[1, 1, 2, 2], &[1; 4]);
    refused(through(&[x], |n, x| n.add_pooling_nd(x[0], PoolingKind::Max, &[2, 2])?.output(0)), "is i32");
    let x = ints(DType::I8, &[1, 1, 2, 2], &[1; 4]);
    let blend =
        through(&[x], |n, x| n.add_pooling_nd(x[0], PoolingKind::MaxAverageBlend, &[2, 2])?.output(0));
    refused(blend, "is i8, wants a float type");
    refused(pool(PoolingKind::Max, |l| l.set_window_size_nd(&[i64::MAX, 2])), "2^31 at most");
}

#[test]
fn scales_count_their_coefficients() {
    let x = || grid(&[1, 2, 1, 2]);
    let go = |mode, shift: Option<Tensor>, scale: Option<Tensor>, power: Option<Tensor>| {
        through(&[x()], |n, x| n.add_scale_nd(x[0], mode, shift, scale, power, 1)?.output(0))
    };
    let one = |v| Some(f32s(&[1], &[v]));
    let y = go(ScaleMode::Uniform, one(1.0), one(2.0), one(2.0)).unwrap();
    assert_eq!(y, f32s(&[1, 2, 1, 2], &[9.0, 25.0, 49.0, 81.0]));
    let y = go(ScaleMode::Channel, Some(f32s(&[2], &[10.0, 20.0])), None, None).unwrap();
    assert_eq!(y, f32s(&[1, 2, 1, 2], &[11.0, 12.0, 23.0, 24.0]));
    let y = go(ScaleMode::Elementwise, None, Some(f32s(&[4], &[1.0, 0.0, 2.0, 3.0])), None).unwrap();
    assert_eq!(y, f32s(&[1, 2, 1, 2], &[1.0, 0.0, 6.0, 12.0]));
    assert_eq!(go(ScaleMode::Uniform, None, None, None).unwrap(), x());
    refused(go(ScaleMode::Channel, one(1.0), None, None), "\"shift\" is 1 numbers, wants 2");
    let y = through(&[x()], |n, x| {
        n.add_scale(x[0], ScaleMode::Channel, None, Some(f32s(&[2], &[0.0, 1.0])), None)?.output(0)
    });
    assert_eq!(y.unwrap(), f32s(&[1, 2, 1, 2], &[0.0, 0.0, 3.0, 4.0]));
    let flat =
        through(&[grid(&[2, 2])], |n, x| n.add_scale(x[0], ScaleMode::Uniform, None, None, None)?.output(0));
    refused(flat, "at least 4 dimensions");
}

#[test]
fn lrn_has_limits() {
    let go = |w, alpha, beta, k| {
        through(&[f32s(&[1, 3, 1, 1], &[1.0, 2.0, 3.0])], |n, x| {
            n.add_lrn(x[0], w, alpha, beta, k)?.output(0)
        })
    };
    // Windows over channels: 1 + 4, 1 + 4 + 9, 4 + 9, times α/3, plus k.
    let y = go(3, 3.0, 1.0, 1.0).unwrap().to_f64();
    for (y, want) in y.iter().zip([1.0 / 6.0, 2.0 / 15.0, 3.0 / 14.0]) {
        assert!((y - want).abs() < 1e-6);
    }
    refused(go(2, 1.0, 1.0, 1.0), "odd, 1 to 15");
    refused(go(17, 1.0, 1.0, 1.0), "odd, 1 to 15");
    refused(go(3, 1.0, 0.001, 1.0), "\"beta\"");
    refused(go(3, 1e21, 1.0, 1.0), "\"alpha\"");
    refused(go(3, 1.0, 1.0, 1e-6), "\"k\"");
}

fn resize(x: Tensor, f: Change<Resize>) -> Result<Tensor, NetworkError> {
    through(&[x], |n, x| f(n.add_resize(x[0])?)?.output(0))
}

#[test]
fn resizes_by_dimensions_and_scales() {
    let x = || f32s(&[1, 1, 1, 2], &[1.0, 3.0]);
    let y = resize(x(), |l| l.set_output_dimensions(&[1, 1, 1, 4])).unwrap();
    assert_eq!(y, f32s(&[1, 1, 1, 4], &[1.0, 1.0, 3.0, 3.0]));
    let y = resize(x(), |l| l.set_scales(&[1.0, 1.0, 2.0, 1.5])).unwrap();
    assert_eq!(y.shape(), [1, 1, 2, 3]);
    let linear: Change<Resize> = |l| {
        let l = l.set_output_dimensions(&[1, 1, 1, 4])?.set_resize_mode(InterpolationMode::Linear)?;
        l.set_coordinate_transformation(ResizeCoordinates::HalfPixel)
    };
    assert_eq!(resize(x(), linear).unwrap(), f32s(&[1, 1, 1, 4], &[1.0, 1.5, 2.5, 3.0]));
    let corners: Change<Resize> = |l| {
        let l = l.set_output_dimensions(&[1, 1, 1, 3])?.set_resize_mode(InterpolationMode::Linear)?;
        l.set_coordinate_transformation(ResizeCoordinates::AlignCorners)
    };
    assert_eq!(resize(x(), corners).unwrap(), f32s(&[1, 1, 1, 3], &[1.0, 2.0, 3.0]));
    // One output: where the formula says, or the first.
    let single: Change<Resize> = |l| {
        let l = l.set_output_dimensions(&[1, 1, 1, 1])?.set_resize_mode(InterpolationMode::Linear)?;
        l.set_coordinate_transformation(ResizeCoordinates::HalfPixel)
    };
    assert_eq!(resize(x(), single).unwrap().to_f64(), [2.0]);
    let upper: Change<Resize> = |l| {
        let l = l.set_output_dimensions(&[1, 1, 1, 1])?.set_resize_mode(InterpolationMode::Linear)?;
        let l = l.set_coordinate_transformation(ResizeCoordinates::HalfPixel)?;
        l.set_selector_for_single_pixel(ResizeSelector::Upper)
    };
    assert_eq!(resize(x(), upper).unwrap().to_f64(), [1.0]);
    for (rounding, want) in [
        (ResizeRounding::Floor, [1.0, 1.0, 3.0, 3.0]),
        (ResizeRounding::Ceil, [1.0, 3.0, 3.0, 3.0]),
        (ResizeRounding::HalfUp, [1.0, 3.0, 3.0, 3.0]),
        (ResizeRounding::HalfDown, [1.0, 1.0, 3.0, 3.0]),
    ] {
        let y = through(&[x()], |n, x| {
            n.add_resize(x[0])?
                .set_output_dimensions(&[1, 1, 1, 4])?
                .set_nearest_rounding(rounding)?
                .output(0)
        });
        assert_eq!(y.unwrap(), f32s(&[1, 1, 1, 4], &want), "{rounding:?}");
    }
    assert_eq!(resize(x(), |l| Ok(l)).unwrap(), x());
    refused(resize(x(), |l| l.set_output_dimensions(&[1, 2])), "4 numbers, one for each dimension");
    let wide: Change<Resize> =
        |l| l.set_output_dimensions(&[2, 2, 2, 3])?.set_resize_mode(InterpolationMode::Linear);
    refused(resize(x(), wide), "nearest, as 4 dimensions change (3 at most)");
    let cubic: Change<Resize> =
        |l| l.set_output_dimensions(&[1, 2, 2, 3])?.set_resize_mode(InterpolationMode::Cubic);
    refused(resize(x(), cubic), "(2 at most)");
}

#[test]
fn a_resize_to_a_tensor_stays_dynamic() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[1, 2]);
    let dims = input(&mut net, "dims", DType::I64, &[2]);
    let l = net.add_resize(x).unwrap().set_input(1, dims).unwrap();
    let (id, y) = (l.id(), l.output(0).unwrap());
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[f32s(&[1, 2], &[1.0, 3.0]), ints(DType::I64, &[2], &[2, 2])]);
    assert_eq!(out, [f32s(&[2, 2], &[1.0, 3.0, 1.0, 3.0])]);
    refused(net.layer_of::<Resize>(id).unwrap().set_scales(&[1.0, 1.0]), "can't become a constant again");
    refused(
        net.layer_of::<Resize>(id).unwrap().set_output_dimensions(&[1, 1]),
        "can't become a constant again",
    );
}

#[test]
fn grid_samples_read_outside_as_told() {
    let x = f32s(&[1, 1, 1, 2], &[1.0, 3.0]);
    let g = f32s(&[1, 1, 3, 2], &[-0.5, 0.0, 0.0, 0.0, 1.5, 0.0]);
    let go = |outside| {
        through(&[x.clone(), g.clone()], |n, x| {
            n.add_grid_sample(x[0], x[1])?.set_sample_mode(outside)?.output(0)
        })
    };
    assert_eq!(go(SampleMode::Fill).unwrap(), f32s(&[1, 1, 1, 3], &[1.0, 2.0, 0.0]));
    assert_eq!(go(SampleMode::Clamp).unwrap(), f32s(&[1, 1, 1, 3], &[1.0, 2.0, 3.0]));
    refused(go(SampleMode::Wrap), "Clamp, Fill or Reflect");
    let flat = through(&[f32s(&[2], &[0.0; 2]), g.clone()], |n, x| n.add_grid_sample(x[0], x[1])?.output(0));
    refused(flat, "4 or 5 dimensions");
}
