//! Implicit quantization: ranges, set by hand or measured on data, let a build run layers on codes of 8 bits.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use kiln::calibration::{Algorithm, CalibrationTable, Calibrator};
use kiln::network::Network;
use kiln::{BuildOptions, DType, Engine, Narrowing, Tensor, TensorType};
use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Constraints};
use kiln_ir::Graph;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use kiln_tests::models::{Shapes, archive, argmax, data, engine, rows};
use std::sync::Arc;

const IMAGES: Shapes<'static> = &[("input", [&[1, 1, 28, 28], &[100, 1, 28, 28], &[100, 1, 28, 28]])];

/// Calibration of the digits' network on the first images of the training set.
fn table(algorithm: Algorithm) -> CalibrationTable {
    let builder = Engine::builder().backend("cpu").shape("input", &[50, 1, 28, 28]);
    let mut calibrator = Calibrator::new(data("digits/lenet_a.onnx"), &builder, algorithm).unwrap();
    let images = &archive("digits/digits_calib.npz").unwrap()["images"];
    // Two batches, and elements that fill none.
    let batches = calibrator.add_all(&[("input", rows(images, 0, 120).unwrap())]).unwrap();
    assert_eq!(batches, 2);
    let e = calibrator.add_all(&[("input", rows(images, 0, 49).unwrap())]).unwrap_err().to_string();
    assert!(e.contains("\"input\"") && e.contains("49"), "{e}");
    calibrator.table().unwrap()
}

/// Number of products, those on integers among them, and the images that are recognized.
fn digits(backend: &Arc<dyn Backend>, config: BuildConfig) -> (usize, usize, usize) {
    let e = engine("digits/lenet_a.onnx", backend, IMAGES, config).unwrap();
    let g = &e.program().graph;
    let products: Vec<DType> = g
        .nodes()
        .filter(|(_, n)| matches!(n.op.name(), "conv" | "matmul"))
        .map(|(_, n)| g.ty(n.outputs[0]).dtype)
        .collect();
    let test = archive("digits/digits_test.npz").unwrap();
    let labels = test["labels"].to_i64();
    let mut context = e.create_context().unwrap();
    let mut right = 0;
    for at in (0..500).step_by(100) {
        let batch = rows(&test["images"], at, at + 100).unwrap();
        let logits = context.run(&[("input", batch)]).unwrap().remove(0).1;
        right += argmax(&logits).iter().zip(&labels[at..]).filter(|(p, l)| **p as i64 == **l).count();
    }
    (products.len(), products.iter().filter(|t| **t == DType::I32).count(), right)
}

fn on_codes(table: &CalibrationTable) -> BuildConfig {
    BuildConfig {
        reduced: vec![DType::I8],
        ranges: table.ranges(),
        narrowing: Narrowing::Everywhere,
        estimates: true,
        ..BuildConfig::default()
    }
}

/// 497 images of 500 are recognized in f32.
fn calibrated(backend: &Arc<dyn Backend>, algorithms: &[Algorithm]) {
    for &algorithm in algorithms {
        let found = digits(backend, on_codes(&table(algorithm)));
        println!("{} {algorithm:?}: {found:?}", backend.name());
        assert_eq!((found.0, found.1), (4, 4), "{algorithm:?}");
        assert!(found.2.abs_diff(497) <= 2, "{algorithm:?}: {} right", found.2);
    }
}

const ALL: [Algorithm; 4] = [
    Algorithm::Entropy,
    Algorithm::MinMax,
    Algorithm::Percentile(0.9999),
    Algorithm::Legacy { quantile: 0.9999, cutoff: 1.0 },
];

#[test]
fn calibrated_digits_are_recognized_on_cpu() {
    calibrated(&cpu(), &ALL);
}

#[test]
fn calibrated_digits_are_recognized_on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| calibrated(b, &ALL[..1]));
}

#[test]
fn calibrated_digits_are_recognized_on_cuda() {
    cuda().unwrap().iter().for_each(|b| calibrated(b, &ALL));
}

/// i8 is permitted, and taken where it is faster.
#[test]
fn codes_are_used_only_where_they_are_faster() {
    let permitted = BuildConfig {
        narrowing: Narrowing::Faster,
        estimates: false,
        samples: 3,
        ..on_codes(&table(Algorithm::MinMax))
    };
    let (products, integer, right) = digits(&cpu(), permitted);
    assert!(products == 4 && right >= 495, "{right}");
    println!("{integer} of {products} products on codes");
}

