//! Every quick way has the bits of the oracle.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_ir::problem::{Problem, Rng, op};
use kiln_ir::{Attrs, DType, Graph, Tensor};
use kiln_recipes::{evaluate, quick};
use std::collections::BTreeMap;

fn check(p: &Problem, what: &str, counts: &mut BTreeMap<String, usize>) {
    let Some(found) = quick(&p.op, &p.inputs) else { return };
    let wanted = p.op.eval(&p.inputs).unwrap_or_else(|e| panic!("{what}, {}: {e}", p.label));
    assert_eq!(wanted.len(), 1, "{what}");
    let same = found.ty() == wanted[0].ty() && found.bytes() == wanted[0].bytes();
    assert!(same, "{what}, {}: {:?} instead of {:?}", p.label, found, wanted[0]);
    *counts.entry(p.op.name().to_string()).or_default() += 1;
}

#[test]
fn every_problem_of_every_operator() {
    let mut counts = BTreeMap::new();
    for def in kiln_ops::all() {
        for p in (def.problems)(&mut Rng::new(11)) {
            check(&p, p.op.name(), &mut counts);
        }
    }
    println!("{counts:?}");
    for name in ["cast", "transpose", "concat", "pad", "mul", "add", "sub", "div", "sqrt", "select"] {
        assert!(counts.get(name).is_some_and(|n| *n > 1), "{name} has no quick way: {counts:?}");
    }
}

#[test]
fn sizes_of_several_pieces_and_tiles() {
    let mut rng = Rng::new(5);
    let mut counts = BTreeMap::new();
    let (plain, none) = (Attrs::new, || None::<Tensor>);
    let perm = |p: &[i64]| Attrs::new().with("perm", p);
    let cases: Vec<(&str, Attrs, Vec<Vec<usize>>)> = vec![
        ("mul", plain(), vec![vec![101, 33, 3, 3], vec![101, 1, 1, 1]]),
        ("mul", plain(), vec![vec![70_001], vec![]]),
        ("sub", plain(), vec![vec![7, 5, 1001], vec![5, 1]]),
        ("div", plain(), vec![vec![1, 517], vec![129, 1]]),
        ("sqrt", plain(), vec![vec![65_537]]),
        ("tanh", plain(), vec![vec![33_000]]),
        ("transpose", perm(&[0, 2, 3, 1]), vec![vec![65, 67, 3, 3]]),
        ("transpose", perm(&[1, 0]), vec![vec![301, 517]]),
        ("transpose", perm(&[2, 3, 1, 0]), vec![vec![40, 35, 3, 2]]),
        ("transpose", perm(&[3, 1, 0, 2]), vec![vec![9, 33, 34, 65]]),
        ("transpose", perm(&[0, 3, 1, 2]), vec![vec![128, 1, 1, 512]]),
        ("concat", Attrs::new().with("axis", 1i64), vec![vec![300, 7, 5], vec![300, 1, 5], vec![300, 0, 5]]),
    ];
    for (name, attrs, shapes) in cases {
        for t in [DType::F32, DType::F16, DType::I8, DType::I64] {
            if t != DType::F32 && ["sqrt", "tanh", "div"].contains(&name) {
                continue;
            }
            let inputs: Vec<_> = shapes.iter().map(|s| Some(rng.tensor(t, s))).collect();
            let p = Problem::of("large", name, attrs.clone(), inputs);
            assert!(quick(&p.op, &p.inputs).is_some(), "{name} {t}");
            check(&p, name, &mut counts);
        }
    }
    for to in [DType::F16, DType::BF16] {
        let odd = [
            f32::NAN,
            -f32::NAN,
            f32::INFINITY,
            -0.0,
            1e-45,
            6e-8,
            65_519.9,
            65_520.0,
            f32::MAX,
            1.000_488_3,
        ];
        for x in [Tensor::f32(&[odd.len()], &odd).unwrap(), rng.tensor(DType::F32, &[3, 70_001])] {
            check(&Problem::new("cast", op("cast", Attrs::new().with("to", to)), [x]), "cast", &mut counts);
        }
    }
    let pads = |v: &[i64]| Some(Tensor::i64(&[v.len()], v).unwrap());
    for value in [none(), Some(Tensor::f32(&[], &[2.5]).unwrap())] {
        let x = Some(rng.tensor(DType::F32, &[64, 3, 7, 7]));
        let p = Problem::of("pad", "pad", plain(), [x, pads(&[0, 0, 1, 0, 0, 5, 0, 2]), value]);
        assert!(quick(&p.op, &p.inputs).is_some());
        check(&p, "pad", &mut counts);
    }
}

#[test]
fn a_recipe_has_the_bits_of_its_graph() {
    let text = r#"graph "recipe" {
        input %w: f32[64,32,3,3] input %g: f32[64] input %v: f32[64]
        %s = sqrt(%v) %q = div(%g, %s)
        weight %shape: i64[4] = [64, 1, 1, 1]
        %c = reshape(%q, %shape) %m = mul(%w, %c) %h = cast(%m) {to=f16} %t = transpose(%h) {perm=[0,2,3,1]}
        output %t output %q }"#;
    let g = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
    let mut rng = Rng::new(3);
    let inputs = [
        rng.tensor(DType::F32, &[64, 32, 3, 3]),
        rng.tensor(DType::F32, &[64]),
        rng.tensor_in(DType::F32, &[64], 0.1, 2.0, 1),
    ];
    let (found, wanted) = (evaluate(&g, &inputs).unwrap(), g.eval(&inputs).unwrap());
    assert_eq!(found, wanted);
    let e = evaluate(&g, &inputs[..2]).unwrap_err().to_string();
    assert!(!e.is_empty());
}
