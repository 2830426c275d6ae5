//! Rules of the chapters (docs/chapters) that no other test shows.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln::network::{
    ActivationKind, ElementwiseOp, GatherMode, InterpolationMode, Layer, MatrixOp, NetworkError, PoolingKind,
    ReduceOp, ScaleMode, TensorId, UnaryOp, Weights,
};
use kiln::{
    Backends, BuildConfig, DType, Engine, EngineBuilder, Network, Refit, Refitter, ShapeRequest, Tensor,
    TensorType,
};
use kiln_backend::Backend;
use kiln_tests::backends::{all, cpu, cpu_or_oracle, reference};
use std::collections::BTreeSet;
use std::sync::Arc;

fn builder(backend: &Arc<dyn Backend>) -> EngineBuilder {
    let mut backends = Backends::new();
    backends.register(backend.clone()).unwrap();
    Engine::builder().backends(backends).backend(backend.name())
}

fn estimates() -> BuildConfig {
    BuildConfig { estimates: true, ..BuildConfig::default() }
}

fn digits(name: &str) -> String {
    format!("{}/data/digits/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn first<P>(layer: Result<Layer<'_, P>, NetworkError>) -> TensorId {
    layer.unwrap().output(0).unwrap()
}

fn f32s(shape: &[usize]) -> Tensor {
    let v: Vec<f32> = (0..shape.iter().product()).map(|i| (i % 7) as f32 - 3.0).collect();
    Tensor::from_slice(shape, &v).unwrap()
}

#[test]
fn missing_weights_are_told_by_name_and_by_role() {
    let model = digits("lenet_a_bn.onnx");
    let plan = |strip: bool| {
        let builder = builder(&cpu()).config(estimates()).refit(Refit::All).shape("input", &[1, 1, 28, 28]);
        builder.strip_weights(strip).build_plan(model.as_str()).unwrap().plan
    };
    // A plan that keeps its sources misses none, whatever is set.
    let mut whole = Refitter::of_plan(plan(false)).unwrap();
    let shape = whole.prototype("conv1.weight").unwrap().shape.clone();
    whole.set("conv1.weight", f32s(&shape)).unwrap();
    assert!(whole.get_missing().is_empty() && whole.get_missing_roles().is_empty());
    let mut stripped = Refitter::of_plan(plan(true)).unwrap();
    let all = stripped.get_missing();
    let by_role = |r: &Refitter| -> BTreeSet<String> {
        let name = |(layer, role): (String, _)| r.prototype_of(&layer, role).unwrap().name.clone();
        r.get_missing_roles().into_iter().map(name).collect()
    };
    let mut left: BTreeSet<String> = all.iter().cloned().collect();
    let roles = by_role(&stripped);
    assert!(roles.contains("conv1.weight") && roles.is_subset(&left), "{roles:?}, {left:?}");
    // The list is complete: supplying it makes nothing else missing.
    for name in &all {
        assert!(stripped.refit().is_err(), "{name} is missing");
        let shape = stripped.prototype(name).unwrap().shape.clone();
        let ones = vec![1.0f32; shape.iter().product()];
        stripped.set(name, Tensor::from_slice(&shape, &ones).unwrap()).unwrap();
        left.remove(name);
        assert_eq!(stripped.get_missing().into_iter().collect::<BTreeSet<_>>(), left);
        assert_eq!(by_role(&stripped), roles.intersection(&left).cloned().collect());
    }
    stripped.refit().unwrap();
}

#[test]
fn engines_of_several_profiles_are_refitted() {
    let requests = [1, 4].map(|n| {
        let mut r = ShapeRequest::default();
        r.fixed("input", &[n, 1, 28, 28]);
        r
    });
    let [one, four] = requests;
    let of = |weights: &str| {
        let builder = builder(&cpu()).config(estimates()).refit(Refit::All);
        builder.profile(one.clone()).profile(four.clone()).build(digits(weights).as_str()).unwrap()
    };
    let (engine, wanted) = (of("lenet_a.onnx"), of("lenet_b.onnx"));
    assert_eq!(engine.profiles().len(), 2);
    let mut refitter = engine.refitter().unwrap();
    kiln::weights::set_from_file(&mut refitter, digits("lenet_b_weights.npz")).unwrap();
    refitter.refit().unwrap();
    for n in [1, 4] {
        let logits =
            |e: &Engine| e.run([("input", f32s(&[n, 1, 28, 28]))]).unwrap().get("logits").unwrap().clone();
        assert_eq!(logits(&engine), logits(&wanted), "a batch of {n}");
    }
}

#[test]
fn traits_of_a_device_that_differ_are_warned_of() {
    let mut plan = builder(&cpu())
        .config(estimates())
        .shape("input", &[1, 1, 28, 28])
        .build_plan(digits("lenet_a.onnx").as_str())
        .unwrap()
        .plan;
    let mut device = plan.header.target.clone();
    let numbers = [("shared_memory_per_sm", 1u64), ("texture_alignment", 512), ("integrated", 0)];
    plan.header.target.traits.extend(numbers.map(|(name, n)| (name.to_owned(), n)));
    // A device that says nothing of them is not compared.
    assert!(plan.header.check_compatibility(&device).warnings.is_empty());
    device.traits = plan.header.target.traits.clone();
    assert!(plan.header.check_compatibility(&device).warnings.is_empty());
    for (name, n) in numbers {
        let mut other = device.clone();
        other.traits.insert(name.to_owned(), n + 1);
        let c = plan.header.check_compatibility(&other);
        assert!(c.ok() && c.warnings.len() == 1 && c.warnings[0].contains(name), "{c:?}");
    }
    plan.header.target.memory.total = 2 << 30;
    device.memory.total = 1 << 30;
    let c = plan.header.check_compatibility(&device);
    assert!(c.ok() && c.warnings.iter().any(|w| w.contains("bytes of memory")), "{c:?}");
}

#[test]
fn tactics_and_samples_are_as_many_as_asked_for() {
    let build = |max_tactics: usize, samples: u32| {
        let config = BuildConfig {
            max_tactics,
            samples,
            search: false,
            estimate_limit: f64::INFINITY,
            ..BuildConfig::default()
        };
        let builder = builder(&cpu_or_oracle()).config(config).shape("input", &[1, 1, 28, 28]);
        builder.build_plan(digits("lenet_a.onnx").as_str()).unwrap()
    };
    for (most, samples) in [(2, 3), (3, 1)] {
        let built = build(most, samples);
        let all: Vec<_> = built.times.iter().flat_map(|(_, e)| e.candidates.values()).collect();
        // Candidates that are far behind are timed less often.
        let counts: Vec<usize> = all.iter().map(|c| c.samples.len()).collect();
        assert_eq!(counts.iter().max(), Some(&(samples as usize)), "{all:?}");
        let counts: Vec<usize> = built.times.iter().map(|(_, e)| e.candidates.len()).collect();
        assert_eq!(counts.iter().max(), Some(&most), "{counts:?}");
    }
    assert_eq!(build(1, 1).report.timed, 0, "a single tactic needs no times");
}

#[test]
fn fast_types_of_a_device_are_asked_by_name() {
    for backend in all().unwrap() {
        let target = backend.targets().unwrap().remove(0);
        for (name, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
            let mut net = Network::new("product");
            let x = net.add_input("x", TensorType::new(DType::F32, [8, 8])).unwrap();
            let w = net.add_weights(Some("w"), f32s(&[8, 8])).unwrap();
            let y = first(net.add_matrix_multiply(x, MatrixOp::None, w, MatrixOp::None));
            net.mark_output(y, "y").unwrap();
            let narrow =
                BuildConfig { reduced: vec![dtype], narrowing: kiln::Narrowing::Everywhere, ..estimates() };
            let built = builder(&backend).config(narrow).build_plan(&net).unwrap();
            let taken = built.report.steps.iter().any(|s| s.outputs.iter().any(|t| t.dtype == dtype));
            // A type that a device has not is no faster there, but what permits it still runs.
            assert!(taken || !target.has(name), "{}: {name}", backend.name());
        }
    }
}

/// Layers of many kinds, each on a tensor [images, 4, rows, 6], of which some sizes are 0.
fn layers_on(images: i64, rows: i64) -> Network {
    let mut net = Network::new("empty");
    let x = net.add_input("x", TensorType::new(DType::F32, [images, 4, rows, 6])).unwrap();
    let ids = net.add_input("ids", TensorType::new(DType::I32, [0])).unwrap();
    let none = net.add_input("none", TensorType::new(DType::F32, [images, 4, rows, 0])).unwrap();
    let mut all: Vec<(&str, TensorId)> = vec![
        ("activation", first(net.add_activation(x, ActivationKind::Sigmoid))),
        ("unary", first(net.add_unary(x, UnaryOp::Abs))),
        ("sum", first(net.add_elementwise(x, x, ElementwiseOp::Sum))),
        ("joined", first(net.add_concatenation(&[x, none]).unwrap().set_axis(3))),
        ("softmax", first(net.add_softmax(x).unwrap().set_axes(0b1000))),
        ("scale", first(net.add_scale(x, ScaleMode::Uniform, None, Some(f32s(&[1])), None))),
        ("slice", first(net.add_slice(x, &[0, 1, 0, 2], &[images, 2, rows, 3], &[1, 1, 1, 1]))),
        ("shuffle", first(net.add_shuffle(x).unwrap().set_first_transpose(&[0, 2, 3, 1]))),
        ("picked", first(net.add_gather(x, ids, 1))),
        ("elements", first(net.add_gather_v2(x, ids, GatherMode::Default))),
        ("cast", first(net.add_cast(x, DType::I32))),
        ("identity", first(net.add_identity(x))),
    ];
    for (name, op) in [("max", ReduceOp::Max), ("min", ReduceOp::Min), ("sums", ReduceOp::Sum)] {
        all.push((name, first(net.add_reduce(x, op, 0b0100, true))));
    }
    let w = net.add_constant(f32s(&[1, 1, 6, 5])).unwrap().output(0).unwrap();
    all.push(("product", first(net.add_matrix_multiply(x, MatrixOp::None, w, MatrixOp::None))));
    let turned = net.add_matrix_multiply(x, MatrixOp::Transpose, x, MatrixOp::None);
    all.push(("square", first(turned)));
    let einsum = first(net.add_einsum(&[x, x], "abcd,abce->ade"));
    all.push(("einsum", einsum));
    if images == 0 {
        let conv = net.add_convolution_nd(x, 3, &[3, 3], f32s(&[3, 4, 3, 3]), Weights::None);
        all.push(("conv", first(conv)));
        let wide = net.add_deconvolution_nd(x, 3, &[2, 2], f32s(&[4, 3, 2, 2]), Weights::None);
        all.push(("deconv", first(wide)));
        all.push(("pool", first(net.add_pooling_nd(x, PoolingKind::Average, &[2, 2]))));
        let resize = net.add_resize(x).unwrap().set_resize_mode(InterpolationMode::Linear).unwrap();
        all.push(("resize", first(resize.set_scales(&[1.0, 1.0, 2.0, 2.0]))));
        all.push(("lrn", first(net.add_lrn(x, 3, 1.0, 0.75, 1.0))));
    }
    for (name, t) in all {
        net.mark_output(t, name).unwrap();
    }
    net
}

#[test]
fn layers_of_every_kind_take_tensors_without_elements() {
    let mut backends = all().unwrap();
    backends.push(reference());
    for (images, rows) in [(0, 5), (2, 0)] {
        let given = || {
            let shape = [images as usize, 4, rows as usize, 6];
            let none = [images as usize, 4, rows as usize, 0];
            let ids = Tensor::zeros(DType::I32, &[0]).unwrap();
            [("x", f32s(&shape)), ("ids", ids), ("none", f32s(&none))]
        };
        let net = layers_on(images, rows);
        let wanted = builder(&reference()).config(estimates()).build(&net).unwrap().run(given()).unwrap();
        for backend in &backends {
            let engine = builder(backend).config(estimates()).build(&net).unwrap();
            let outputs = engine.run(given()).unwrap();
            for (key, t) in outputs.iter() {
                let inferred = net.ty(net.find(key).unwrap()).static_dims().unwrap();
                assert_eq!(t.shape(), inferred, "{}: {key}", backend.name());
                assert_eq!(t.to_f64(), wanted.get(key).unwrap().to_f64(), "{}: {key}", backend.name());
            }
        }
        // Sums of nothing are 0, its greatest element is −∞.
        if rows == 0 {
            assert!(wanted.get("sums").unwrap().to_f64().iter().all(|&v| v == 0.0));
            assert!(wanted.get("square").unwrap().to_f64().iter().all(|&v| v == 0.0));
            let most = wanted.get("max").unwrap().to_f64();
            assert!(most.len() == 48 && most.iter().all(|&v| v == f64::NEG_INFINITY));
        }
    }
}