/// Three layers of a network with ranges on some tensors.
fn network(ranged: &[&str]) -> Network {
    let mut net = Network::new("ranges");
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 8])).unwrap();
    let values: Vec<f32> = (0..64).map(|i| (i % 7) as f32 - 3.0).collect();
    let w = net.add_weights(Some("w"), Tensor::from_slice(&[8, 8], &values).unwrap()).unwrap();
    let a = net.add_layer("first", "matmul", kiln_ir::Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    net.set_tensor_name(a, "a").unwrap();
    let b = net.add_layer("second", "relu", kiln_ir::Attrs::new(), &[Some(a)]).unwrap()[0];
    net.set_tensor_name(b, "b").unwrap();
    let y = net.add_layer("third", "matmul", kiln_ir::Attrs::new(), &[Some(b), Some(w)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    for (name, t) in [("x", x), ("a", a), ("b", b)] {
        if ranged.contains(&name) {
            net.set_dynamic_range(t, -4.0, 60.0).unwrap();
            assert_eq!(net.dynamic_range(t), Some([-4.0, 60.0]));
        }
    }
    net
}

fn build(net: &Network, config: BuildConfig) -> Result<kiln_builder::Built, kiln_builder::BuildError> {
    let mut builder = Builder::new(reference(), reference().targets().unwrap().remove(0));
    builder.config = config;
    builder.build(net)
}

fn products(g: &Graph) -> Vec<DType> {
    g.nodes().filter(|(_, n)| n.op.name() == "matmul").map(|(_, n)| g.ty(n.outputs[0]).dtype).collect()
}

#[test]
fn ranges_of_a_network_decide_which_layers_run_on_codes() {
    let config = BuildConfig { narrowing: Narrowing::Everywhere, ..BuildConfig::default() };
    let permitted = BuildConfig { reduced: vec![DType::I8], ..config.clone() };
    let of = |ranged: &[&str], config: &BuildConfig| {
        products(&build(&network(ranged), config.clone()).unwrap().program.graph)
    };
    let (f, i) = (DType::F32, DType::I32);
    assert_eq!(of(&["x", "a", "b"], &permitted), [i, i]);
    assert_eq!(of(&["x", "a", "b"], &config), [f, f], "nothing is permitted");
    assert_eq!(of(&["x"], &permitted), [i, f], "the second product has no range");
    assert_eq!(of(&["x", "a"], &permitted), [i, i], "the range of what relu reads is known");
    assert_eq!(of(&[], &permitted), [f, f]);
}

/// Two convolutions whose sum a pool reads and a third convolution behind it, with ranges of these tensors; a batch normalization
/// is behind the first.
fn residual(ranged: &[&str]) -> Network {
    let mut net = Network::new("residual");
    let attrs = kiln_ir::Attrs::new;
    let weights = |net: &mut Network, name: &str, dims: &[usize]| {
        let values = (0..dims.iter().product()).map(|i: usize| (i * 7 % 11) as f32 / 8.0 - 0.5);
        let values: Vec<f32> = values.collect();
        net.add_weights(Some(name), Tensor::from_slice(dims, &values).unwrap()).unwrap()
    };
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 8, 6, 6])).unwrap();
    let [k, l, m] = ["k", "l", "m"].map(|name| weights(&mut net, name, &[8, 8, 1, 1]));
    let norm = ["scale", "bias", "mean"].map(|name| weights(&mut net, name, &[8]));
    let var = net.add_weights(Some("var"), Tensor::from_slice(&[8], &[0.5f32; 8]).unwrap()).unwrap();
    let mut layer = |name: &str, op: &str, a: kiln_ir::Attrs, inputs: &[kiln::network::TensorId]| {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let y = net.add_layer(name, op, a, &inputs).unwrap()[0];
        net.set_tensor_name(y, name).unwrap();
        y
    };
    let first = layer("first", "conv", attrs(), &[x, k]);
    let a = layer("a", "batch_norm", attrs(), &[first, norm[0], norm[1], norm[2], var]);
    let b = layer("b", "conv", attrs(), &[x, l]);
    let sum = layer("sum", "add", attrs(), &[a, b]);
    let cut = layer("cut", "relu", attrs(), &[sum]);
    let pool = attrs().with("kernel", vec![2i64, 2]).with("strides", vec![2i64, 2]);
    let small = layer("small", "pool", pool, &[cut]);
    let last = layer("last", "conv", attrs(), &[small, m]);
    let mean = attrs().with("op", "mean");
    let y = layer("y", "reduce", mean, &[last]);
    net.mark_output(y, "y").unwrap();
    for (name, t) in [("x", x), ("a", a), ("b", b), ("cut", cut), ("last", last)] {
        if ranged.contains(&name) {
            net.set_dynamic_range(t, -8.0, 8.0).unwrap();
        }
    }
    net
}

