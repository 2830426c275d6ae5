use crate::testing::{assert_near, f32s, floats, infer, run_all};
use kiln_ir::{Attrs, DType, Dim, Tensor};

fn attrs(q: i64, kv: i64, rule: &str) -> Attrs {
    Attrs::new().with("q_heads", q).with("kv_heads", kv).with("rule", rule)
}

fn run(attrs: Attrs, ins: &[Option<Tensor>]) -> Vec<Tensor> {
    run_all("linear_attention", attrs.with("scale", 1.0), ins).unwrap()
}

const LN2: f64 = std::f64::consts::LN_2;

#[test]
fn every_rule_by_hand() {
    // One head, keys of two elements, values of one: S = (s0, s1).
    let q = f32s(&[1, 2, 2], &[1.0, 0.0, 1.0, 1.0]);
    let k = f32s(&[1, 2, 2], &[1.0, 0.0, 1.0, 1.0]);
    let v = f32s(&[1, 2, 1], &[3.0, 5.0]);
    let past = f32s(&[1, 1, 2, 1], &[2.0, 4.0]);
    let g = f32s(&[1, 2, 2], &[-LN2, 0.0, 0.0, -LN2]);
    let beta = f32s(&[1, 2, 1], &[0.5, 1.0]);
    let [q, k, v, past, g, beta] = [q, k, v, past, g, beta].map(Some);
    let first = [q.clone(), k.clone(), v.clone(), past];
    let with = |g: &Option<Tensor>, b: &Option<Tensor>| [&first[..], &[g.clone(), b.clone()]].concat();
    // (2,4) → (5,4) → (10,9).
    let out = run(attrs(1, 1, "linear"), &with(&None, &None));
    assert_near(&out[0], &[1, 2, 1], &[5.0, 19.0], 1e-6);
    assert_near(&out[1], &[1, 1, 2, 1], &[10.0, 9.0], 1e-6);
    // (1,4)+3(1,0) = (4,4) → (4,2)+5(1,1) = (9,7).
    let out = run(attrs(1, 1, "gated"), &with(&g, &None));
    assert_near(&out[0], &[1, 2, 1], &[4.0, 16.0], 1e-6);
    // w = (3−2)/2 → (2.5,4); w = 5−6.5 → (1,2.5).
    let out = run(attrs(1, 1, "delta"), &with(&None, &beta));
    assert_near(&out[0], &[1, 2, 1], &[2.5, 3.5], 1e-6);
    // (1,4): w = (3−1)/2 → (2,4) → (2,2): w = 5−4 → (3,3).
    let out = run(attrs(1, 1, "gated_delta"), &with(&g, &beta));
    assert_near(&out[0], &[1, 2, 1], &[2.0, 6.0], 1e-6);
    assert_near(&out[1], &[1, 1, 2, 1], &[3.0, 3.0], 1e-6);
}

#[test]
fn queries_share_states_in_groups_and_states_have_a_type_of_their_own() {
    let t = DType::F16;
    let q = floats(t, &[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let k = floats(t, &[1, 1, 2], &[1.0, 10.0]);
    let v = floats(t, &[1, 1, 2], &[1.0, 1.0]);
    let out = run(attrs(4, 2, "linear"), &[Some(q.clone()), Some(k.clone()), Some(v.clone())]);
    assert_near(&out[0], &[1, 1, 4], &[1.0, 2.0, 30.0, 40.0], 0.0);
    assert_eq!(out[1].dtype(), t);
    let past = f32s(&[1, 2, 1, 1], &[0.0, 1.0]);
    let out = run(attrs(4, 2, "linear"), &[Some(q), Some(k), Some(v), Some(past)]);
    assert_near(&out[0], &[1, 1, 4], &[1.0, 2.0, 33.0, 44.0], 0.0);
    assert_eq!((out[0].dtype(), out[1].dtype()), (t, DType::F32));
}

#[test]
fn shapes_follow_symbols_and_misfits_are_named() {
    let (b, s) = (Dim::host("b"), Dim::host("s"));
    let f = DType::F32;
    let of = |n: i64| (f, vec![b.clone(), s.clone(), Dim::new(n)]);
    let out = infer("linear_attention", attrs(4, 2, "linear"), &[of(32), of(16), of(6)]).unwrap();
    assert_eq!(out[0].ty.dims, [b.clone(), s.clone(), 12.into()]);
    assert_eq!(out[1].ty.dims, [b.clone(), 2.into(), 8.into(), 3.into()]);
    let bad =
        |a: Attrs, ins: &[(DType, Vec<Dim>)]| infer("linear_attention", a, ins).unwrap_err().to_string();
    assert!(bad(attrs(3, 2, "linear"), &[of(32), of(16), of(6)]).contains("multiple of kv_heads (2)"));
    assert!(bad(attrs(4, 2, "linear"), &[of(32), of(18), of(6)]).contains("head size of 8"));
    assert!(bad(attrs(4, 2, "linear"), &[of(32), of(16), of(7)]).contains("2 heads"));
    assert!(bad(attrs(4, 2, "gated"), &[of(32), of(16), of(6)]).contains("decay"));
    let past = (f, vec![b.clone(), 2.into(), 8.into(), 3.into()]);
    let all = [of(32), of(16), of(6), past, of(16)];
    assert!(infer("linear_attention", attrs(4, 2, "gated"), &all).is_ok());
    assert!(bad(attrs(4, 2, "linear"), &all).contains("does not read it"));
    let mut other = all.to_vec();
    other[4] = of(8);
    assert!(bad(attrs(4, 2, "gated"), &other).contains("2 or 16"));
    other[4] = of(2);
    other[3].1[2] = 9.into();
    assert!(bad(attrs(4, 2, "gated"), &other).contains("2,8,3]"));
}
