//! Recipes of derived weights give their bytes again, and refits follow them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cpu::Cpu;
use kiln_builder::{BuildConfig, Builder, Narrowing, Refit};
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_onnx::parse_file;
use kiln_runtime::{Engine, Profile, Range, RuntimeError, graph_io, verify_recipes};
use kiln_tests::backends::cpu;
use kiln_tests::models::{archive, data, difference, engine, rows};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn models(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => models(&path, out),
            false => out.extend(Some(path).filter(|p| p.extension().is_some_and(|e| e == "onnx"))),
        }
    }
    out.sort();
}

/// Every unknown dimension is 2, 3 or 4; every shape input as well.
fn profile(network: &Network) -> Option<Profile> {
    let graph = network.lower().ok()?;
    let mut p = Profile::new();
    for io in graph_io(&graph).iter().filter(|t| graph.inputs.iter().any(|&v| graph.value(v).name == t.name))
    {
        let at = |n: i64| io.dims.iter().map(|d| d.as_const().unwrap_or(n)).collect::<Vec<_>>();
        p.shapes.insert(io.name.clone(), Range { min: at(2), opt: at(3), max: at(4) });
        if io.is_shape_input && !io.dtype.is_float() {
            let n = io.dims.iter().map(|d| d.as_const().unwrap_or(1)).product::<i64>() as usize;
            let of = |v: i64| vec![v; n];
            p.values.insert(io.name.clone(), Range { min: of(0), opt: of(1), max: of(4) });
        }
    }
    Some(p)
}

#[test]
fn every_derived_weight_of_every_model_is_what_its_recipe_gives() {
    let mut paths = Vec::new();
    models(&data(""), &mut paths);
    let (mut built, mut derived, mut refused) = (0, 0, Vec::new());
    for path in &paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Ok(done) = parse_file(path, &Default::default()) else { continue };
        let Some(profile) = profile(&done.network) else { continue };
        for reduced in [vec![], vec![DType::F16]] {
            let mut b = Builder::new(cpu(), Cpu::target());
            let profiles = vec![profile.clone()];
            b.config = BuildConfig {
                profiles,
                reduced,
                narrowing: Narrowing::Everywhere,
                max_tactics: 1,
                refit: Refit::All,
                ..BuildConfig::default()
            };
            match b.build(&done.network) {
                Ok(b) => {
                    let report = verify_recipes(&b.program).unwrap();
                    assert!(report.different.is_empty(), "{name}: {:?} differ", report.different);
                    assert!(report.unknown.is_empty(), "{name}: {:?} lack a source", report.unknown);
                    built += 1;
                    derived += report.same;
                }
                Err(e) => refused.push(format!("{name}: {e}")),
            }
        }
    }
    println!("{built} builds, {derived} derived weights; refused: {refused:#?}");
    assert!(built >= 20 && derived >= 50, "{built} builds, {derived} derived weights");
}

fn lenet() -> Engine {
    let shape: [&[i64]; 3] = [&[1, 1, 28, 28], &[1, 1, 28, 28], &[16, 1, 28, 28]];
    let config = BuildConfig { samples: 1, refit: Refit::All, ..BuildConfig::default() };
    engine("digits/lenet_a_bn.onnx", &cpu(), &[("input", shape)], config).unwrap()
}

fn logits(context: &mut kiln_runtime::ExecutionContext) -> Tensor {
    let images = rows(&archive("digits/digits_test.npz").unwrap()["images"], 0, 16).unwrap();
    context.run(&[("input", images)]).unwrap().remove(0).1
}

fn expected(name: &str) -> Tensor {
    archive(&format!("digits/logits_{name}.npz")).unwrap().remove("logits").unwrap()
}

/// All constants of an engine, by name of their value.
fn constants(e: &Engine) -> BTreeMap<String, Tensor> {
    let p = e.program();
    let named = p.weights().map(|(v, t)| (p.graph.value(v).name.clone(), t.clone()));
    named.collect()
}

/// The weights that the engine had when it was built, from the model's file.
fn weights_of_a() -> BTreeMap<String, Tensor> {
    let network = parse_file(data("digits/lenet_a_bn.onnx"), &Default::default()).unwrap().network;
    let g = network.lower().unwrap();
    let named = g.value_ids().filter_map(|v| g.weight(v));
    named.filter_map(|w| Some((w.name.as_ref()?.to_string(), w.tensor.clone()))).collect()
}

fn refit(e: &Engine, weights: &BTreeMap<String, Tensor>) {
    let mut r = e.refitter().unwrap();
    for (name, t) in weights {
        r.set(name, t.clone()).unwrap();
    }
    assert_eq!(r.get_missing(), Vec::<String>::new());
    r.refit().unwrap();
}

#[test]
fn there_and_back_again_is_bit_identical() {
    let e = lenet();
    let (mut running, before) = (e.create_context().unwrap(), constants(&e));
    let first = logits(&mut running);
    assert!(difference(&first, &expected("lenet_a_bn")) <= 1e-4);
    refit(&e, &archive("digits/lenet_b_bn_weights.npz").unwrap());
    assert!(constants(&e) != before, "nothing was derived again");
    let d = difference(&logits(&mut running), &expected("lenet_b_bn"));
    assert!(d <= 1e-4, "refitted logits differ by {d}");
    assert_eq!(logits(&mut e.create_context().unwrap()), logits(&mut running));
    assert_eq!(verify_recipes(&e.program()).unwrap().different, Vec::<String>::new());
    refit(&e, &weights_of_a());
    assert!(constants(&e) == before, "A, B, A is not A");
    assert_eq!(logits(&mut running), first);
}