#[test]
fn what_layers_on_codes_leave_in_memory_is_narrow() {
    let stored = |ranged: &[&str], reduced: &[DType]| {
        let mut builder = Builder::new(cpu(), cpu().targets().unwrap().remove(0));
        let reduced = reduced.to_vec();
        builder.config = BuildConfig { narrowing: Narrowing::Everywhere, reduced, ..BuildConfig::default() };
        let built = builder.build(&residual(ranged)).unwrap();
        let g = &built.program.graph;
        assert!(g.nodes().all(|(_, n)| n.op.name() != "batch_norm"), "norms are part of weights");
        let convs = g.nodes().filter(|(_, n)| n.op.name() == "conv");
        assert!(convs.map(|(_, n)| g.ty(n.outputs[0]).dtype).all(|t| t == DType::I32), "{}", g.to_text());
        let inner = &built.steps[..built.steps.len() - 1];
        let types: Vec<DType> = inner.iter().flat_map(|s| &s.outputs).map(|t| t.dtype).collect();
        (types.iter().filter(|t| **t == DType::F32).count(), types.contains(&DType::F16))
    };
    let all = ["x", "a", "b", "cut", "last"];
    assert_eq!(stored(&all, &[DType::I8, DType::F16]), (0, true), "codes, and halves in front of the mean");
    assert_eq!(stored(&["x", "cut"], &[DType::I8, DType::F16]), (0, true), "halves where no range is known");
    assert!(!stored(&all, &[DType::I8]).1, "halves that nobody permitted");
}

#[test]
fn ranges_of_tensors_that_are_not_there_are_noted() {
    let named = |names: &[&str]| {
        let ranges = names.iter().map(|n| ((*n).to_owned(), [-1.0, 1.0])).collect();
        let config = BuildConfig { ranges, ..BuildConfig::default() };
        build(&network(&[]), config)
            .unwrap()
            .notes
            .into_iter()
            .filter(|n| n.contains("ranges"))
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&["x", "a"]), Vec::<String>::new());
    let notes = named(&["x", "other", "Other2"]);
    let wanted = ["2 of 3", "\"Other2\", \"other\"", "are not used"];
    assert!(notes.len() == 1 && wanted.iter().all(|w| notes[0].contains(w)), "{notes:?}");
}

#[test]
fn a_layer_that_must_run_on_codes_needs_ranges() {
    let config = BuildConfig { constraints: Constraints::Obey, ..BuildConfig::default() };
    let asked = |ranged: &[&str]| {
        let layer =
            kiln::LayerTypes { layers: "third".into(), precision: Some(DType::I8), ..Default::default() };
        build(&network(ranged), BuildConfig { layer_types: vec![layer], ..config.clone() })
    };
    assert_eq!(products(&asked(&["b"]).unwrap().program.graph), [DType::F32, DType::I32]);
    let e = asked(&["x"]).unwrap_err().to_string();
    assert!(["\"third\"", "i8", "range of tensor \"b\""].iter().all(|w| e.contains(w)), "{e}");
}

#[test]
fn ranges_that_are_no_ranges_are_refused() {
    let mut net = network(&[]);
    let x = net.find("x").unwrap();
    for (lo, hi) in [(1.0, -1.0), (f32::NAN, 1.0), (0.0, f32::INFINITY)] {
        let e = net.set_dynamic_range(x, lo, hi).unwrap_err().to_string();
        assert!(e.contains("\"x\"") && e.contains("finite"), "{e}");
    }
    net.set_dynamic_range(x, -1.0, 1.0).unwrap();
    assert_eq!(net.lower().unwrap().ranges.len(), 1);
    net.reset_dynamic_range(x).unwrap();
    assert!(net.dynamic_range(x).is_none() && net.lower().unwrap().ranges.is_empty());
}

/// Ranges travel with a graph: as text and in portable plans.
#[test]
fn ranges_are_part_of_a_network() {
    let g = network(&["x", "b"]).lower().unwrap();
    let text = r#"graph "g" { input %x: f32[2] range "x" [-1.0, 0.5] %y = relu(%x) output %y }"#;
    let written = Graph::from_text(text).unwrap();
    assert_eq!(written.ranges["x"], [-1.0, 0.5]);
    assert_eq!(Graph::from_text(&written.to_text()).unwrap(), written);
    assert_eq!(g.ranges.len(), 2);
    let mut portable = BuildOptions::default();
    portable.backend = Some(kiln::REFERENCE.into());
    portable.portable = true;
    let plan = Engine::builder().options(portable.clone()).build_plan(&network(&["x", "b"])).unwrap().plan;
    portable.config.reduced = vec![DType::I8];
    portable.config.narrowing = Narrowing::Everywhere;
    let again = Engine::builder().options(portable).build_plan(plan).unwrap().plan;
    let engine = Engine::builder().build(again).unwrap();
    assert_eq!(products(&engine.program().graph), [DType::I32, DType::I32]);
}

