use super::*;
use crate::testing::{assert_near, iota, run};
use kiln_ir::dim::Bindings;
use kiln_ir::infer::Fact;
use kiln_ir::op::Op;

fn slice(x: &Tensor, params: [&[i64]; 4]) -> Tensor {
    let mut ins = vec![x.clone()];
    ins.extend(params.map(|v| Tensor::i64(&[v.len()], v).unwrap()));
    run("slice", Attrs::new(), &ins)
}

#[test]
fn boxes_steps_and_reversal() {
    let x = iota(&[2, 4]);
    assert_near(&slice(&x, [&[1, 0], &[2, 3], &[0, 1], &[1, 2]]), &[1, 2], &[4.0, 6.0], 0.0);
    assert_near(&slice(&x, [&[0, 1], &[-1, 1000], &[0, 1], &[1, 1]]), &[1, 3], &[1.0, 2.0, 3.0], 0.0);
    let v = iota(&[5]);
    assert_near(&slice(&v, [&[-1], &[-100], &[0], &[-2]]), &[3], &[4.0, 2.0, 0.0], 0.0);
    assert_near(&slice(&v, [&[20], &[0], &[0], &[-1]]), &[4], &[4.0, 3.0, 2.0, 1.0], 0.0);
    assert_near(&slice(&v, [&[3], &[3], &[0], &[1]]), &[0], &[], 0.0);
    // By the letter of ONNX a start before the front is cut to 0 even for a negative step.
    assert_near(&slice(&v, [&[-9], &[-9], &[0], &[-1]]), &[1], &[0.0], 0.0);
    assert_near(&slice(&iota(&[0]), [&[-1], &[i64::MIN], &[0], &[-1]]), &[0], &[], 0.0);
    assert_near(&slice(&v, [&[i64::MIN], &[i64::MAX], &[0], &[i64::MAX]]), &[1], &[0.0], 0.0);
}

/// The length as an expression is the number of indices, for every size and all kinds of bounds.
#[test]
fn symbolic_lengths_agree_with_counting() {
    let n = Dim::host("n");
    let bounds = [-i64::MAX, -9, -3, -2, -1, 0, 1, 2, 5, i32::MAX as i64, i64::MAX];
    for start in bounds {
        for end in bounds {
            for step in [1, 2, 3, -1, -2] {
                let Some(len) = length(&n, &start.into(), &end.into(), step) else { continue };
                for d in 0..8 {
                    let mut b = Bindings::default();
                    b.bind(&"n".into(), d).unwrap();
                    let want = window(d, start, end, step).len;
                    assert_eq!(len.eval(&b), Ok(want), "{start}..{end} by {step} of {d}: {len}");
                }
            }
        }
    }
}

#[test]
fn lengths_that_models_rely_on_are_plain() {
    let (n, s) = (Dim::host("n"), Dim::host("s"));
    let len = |d: &Dim, a: i64, b: i64| length(d, &a.into(), &b.into(), 1).unwrap();
    assert_eq!(len(&n, 0, i64::MAX), n);
    assert_eq!(len(&n, -i64::MAX, i32::MAX as i64), n);
    assert_eq!(len(&n, 1, i64::MAX), len(&n, 0, -1));
    assert_eq!(length(&n, &0.into(), &n, 1), Some(n.clone()));
    assert_eq!(length(&512.into(), &0.into(), &s, 1), Some(s.min_with(&512.into())));
    assert_eq!(length(&n, &0.into(), &Dim::content("c"), 1), None);
}

fn fact(v: &[Dim]) -> Option<Fact> {
    Some(Fact::contents(TensorType::new(DType::I64, [v.len() as i64]), v.to_vec()))
}

#[test]
fn contents_are_sliced() {
    let shape: Vec<Dim> = vec![Dim::host("b"), Dim::host("s"), 64.into()];
    let ins = [fact(&shape), fact(&[0.into()]), fact(&[2.into()])];
    let out = Op::new("slice", Attrs::new()).unwrap().infer(&ins, "t").unwrap();
    assert_eq!(out[0].as_dims(), Some(shape[..2].to_vec()));
}

#[test]
fn unknown_bounds_give_fresh_dimensions() {
    let x = Some(Fact::of(TensorType::new(DType::F32, [Dim::host("n"), 4.into()])));
    let unknown = Some(Fact::of(TensorType::new(DType::I64, [1])));
    let op = Op::new("slice", Attrs::new()).unwrap();
    let out = op.infer(&[x.clone(), fact(&[0.into()]), unknown], "t").unwrap();
    let d = &out[0].ty.dims;
    assert_eq!(
        (d[0].kind(), d[0].upper_bound(), &d[1]),
        (kiln_ir::DimKind::Device, Some(Dim::host("n")), &4.into())
    );
    let out = op.infer(&[x, fact(&[0.into()]), fact(&[Dim::content("c")])], "t").unwrap();
    assert_eq!(out[0].ty.dims[0].kind(), kiln_ir::DimKind::Host);
}

#[test]
fn mistakes_are_named() {
    let op = Op::new("slice", Attrs::new()).unwrap();
    let x = Some(Fact::constant(iota(&[3])));
    let bad = op.infer(&[x.clone(), fact(&[0.into()]), fact(&[1.into()]), None, fact(&[0.into()])], "t");
    assert!(matches!(bad, Err(OpError::Value(_))));
    let bad = op.infer(&[x.clone(), fact(&[0.into()]), fact(&[1.into(), 2.into()])], "t");
    assert!(matches!(bad, Err(OpError::Shape { input: 2, .. })));
    let bad = op.infer(&[x, fact(&[0.into(), 0.into()]), fact(&[1.into(), 1.into()])], "t");
    assert!(matches!(bad, Err(OpError::Attr { .. })));
}
