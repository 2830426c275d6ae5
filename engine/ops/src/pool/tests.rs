use super::*;
use crate::testing::{assert_near, f32s, infer, ints, iota, run, run_all};

fn pool(op: &str, kernel: &[i64]) -> Attrs {
    Attrs::new().with("op", op).with("kernel", kernel)
}

#[test]
fn the_three_ops_on_a_row() {
    let x = f32s(&[1, 1, 4], &[3.0, -4.0, 0.0, 2.0]);
    let go = |a: Attrs| run("pool", a, std::slice::from_ref(&x));
    assert_near(&go(pool("max", &[2])), &[1, 1, 3], &[3.0, 0.0, 2.0], 0.0);
    assert_near(&go(pool("average", &[2])), &[1, 1, 3], &[-0.5, -2.0, 1.0], 0.0);
    assert_near(&go(pool("lp", &[2])), &[1, 1, 3], &[5.0, 4.0, 2.0], 1e-6);
    assert_near(&go(pool("lp", &[2]).with("p", 1i64)), &[1, 1, 3], &[7.0, 4.0, 2.0], 1e-6);
}

/// Example of the ONNX documentation: 1 … 25, 3×3, padding 2 around.
#[test]
fn averages_count_padding_only_if_told() {
    let v: Vec<f64> = (1..=25).map(f64::from).collect();
    let x = f32s(&[1, 1, 5, 5], &v);
    let attrs = pool("average", &[5, 5]).with("pads", vec![2i64; 4]);
    let y = run("pool", attrs.clone(), std::slice::from_ref(&x));
    assert_near(
        &y,
        &[1, 1, 5, 5],
        &[
            7.0, 7.5, 8.0, 8.5, 9.0, 9.5, 10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 13.0, 13.5, 14.0, 14.5, 15.0,
            15.5, 16.0, 16.5, 17.0, 17.5, 18.0, 18.5, 19.0,
        ],
        0.0,
    );
    let y = run("pool", attrs.with("count_include_pad", true), &[x]);
    let want = [2.52, 3.6, 4.8, 4.08, 3.24];
    assert!(y.to_f64().iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
}

#[test]
fn rounding_up_counts_padding_but_nothing_beyond_it() {
    let x = f32s(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let attrs = pool("average", &[3]).with("strides", vec![2i64]).with("count_include_pad", true);
    let y = run("pool", attrs.clone().with("ceil_mode", true), std::slice::from_ref(&x));
    assert_near(&y, &[1, 1, 2], &[2.0, 3.5], 0.0);
    let y = run("pool", attrs.with("ceil_mode", true).with("pads", vec![0i64, 1]), &[x]);
    assert_near(&y, &[1, 1, 2], &[2.0, 7.0 / 3.0], 1e-6);
}

#[test]
fn windows_of_padding_only() {
    let x = f32s(&[1, 1, 1], &[5.0]);
    let go = |op: &str| run("pool", pool(op, &[1]).with("pads", vec![1i64, 1]), std::slice::from_ref(&x));
    assert_near(&go("max"), &[1, 1, 3], &[f64::NEG_INFINITY, 5.0, f64::NEG_INFINITY], 0.0);
    assert_near(&go("average"), &[1, 1, 3], &[0.0, 5.0, 0.0], 0.0);
    let bytes = ints(DType::U8, &[1, 1, 1], &[5]);
    let y = run("pool", pool("max", &[1]).with("pads", vec![1i64, 0]), &[bytes]);
    assert_eq!((y.dtype(), y.to_i64()), (DType::U8, vec![0, 5]));
}

#[test]
fn dilated_maxima_with_nan() {
    let x = f32s(&[1, 1, 5], &[1.0, 9.0, 2.0, f64::NAN, 3.0]);
    let y = run("pool", pool("max", &[2]).with("dilations", vec![2i64]), &[x]);
    assert_near(&y, &[1, 1, 3], &[2.0, f64::NAN, 3.0], 0.0);
}

#[test]
fn positions_by_rows_and_by_columns() {
    let x = iota(&[1, 2, 2, 3]);
    let attrs = |order: i64| Attrs::new().with("kernel", vec![2i64, 2]).with("storage_order", order);
    let go = |order| run_all("max_pool_indices", attrs(order), &[Some(x.clone())]).unwrap();
    assert_near(&go(0)[0], &[1, 2, 1, 2], &[4.0, 5.0, 10.0, 11.0], 0.0);
    assert_eq!(go(0)[1].to_i64(), [4, 5, 10, 11]);
    // Row 1, column 1 of 2×3 is element 1 + 1·2 by columns.
    assert_eq!(go(1)[1].to_i64(), [3, 5, 9, 11]);
    let y = f32s(&[1, 1, 2, 2, 2], &[0.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0]);
    let attrs = Attrs::new().with("kernel", vec![2i64; 3]).with("storage_order", 1i64);
    assert_eq!(run_all("max_pool_indices", attrs, &[Some(y)]).unwrap()[1].to_i64(), [6]);
}

#[test]
fn the_first_of_equals_has_the_position() {
    let x = f32s(&[1, 1, 3], &[4.0, 4.0, 1.0]);
    let attrs = Attrs::new().with("kernel", vec![2i64]).with("pads", vec![2i64, 0]);
    let out = run_all("max_pool_indices", attrs, &[Some(x)]).unwrap();
    assert_near(&out[0], &[1, 1, 4], &[f64::NEG_INFINITY, 4.0, 4.0, 4.0], 0.0);
    assert_eq!(out[1].to_i64(), [-1, 0, 0, 1]);
}

#[test]
fn mistakes_are_named() {
    let fails =
        |a: Attrs, t: DType| infer("pool", a, &[(t, window::dims(&[1, 1, 4, 4]))]).unwrap_err().to_string();
    assert!(fails(pool("max", &[2]), DType::F32).contains("2 numbers, one a spatial dimension"));
    assert!(fails(pool("average", &[2, 2]), DType::U8).contains("f32, f16 or bf16"));
    assert!(fails(pool("max", &[5, 1]), DType::F32).contains("larger than the padded input of 4"));
    assert!(fails(pool("lp", &[1, 1]).with("p", 0i64), DType::F32).contains("\"p\" is 0"));
}