/// Codes of weights are derived from them, so that a refit quantizes the new weights.
#[test]
fn a_refit_quantizes_new_weights() {
    let narrowing = Narrowing::Everywhere;
    let config = BuildConfig { reduced: vec![DType::I8], narrowing, ..BuildConfig::default() };
    let mut options = BuildOptions::default();
    options.backend = Some(kiln::REFERENCE.into());
    options.config = config;
    let net = network(&["x", "b"]);
    options.config.refit = kiln::Refit::All;
    let engine = Engine::builder().options(options).build(&net).unwrap();
    let report = kiln::verify_recipes(&engine.program()).unwrap();
    assert!(report.same > 0 && report.different.is_empty() && report.unknown.is_empty(), "{report:?}");
}

/// A refit of ranges makes the engine that a build with these ranges makes, on each backend.
#[test]
fn dynamic_ranges_are_refitted() {
    for backend in [Some(reference()), Some(cpu()), wgpu().unwrap(), cuda().unwrap()].into_iter().flatten() {
        let name = backend.name().to_owned();
        let built = |scale: f32| {
            let target = backend.targets().unwrap().remove(0);
            let mut builder = Builder::new(backend.clone(), target.clone());
            let ranges = [("x", [-1.0, 1.0]), ("a", [-9.0, 12.0])];
            let ranges = ranges.map(|(n, r)| (n.to_owned(), r.map(|x| x * scale)));
            builder.config = BuildConfig {
                reduced: vec![DType::I8],
                narrowing: Narrowing::Everywhere,
                estimates: true,
                refit: kiln::Refit::All,
                ranges: ranges.into_iter().collect(),
                ..BuildConfig::default()
            };
            let program = builder.build(&network(&[])).unwrap().program;
            let integers = products(&program.graph).iter().filter(|t| **t == DType::I32).count();
            assert_eq!(integers, 2, "{name}: both products run on codes");
            kiln_runtime::Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap()
        };
        let values: Vec<f32> = (0..32).map(|i| (i as f32 - 16.0) / 11.0).collect();
        let x = Tensor::f32(&[4, 8], &values).unwrap();
        let (first, second) = (built(1.0), built(1.7));
        let run = |e: &kiln_runtime::Engine| {
            e.create_context().unwrap().run(&[("x", x.clone())]).unwrap().remove(0).1
        };
        let (own, wanted) = (run(&first), run(&second));
        assert_ne!(own, wanted, "{name}: ranges change results");
        let mut refitter = first.refitter().unwrap();
        assert_eq!(refitter.tensors_with_dynamic_range(), ["a", "x"]);
        assert_eq!(refitter.get_all(), ["w"], "ranges are no weights");
        assert_eq!(refitter.dynamic_range("a"), Some([-9.0, 12.0]));
        for (tensor, [least, greatest]) in [("x", [-1.7, 1.7]), ("a", [-9.0f32 * 1.7, 12.0f32 * 1.7])] {
            refitter.set_dynamic_range(tensor, least, greatest).unwrap();
            assert_eq!(refitter.dynamic_range(tensor), Some([least, greatest]));
        }
        refitter.refit().unwrap();
        assert_eq!(run(&first), wanted, "{name}");
        assert_eq!(refitter.dynamic_range("x"), Some([-1.7, 1.7]));
        let e = refitter.set_dynamic_range("b", -1.0, 1.0).unwrap_err().to_string();
        assert!(e.contains("\"b\"") && e.contains("a, x"), "{e}");
        let e = refitter.set_dynamic_range("x", 1.0, f32::NAN).unwrap_err().to_string();
        assert!(e.contains("finite"), "{e}");
    }
}

/// A stripped plan keeps its ranges: a refit of its weights fills it.
#[test]
fn ranges_stay_in_stripped_plans() {
    let mut options = BuildOptions::default();
    options.backend = Some(kiln::REFERENCE.into());
    options.config.reduced = vec![DType::I8];
    options.config.narrowing = Narrowing::Everywhere;
    options.config.refit = kiln::Refit::All;
    options.strip_weights = true;
    let plan = Engine::builder().options(options).build_plan(&network(&["x", "a"])).unwrap().plan;
    let absent: Vec<&str> = plan.header.absent.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(absent, ["w"]);
}