#[test]
fn refits_are_all_or_nothing() {
    let e = lenet();
    let before = constants(&e);
    let mut running = e.create_context().unwrap();
    let first = logits(&mut running);
    let b = archive("digits/lenet_b_bn_weights.npz").unwrap();
    let mut r = e.refitter().unwrap();
    assert!(
        matches!(r.set("conv9.weight", b["conv1.bias"].clone()), Err(RuntimeError::Refit(m)) if m.contains("conv9.weight"))
    );
    assert!(
        matches!(r.set("conv1.weight", b["conv1.bias"].clone()), Err(RuntimeError::Refit(m)) if m.contains("conv1.weight"))
    );
    assert!(constants(&e) == before);
    // All sources of derived weights are named: setting exactly those is enough.
    for name in b.keys() {
        let mut r = e.refitter().unwrap();
        r.set(name, b[name].clone()).unwrap();
        let missing = r.get_missing();
        if !missing.is_empty() {
            let RuntimeError::Refit(m) = r.refit().unwrap_err() else { panic!("another error") };
            assert!(missing.iter().all(|n| m.contains(n)), "{m}");
            assert!(constants(&e) == before, "{name}: a refused refit changes nothing");
        }
        for n in &missing {
            r.set(n, b[n].clone()).unwrap();
        }
        assert_eq!(r.get_missing(), Vec::<String>::new(), "{name}");
    }
    assert_eq!(logits(&mut running), first);
}

#[test]
fn running_contexts_are_unharmed() {
    let e = lenet();
    let (a, b) = (weights_of_a(), archive("digits/lenet_b_bn_weights.npz").unwrap());
    let wanted = [expected("lenet_a_bn"), expected("lenet_b_bn")];
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut context = e.create_context().unwrap();
                for _ in 0..12 {
                    let found = logits(&mut context);
                    let near = wanted.iter().any(|w| difference(&found, w) <= 1e-4);
                    assert!(near, "logits are neither those of A nor those of B");
                }
            });
        }
        for _ in 0..3 {
            refit(&e, &b);
            refit(&e, &a);
        }
    });
}

/// Named weights that give shape to indices: without their contents no dimension is known.
#[test]
fn weights_that_decide_on_shapes_are_no_sources() {
    let mut n = Network::new("mask");
    let layer = |n: &mut Network, op: &str, attrs: Attrs, ins: &[TensorId]| {
        let ins: Vec<_> = ins.iter().copied().map(Some).collect();
        n.add_layer("", op, attrs, &ins).unwrap()[0]
    };
    let weight =
        |n: &mut Network, name: &str, t: Option<Tensor>| n.add_weights(Some(name), t.unwrap()).unwrap();
    let x = n.add_input("x", TensorType::new(DType::F32, [3, 4])).unwrap();
    let mask = weight(&mut n, "mask", Tensor::f32(&[3, 4], &[0.0; 12]));
    let shape = weight(&mut n, "shape", Tensor::i64(&[3], &[2, 2, 1]));
    let down = weight(&mut n, "down", Tensor::i64(&[2, 1, 1], &[0, 2]));
    let across = weight(&mut n, "across", Tensor::i64(&[1, 2, 1], &[1, 3]));
    let values = weight(&mut n, "values", Tensor::f32(&[2, 2], &[1., 2., 3., 4.]));
    let down = layer(&mut n, "expand", Attrs::new(), &[down, shape]);
    let across = layer(&mut n, "expand", Attrs::new(), &[across, shape]);
    let places = layer(&mut n, "concat", Attrs::new().with("axis", -1i64), &[down, across]);
    let mask = layer(&mut n, "scatter_nd", Attrs::new(), &[mask, places, values]);
    let y = layer(&mut n, "add", Attrs::new(), &[x, mask]);
    n.mark_output(y, "y").unwrap();
    let mut builder = Builder::new(cpu(), Cpu::target());
    builder.config.refit = Refit::All;
    let built = builder.build(&n).unwrap();
    assert_eq!(verify_recipes(&built.program).unwrap().different, Vec::<String>::new());
    let e = Engine::from_program(built.program, vec![], cpu()).unwrap();
    let run = || {
        let zeros = Tensor::f32(&[3, 4], &[0.0; 12]).unwrap();
        e.create_context().unwrap().run(&[("x", zeros)]).unwrap().remove(0).1.to_f64()
    };
    assert_eq!(run(), [0., 1., 0., 2., 0., 0., 0., 0., 0., 3., 0., 4.]);
    let mut r = e.refitter().unwrap();
    let shape = Tensor::i64(&[3], &[2, 2, 1]).unwrap();
    assert!(matches!(r.set("shape", shape), Err(RuntimeError::Refit(m)) if m.contains("shape")));
    r.set("across", Tensor::i64(&[1, 2, 1], &[0, 2]).unwrap()).unwrap();
    for (name, t) in
        [("down", Tensor::i64(&[2, 1, 1], &[0, 2])), ("values", Tensor::f32(&[2, 2], &[1., 2., 3., 4.]))]
    {
        if r.get_missing().iter().any(|m| m == name) {
            r.set(name, t.unwrap()).unwrap();
        }
    }
    if r.get_missing().iter().any(|m| m == "mask") {
        r.set("mask", Tensor::f32(&[3, 4], &[0.0; 12]).unwrap()).unwrap();
    }
    r.refit().unwrap();
    assert_eq!(run(), [1., 0., 2., 0., 0., 0., 0., 0., 3., 0., 4., 0.]);
}
