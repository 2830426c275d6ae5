use super::*;
use crate::testing::{assert_near, f32s, ints, run_all};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::op::Op;
use kiln_ir::ty::TensorType;

/// Resizes the last axes of a tensor, scales or sizes given as floats.
fn go(x: &Tensor, a: Attrs, scales: &[f64], sizes: &[i64]) -> Tensor {
    let n = scales.len().max(sizes.len());
    let rank = x.shape().len();
    let axes: Vec<i64> = (rank - n..rank).map(|a| a as i64).collect();
    let scales = (!scales.is_empty()).then(|| f32s(&[n], scales));
    let sizes = (!sizes.is_empty()).then(|| ints(DType::I64, &[n], sizes));
    let a = if a.get("axes").is_some() { a } else { a.with("axes", axes) };
    run_all("resize", a, &[Some(x.clone()), None, scales, sizes]).unwrap().remove(0)
}

fn mode(mode: &str, coord: &str) -> Attrs {
    Attrs::new().with("mode", mode).with("coord", coord)
}

fn counting(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(1..=n).map(|i| i as f64).collect::<Vec<_>>())
}

/// Examples of the ONNX documentation.
#[test]
fn linear_by_every_coordinate() {
    let x = counting(&[1, 1, 2, 4]);
    let y = go(&x, mode("linear", "half_pixel"), &[0.6, 0.6], &[]);
    assert_near(&y, &[1, 1, 1, 2], &[2.6666665, 4.3333331], 1e-5);
    let y = go(&x, mode("linear", "align_corners"), &[0.6, 0.6], &[]);
    assert_near(&y, &[1, 1, 1, 2], &[1.0, 3.142857], 1e-5);
    let y = go(&x, mode("linear", "half_pixel").with("antialias", true), &[0.6, 0.6], &[]);
    assert_near(&y, &[1, 1, 1, 2], &[2.875, 4.5], 1e-5);
    let x = counting(&[1, 1, 4, 4]);
    let y = go(&x, mode("linear", "pytorch_half_pixel"), &[], &[3, 1]);
    assert_near(&y, &[1, 1, 3, 1], &[1.6666666, 7.0, 12.333333], 1e-5);
    let row = f32s(&[1, 2], &[1.0, 2.0]);
    let y = go(&row, mode("linear", "half_pixel_symmetric"), &[2.3], &[]);
    assert_near(&y, &[1, 4], &[1.0, 1.2826087, 1.7173913, 2.0], 1e-5);
    let y = go(&row, mode("linear", "asymmetric"), &[2.0], &[]);
    assert_near(&y, &[1, 4], &[1.0, 1.5, 2.0, 2.0], 0.0);
}

/// Examples of the ONNX documentation; the kernel's values are dyadic fractions.
#[test]
fn cubic_repeats_the_border_or_excludes_it() {
    let x = counting(&[1, 1, 4, 4]);
    let y = go(&x, mode("cubic", "half_pixel"), &[2.0, 2.0], &[]);
    let row = [0.47265625, 0.76953125, 1.24609375, 1.875, 2.28125, 2.91015625, 3.38671875, 3.68359375];
    assert_near(&f32s(&[8], &y.to_f64()[..8]), &[8], &row, 1e-6);
    let half = mode("cubic", "half_pixel").with("cubic_a", -0.5).with("exclude_outside", true);
    let y = go(&x, half, &[0.8, 0.8], &[]);
    let want = [
        1.36812675,
        2.6695014,
        4.0133367,
        6.57362535,
        7.875,
        9.2188353,
        11.94896657,
        13.25034122,
        14.59417652,
    ];
    assert_near(&y, &[1, 1, 3, 3], &want, 1e-5);
    let y = go(&x, mode("cubic", "half_pixel").with("antialias", true), &[0.6, 0.6], &[]);
    assert_near(&y, &[1, 1, 2, 2], &[2.5180721, 4.2858863, 9.589329, 11.357142], 1e-5);
}

#[test]
fn nearest_by_every_rounding() {
    let x = f32s(&[4], &[10.0, 20.0, 30.0, 40.0]);
    let by = |r: &str| {
        // Places 0, 0.5, 1, … 3.5.
        let a = mode("nearest", "asymmetric").with("nearest_mode", r);
        go(&x, a, &[2.0], &[]).to_f64()
    };
    assert_eq!(by("floor"), [10.0, 10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0]);
    assert_eq!(by("round_prefer_floor"), [10.0, 10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0]);
    assert_eq!(by("ceil"), [10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0, 40.0]);
    assert_eq!(by("round_prefer_ceil"), [10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0, 40.0]);
}

#[test]
fn a_place_just_below_a_tie_is_not_rounded_to_it() {
    let x = 0.5f64.next_down();
    assert_eq!(coord::Rounding::PreferCeil.round(x), 0);
    assert_eq!(coord::Rounding::PreferFloor.round(0.5f64.next_up()), 1);
    assert_eq!(coord::Rounding::PreferFloor.round(-0.5), -1);
}

