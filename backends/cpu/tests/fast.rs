//! The fast tactic against the oracle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{assert_close, run, single, weighed};
use kiln_backend::compare::{Expectation, Latitude};
use kiln_backend::{Backend, Target};
use kiln_backend_cpu::Cpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op};
use kiln_ops::layout::Layout;

/// Every problem of every operator, whether it has a fast path or not.
#[test]
fn all_problems_agree_with_the_oracle() {
    let mut wrong = Vec::new();
    let every: usize = std::env::var("KILN_SAMPLE").map_or(1, |n| n.parse().unwrap());
    for def in kiln_ops::all() {
        if def.traits.random {
            continue;
        }
        for p in (def.problems)(&mut Rng::new(11)).into_iter().step_by(every) {
            let what = format!("{} ({})", def.name, p.label);
            let (g, inputs) = single(&p.op, &p.inputs);
            let wanted = run(&g, "oracle", &inputs, false).unwrap_or_else(|e| panic!("{what}: {e}"));
            let found = run(&g, "fast", &inputs, false).map_err(|e| format!("{what}: {e}"));
            let oracle = Expectation::new(&p.op, &p.inputs, Latitude::default())
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(wanted, oracle.wanted(), "{what}");
            let checked = found.and_then(|found| oracle.check(&found).map_err(|e| format!("{what}: {e}")));
            wrong.extend(checked.err());
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Inputs whose memory begins at an odd address.
#[test]
fn elements_need_no_alignment() {
    let mut rng = Rng::new(4);
    for (op, dtype) in
        [("topk", DType::F32), ("argmax", DType::I64), ("nonzero", DType::F16), ("reduce", DType::I32)]
    {
        let x = rng.tensor(dtype, &[5, 9]);
        let mut bytes = vec![0u8];
        bytes.extend_from_slice(x.bytes());
        let shifted = kiln_ir::Bytes::window(std::sync::Arc::new(bytes), 1, x.bytes().len()).unwrap();
        let odd = kiln_ir::Tensor::from_bytes(dtype, x.shape(), shifted).unwrap();
        let attrs = if op == "reduce" { Attrs::new().with("op", "max") } else { Attrs::new() };
        let k = (op == "topk").then(|| rng.i64s(&[1], &[3]));
        let (g, inputs) = single(
            &Op::new(op, attrs).unwrap(),
            &[vec![Some(odd)], k.map(Some).into_iter().collect()].concat(),
        );
        let (f, o) = (run(&g, "fast", &inputs, false).unwrap(), run(&g, "oracle", &inputs, false).unwrap());
        assert_eq!(f, o, "{op} {dtype}");
    }
}

/// Results that come of no elements: the value of an empty sum, whatever the address of the empty memory.
#[test]
fn lines_of_no_elements_have_a_result() {
    for (op, dtype) in [("sum", DType::I64), ("sum", DType::F32), ("max", DType::I32), ("prod", DType::I64)] {
        let empty = kiln_ir::Tensor::from_bytes(dtype, &[3, 0], Vec::new()).unwrap();
        let axes = Rng::new(1).i64s(&[1], &[1]);
        let op = Op::new("reduce", Attrs::new().with("op", op)).unwrap();
        let (g, inputs) = single(&op, &[Some(empty), Some(axes)]);
        let (f, o) = (run(&g, "fast", &inputs, false).unwrap(), run(&g, "oracle", &inputs, false).unwrap());
        assert_eq!(f, o, "{op:?} {dtype}");
    }
}

/// Products of sizes around those of tiles and blocks.
#[test]
fn products_of_odd_sizes() {
    let mut rng = Rng::new(3);
    for (m, k, n) in [(1, 1, 1), (13, 257, 33), (3, 300, 1030), (70, 512, 5), (1, 700, 513), (25, 3, 600)] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let a = rng.tensor(DType::F32, &if ta { [k, m] } else { [m, k] });
            let b = rng.tensor(DType::F32, &if tb { [n, k] } else { [k, n] });
            let op = Op::new("matmul", Attrs::new().with("trans_a", ta).with("trans_b", tb)).unwrap();
            let (g, inputs) = single(&op, &[Some(a), Some(b)]);
            let (x, y) =
                (run(&g, "fast", &inputs, false).unwrap(), run(&g, "oracle", &inputs, false).unwrap());
            assert_close(&format!("{m}×{k}×{n} {ta} {tb}"), &x, &y, 1e-6);
        }
    }
}

/// Random convolutions: groups, depthwise, strides, pads, dilations, one to three dimensions, both layouts.
#[test]
fn random_convolutions() {
    let mut rng = Rng::new(5);
    for i in 0..160 {
        let layout = if i % 4 < 2 { Layout::Linear } else { Layout::ChannelsLast };
        let rank = rng.int(1, 3) as usize;
        let groups = rng.pick(&[1usize, 1, 2, 3, 6]).unwrap();
        let (c, m) = (groups * rng.int(1, 3) as usize, groups * rng.int(1, 4) as usize);
        let ints = |rng: &mut Rng, lo, hi, n: usize| (0..n).map(|_| rng.int(lo, hi)).collect::<Vec<i64>>();
        let kernel = ints(&mut rng, 1, 3, rank);
        let dilations = ints(&mut rng, 1, 2, rank);
        let size = ints(&mut rng, 5, 9, rank);
        let attrs = Attrs::new()
            .with("layout", layout.name())
            .with("groups", groups as i64)
            .with("strides", ints(&mut rng, 1, 3, rank))
            .with("pads", ints(&mut rng, 0, 2, 2 * rank))
            .with("dilations", dilations);
        let dims = |a: usize, b: usize, s: &[i64]| {
            [a, b].into_iter().chain(s.iter().map(|&d| d as usize)).collect::<Vec<_>>()
        };
        let shape = dims(rng.clone().int(1, 2) as usize, c, &size);
        let x = rng.tensor(DType::F32, &layout.from_linear(&shape));
        let w = rng.tensor(DType::F32, &layout.from_linear(&dims(m, c / groups, &kernel)));
        let bias = (i % 2 == 0).then(|| rng.tensor(DType::F32, &[m]));
        let op = Op::new("conv", attrs).unwrap();
        let (g, inputs) = single(&op, &[Some(x), Some(w), bias]);
        let (f, o) = (run(&g, "fast", &inputs, false).unwrap(), run(&g, "oracle", &inputs, false).unwrap());
        assert_close(&format!("{op:?}"), &f, &o, 1e-6);
    }
}

/// A chain with broadcasts, a shared value, integers and a choice, as one step and as many, against the oracle.
#[test]
fn chains_of_pointwise_layers() {
    let mut rng = Rng::new(9);
    let mut n = kiln_network::Network::new("chain");
    let ty = |t: DType, d: &[i64]| kiln_ir::TensorType::new(t, d.iter().copied());
    let x = n.add_input("x", ty(DType::F32, &[2, 300, 7])).unwrap();
    let b = n.add_input("b", ty(DType::F32, &[300, 1])).unwrap();
    let k = n.add_input("k", ty(DType::I32, &[7])).unwrap();
    let mut add = |op: &str, attrs: Attrs, i: &[kiln_network::TensorId]| {
        let ins: Vec<_> = i.iter().copied().map(Some).collect();
        n.add_layer("", op, attrs, &ins).unwrap()[0]
    };
    let plain = Attrs::new;
    let h = add("add", plain(), &[x, b]);
    let s = add("sigmoid", plain(), &[h]);
    let g = add("mul", plain(), &[h, s]);
    let narrow = add("cast", plain().with("to", DType::F16), &[g]);
    let wide = add("cast", plain().with("to", DType::F32), &[narrow]);
    let two = add("mul", plain(), &[k, k]);
    let i = add("cast", plain().with("to", DType::I32), &[x]);
    let c = add("less", plain(), &[i, two]);
    let e = add("exp", plain(), &[b]);
    let t = add("tanh", plain(), &[wide]);
    let y = add("select", plain(), &[c, t, e]);
    let z = add("mod", plain(), &[i, two]);
    n.mark_output(y, "y").unwrap();
    n.mark_output(z, "z").unwrap();
    let g = n.lower().unwrap();
    let inputs = vec![
        rng.tensor(DType::F32, &[2, 300, 7]),
        rng.tensor(DType::F32, &[300, 1]),
        rng.tensor(DType::I32, &[7]),
    ];
    let wanted = run(&g, "oracle", &inputs, false).unwrap();
    for whole in [true, false] {
        assert_close("chain", &run(&g, "fast", &inputs, whole).unwrap(), &wanted, 2e-6);
    }
}

/// Products by weights, whose panels are packed once and kept from run to run.
#[test]
fn products_by_weights() {
    let mut rng = Rng::new(21);
    let conv = |layout: Layout, groups: i64| {
        let attrs = Attrs::new().with("layout", layout.name()).with("groups", groups);
        Op::new("conv", attrs.with("pads", vec![1i64, 0, 1, 2])).unwrap()
    };
    let product = |tb: bool| Op::new("matmul", Attrs::new().with("trans_b", tb)).unwrap();
    let mut cases = Vec::new();
    for (a, b) in [(DType::F32, DType::F32), (DType::F16, DType::F16), (DType::U8, DType::I8)] {
        for m in [1usize, 5, 37] {
            cases.push((product(false), a, vec![m, 300], b, vec![300, 50]));
            cases.push((product(true), a, vec![2, m, 19], b, vec![33, 19]));
        }
        for layout in [Layout::Linear, Layout::ChannelsLast] {
            for groups in [1usize, 3] {
                let (x, w) = ([2, 12, 9, 7], [18, 12 / groups, 3, 3]);
                cases.push((
                    conv(layout, groups as i64),
                    a,
                    layout.from_linear(&x),
                    b,
                    layout.from_linear(&w),
                ));
            }
        }
    }
    for (op, a, x, b, w) in cases {
        let (g, inputs) = weighed(&op, rng.tensor(a, &x), rng.tensor(b, &w));
        let (f, o) = (run(&g, "fast", &inputs, false).unwrap(), run(&g, "oracle", &inputs, false).unwrap());
        let tolerance = if a == DType::F16 { 2e-3 } else { 1e-6 };
        assert_close(&format!("{op:?} {a} {x:?} by {b} {w:?}"), &f, &o, tolerance);
    }
}

/// The level is one for all of a process: other ones are tried in processes of their own.
#[test]
fn lower_levels_agree_with_the_oracle() {
    let own = level_of(&Cpu::target());
    let child = |level: &str, tests: &[&str]| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.arg("--exact").args(tests).env("KILN_CPU_LEVEL", level).env("KILN_SAMPLE", "4");
        let out = command.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{level}: {text}");
        assert!(text.contains(&format!("{} passed", tests.len())), "{level}: {text}");
    };
    let all = [
        "all_problems_agree_with_the_oracle",
        "products_by_weights",
        "products_of_odd_sizes",
        "random_convolutions",
        THE_LEVEL,
    ];
    for (name, level) in LEVELS {
        if level < own {
            child(name, &all);
        }
    }
    child("sse9", &[THE_LEVEL]);
}

/// Bits of vectors, and whether there is a matrix unit.
fn level_of(target: &Target) -> (u64, bool) {
    (target.numbers["vector_bits"], target.numbers.contains_key("matrix_unit"))
}

const LEVELS: [(&str, (u64, bool)); 3] =
    [("base", (128, false)), ("avx2", (256, false)), ("avx512", (512, false))];
const THE_LEVEL: &str = "the_level_is_that_of_the_environment";

/// Passes in any process; [`lower_levels_agree_with_the_oracle`] starts it with levels.
#[test]
fn the_level_is_that_of_the_environment() {
    let Ok(asked) = std::env::var("KILN_CPU_LEVEL") else { return };
    match LEVELS.iter().find(|(name, _)| *name == asked) {
        Some((_, level)) => assert_eq!(level_of(&Cpu::target()), *level),
        None => {
            let refused = Cpu::new().targets().unwrap_err().to_string();
            assert!(refused.contains(&asked) && refused.contains("avx2"), "{refused}");
        }
    }
}
