//! The oracle on extreme shapes and numbers.

use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::Fact;
use kiln_ir::op::Op;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use kiln_ops::testing::{f32s, ints, run, run_all};

fn empty(shape: &[usize]) -> Tensor {
    Tensor::from_bytes(DType::F32, shape, Vec::new()).unwrap()
}

/// Loops over 2^40 elements, or tables of as many, would never end.
#[test]
fn empty_results_of_huge_shapes_are_returned_at_once() {
    let x = empty(&[1 << 40, 0]);
    for (op, attrs) in [
        ("softmax", Attrs::new().with("axis", 1i64)),
        ("log_softmax", Attrs::new().with("axis", 1i64)),
        ("relu", Attrs::new()),
        ("transpose", Attrs::new()),
    ] {
        assert_eq!(run(op, attrs, std::slice::from_ref(&x)).len(), 0, "{op}");
    }
    let both = run("concat", Attrs::new().with("axis", 0i64), &[x.clone(), x.clone()]);
    assert_eq!(both.shape(), [1 << 41, 0]);
    let k = ints(DType::I64, &[1], &[0]);
    let top = run("topk", Attrs::new().with("axis", 1i64), &[x, k]);
    assert_eq!(top.shape(), [1 << 40, 0]);
    let sizes = ints(DType::I64, &[2], &[(1 << 31) - 1, 0]);
    let resized = run_all("resize", Attrs::new(), &[Some(f32s(&[1, 1], &[1.0])), None, None, Some(sizes)]);
    assert_eq!(resized.map(|y| y[0].len()), Ok(0));
}

#[test]
fn results_of_negative_size_are_refused() {
    let x = Fact::of(TensorType::new(DType::F32, [2, -3]));
    let e = Op::new("relu", Attrs::new()).unwrap().infer(&[Some(x)], "t").unwrap_err().to_string();
    assert!(e.contains("f32[2,-3]: size -3 of axis 1"), "{e}");
}

#[test]
fn shapes_whose_strides_overflow_are_refused() {
    let x = Fact::of(TensorType::new(DType::F32, [0, 1 << 40, 1 << 40]));
    let e = Op::new("relu", Attrs::new()).unwrap().infer(&[Some(x)], "t").unwrap_err();
    assert!(matches!(e, OpError::TooLarge(_)), "{e}");
}

#[test]
fn integers_wrap_and_never_panic() {
    let two = |op: &str, t: DType, a: i64, b: i64| {
        run(op, Attrs::new(), &[ints(t, &[1], &[a]), ints(t, &[1], &[b])]).to_i64()[0]
    };
    for (t, least) in [(DType::I8, -128), (DType::I32, i64::from(i32::MIN)), (DType::I64, i64::MIN)] {
        assert_eq!(two("div", t, least, -1), least, "{t}");
        assert_eq!(two("floor_div", t, least, -1), least, "{t}");
        assert_eq!(two("mod", t, least, -1), 0, "{t}");
        assert_eq!(two("rem", t, least, -1), 0, "{t}");
        assert_eq!(two("mod", t, 7, 0), 0, "{t}");
    }
    assert_eq!(
        two("pow", DType::I64, 3, (1 << 32) + 1),
        3i64.wrapping_pow(1 << 31).wrapping_pow(2).wrapping_mul(3)
    );
    assert_eq!(two("pow", DType::I64, -1, (1 << 40) + 1), -1);
    assert_eq!(two("pow", DType::I64, 2, 1 << 40), 0);
    assert_eq!(two("pow", DType::I32, 3, 40), i64::from(3i32.wrapping_pow(40)));
}

#[test]
fn slices_and_pads_of_extreme_numbers() {
    let x = f32s(&[4], &[0.0, 1.0, 2.0, 3.0]);
    let one = |n: i64| ints(DType::I64, &[1], &[n]);
    let y = run("slice", Attrs::new(), &[x.clone(), one(1), one(i64::MAX), one(0), one(i64::MAX)]);
    assert_eq!(y.to_f64(), [1.0]);
    let y = run("slice", Attrs::new(), &[x.clone(), one(2), one(i64::MIN), one(0), one(i64::MIN)]);
    assert_eq!(y.to_f64(), [2.0]);
    for pads in [[i64::MAX, i64::MAX], [i64::MIN, 0], [1 << 62, -(1 << 62)]] {
        let e = run_all("pad", Attrs::new(), &[Some(x.clone()), Some(ints(DType::I64, &[2], &pads))]);
        assert!(matches!(e, Err(OpError::Value(_))), "{pads:?}");
    }
    assert_eq!(kiln_ops::slice::window::window(-5, 0, i64::MAX, 1).len, 0);
}