#[test]
fn policies_keep_the_aspect_ratio_and_round_half_up() {
    let x = counting(&[2, 4]);
    let go = |policy: &str, sizes: &[i64]| go(&x, Attrs::new().with("policy", policy), &[], sizes);
    assert_near(&go("not_larger", &[1, 3]), &[1, 2], &[1.0, 3.0], 0.0);
    assert_eq!(go("not_smaller", &[1, 3]).shape(), [2, 3]);
    assert_eq!(go("not_larger", &[7, 9]).shape(), [5, 9], "scale 2.25: 4.5 rounds to 5");
}

/// The crop of rows 1.2–3.6 of 0..7, in thirds, with the places outside marked.
#[test]
fn a_region_and_what_lies_outside_of_it() {
    let x = f32s(&[7], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let crop = |from: f64, to: f64, n: i64| {
        let a = mode("linear", "tf_crop_and_resize").with("extrapolation", -9.0);
        let inputs = [x.clone(), f32s(&[2], &[from, to])].map(Some);
        let inputs = [&inputs[..], &[None, Some(ints(DType::I64, &[1], &[n]))]].concat();
        run_all("resize", a, &inputs).unwrap().remove(0)
    };
    assert_near(&crop(0.25, 0.75, 4), &[4], &[1.5, 2.5, 3.5, 4.5], 1e-5);
    assert_near(&crop(0.5, 1.5, 3), &[3], &[3.0, 6.0, -9.0], 1e-5);
    assert_near(&crop(0.25, 0.75, 1), &[1], &[3.0], 1e-5);
    assert_near(&crop(-0.5, 0.5, 2), &[2], &[-9.0, 3.0], 1e-5);
}

#[test]
fn axes_need_not_be_in_order_and_integers_saturate() {
    let x = counting(&[1, 2, 3]);
    let a = Attrs::new().with("axes", vec![2i64, 1]);
    assert_eq!(go(&x, a, &[], &[6, 2]).shape(), [1, 2, 6]);
    let x = ints(DType::U8, &[4], &[0, 255, 255, 0]);
    let y = go(&x, mode("cubic", "half_pixel"), &[2.0], &[]);
    assert_eq!(y.to_i64()[3..5], [255, 255], "the cubic filter overshoots");
    assert_eq!(y.to_i64()[0], 0);
}

#[test]
fn other_dimensions_do_not_mix() {
    let x = f32s(&[2, 2], &[f64::NAN, 1.0, 2.0, 4.0]);
    let y = go(&x, mode("linear", "align_corners"), &[], &[3]);
    assert_near(&y, &[2, 3], &[f64::NAN, f64::NAN, 1.0, 2.0, 3.0, 4.0], 0.0);
}

#[test]
fn output_sizes_are_rounded_in_f32_and_follow_symbols() {
    let n = Dim::host("n");
    let scaled = |scale: f64| plan::scaled(&n, f64::from(scale as f32));
    assert_eq!(scaled(2.0), Some(n.clone() * 2.into()));
    assert_eq!(scaled(0.5), Some(n.floor_div(&2.into())));
    assert_eq!(scaled(0.7), None);
    // 0.7 is a little less than 7/10 in f32, but 10 times it rounds to 7.
    assert_eq!(plan::scaled(&10.into(), f64::from(0.7f32)), Some(7.into()));
    let op = Op::new("resize", Attrs::new()).unwrap();
    let x = Some(Fact::of(TensorType { dtype: DType::F32, dims: vec![1.into(), n] }));
    let infer = |scales: Tensor| op.infer(&[x.clone(), None, Some(Fact::constant(scales))], "r");
    assert_eq!(infer(f32s(&[2], &[1.0, 3.0])).unwrap()[0].ty.to_string(), "f32[1,3*n]");
    assert_eq!(infer(f32s(&[2], &[1.0, 0.3])).unwrap()[0].ty.to_string(), "f32[1,r.d1]");
    assert!(infer(f32s(&[2], &[1.0, 0.0])).is_err());
    let sizes = Fact::contents(TensorType::new(DType::I64, [2]), vec![1.into(), Dim::host("m")]);
    let y = op.infer(&[x.clone(), None, None, Some(sizes)], "r").unwrap();
    assert_eq!(y[0].ty.to_string(), "f32[1,m]");
}

#[test]
fn mistakes_are_named() {
    let x = Some(counting(&[2, 4]));
    let scales = Some(f32s(&[2], &[1.0, 2.0]));
    let sizes = Some(ints(DType::I64, &[2], &[2, 8]));
    let fails = |a: Attrs, inputs: &[Option<Tensor>]| run_all("resize", a, inputs).unwrap_err().to_string();
    assert_eq!(fails(Attrs::new(), std::slice::from_ref(&x)), "wants either scales or sizes");
    assert!(fails(Attrs::new(), &[x.clone(), None, scales.clone(), sizes]).contains("either"));
    let one = Attrs::new().with("axes", vec![1i64]);
    assert!(fails(one, &[x.clone(), None, scales.clone()]).contains("[1], for the axes"));
    let smooth = Attrs::new().with("antialias", true);
    assert!(fails(smooth, &[x.clone(), None, scales.clone()]).contains("false with mode nearest"));
    let crop = mode("linear", "tf_crop_and_resize");
    assert!(fails(crop, &[x, None, scales.clone()]).contains("\"roi\""));
    assert!(
        fails(Attrs::new(), &[Some(counting(&[2, 0])), None, None, Some(ints(DType::I64, &[2], &[2, 3]))])
            .contains("at least one element")
    );
}
