//! Samples of the chapters: each on every backend, with results that are known beforehand.

use super::{all_backends, digits};
use kiln::{Backends, DType, Engine, EngineBuilder, Tensor, Verbosity};

#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/conditional.rs"]
mod conditional;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/dynamic_shapes.rs"]
mod dynamic_shapes;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/empty_tensors.rs"]
mod empty_tensors;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/googlenet.rs"]
mod googlenet;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/implicit_batch.rs"]
mod implicit_batch;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/inspector.rs"]
mod inspector;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/int8_api.rs"]
mod int8_api;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/loops.rs"]
mod loops;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/mnist_api.rs"]
mod mnist_api;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../../examples/timing_cache.rs"]
mod timing_cache;

/// A builder for each backend that is here, by name.
fn builders() -> Vec<(String, EngineBuilder)> {
    let backends = all_backends();
    let names: Vec<String> = backends.names().map(str::to_owned).collect();
    let of = |backends: &Backends, name: &str| {
        let config = kiln::BuildConfig { estimates: true, ..kiln::BuildConfig::default() };
        Engine::builder().backends(backends.clone()).backend(name).config(config)
    };
    names.into_iter().map(|n| (n.clone(), of(&backends, &n))).collect()
}

#[test]
fn a_lenet_of_the_api_recognizes_the_scans() {
    let (images, labels) = mnist_api::digits::scans(32).unwrap();
    for (name, builder) in builders() {
        let p = mnist_api::probabilities(&builder, images.clone()).unwrap();
        assert_eq!(p.shape(), [32, 10]);
        let sums = p.to_vec::<f32>().unwrap().chunks(10).map(|r| r.iter().sum::<f32>()).collect::<Vec<_>>();
        assert!(sums.iter().all(|s| (s - 1.0).abs() < 1e-4), "{name}: {sums:?}");
        // This training recognizes all of the first scans.
        assert_eq!(mnist_api::digits::likeliest(&p).unwrap(), labels, "{name}");
    }
}

#[test]
fn conditionals_add_or_subtract_and_pick_even_items() {
    let (x, y) = ([1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 0.0, -1.0, 4.0, 0.5]);
    for (name, builder) in builders() {
        let run = |c| conditional::add_or_subtract(&builder, c, x, y).unwrap();
        assert_eq!(run(true), [11.0, 2.0, 2.0, 8.0, 5.5], "{name}");
        assert_eq!(run(false), [-9.0, 2.0, 4.0, 0.0, 4.5], "{name}");
        let lists = [vec![1, 2, 3, 4, 10], vec![7, 9], vec![], vec![-2]];
        assert_eq!(conditional::sums_of_even(&builder, &lists).unwrap(), [16, 0, 0, -2], "{name}");
    }
}

#[test]
fn loops_stack_what_they_compute_and_end_by_conditions() {
    for (name, builder) in builders() {
        let rows = [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [0.5, 0.0, -3.0]];
        let [last, running, reversed] = loops::sums(&builder, &rows).unwrap();
        assert_eq!(last, [11.5, 22.0, 30.0], "{name}");
        assert_eq!(running, [1.0, 2.0, 3.0, 11.0, 22.0, 33.0, 11.5, 22.0, 30.0], "{name}");
        assert_eq!(reversed, [11.5, 22.0, 30.0, 11.0, 22.0, 33.0, 1.0, 2.0, 3.0], "{name}");
        let [last, running, reversed] = loops::sums(&builder, &[]).unwrap();
        assert_eq!((last, running, reversed), (vec![0.0; 3], vec![], vec![]), "{name}");
        assert_eq!(loops::doubled(&builder, 3.0, 100.0).unwrap(), (192.0, 6), "{name}");
        assert_eq!(loops::doubled(&builder, 3.0, 2.0).unwrap(), (3.0, 0), "{name}");
    }
}

#[test]
fn second_builds_time_nothing() {
    for (name, builder) in builders() {
        // The software driver of wgpu takes its time.
        let config =
            kiln::BuildConfig { samples: 1, max_tactics: 2, search: false, ..kiln::BuildConfig::default() };
        let builder = builder.config(config).shape("input", &[1, 1, 28, 28]);
        let ([first, second], same) = timing_cache::twice(&digits("lenet_a.onnx"), &builder).unwrap();
        // The oracle has one way to run a layer.
        assert!((first > 0 || name == kiln::REFERENCE) && second == 0 && same, "{name}: {first}, {second}");
    }
}

#[test]
fn tensors_without_elements_are_joined_stretched_and_reduced() {
    for (name, builder) in builders() {
        let all = empty_tensors::results(&builder, &[[2, 1, 0, 3], [0, 2, 1, 1], [1, 2, 3, 0]]).unwrap();
        let one = |i: usize, key: &str| all[i][key].clone();
        assert_eq!(one(0, "joined"), (vec![2, 1, 3], vec![2.0; 6]), "{name}");
        assert_eq!(one(0, "spread"), (vec![2, 1, 0], vec![]), "{name}");
        // A sum of nothing is 0, a product of nothing 1.
        assert_eq!(one(0, "sum"), (vec![2, 1], vec![0.0; 2]), "{name}");
        assert_eq!(one(0, "product"), (vec![2, 1], vec![1.0; 2]), "{name}");
        // 0 and 1 stretch to 0.
        assert_eq!(one(1, "spread"), (vec![0, 2, 1], vec![]), "{name}");
        assert_eq!(one(1, "joined"), (vec![0, 2, 2], vec![]), "{name}");
        assert_eq!(one(2, "joined"), (vec![1, 2, 3], vec![2.0; 6]), "{name}");
        assert_eq!(one(2, "sum"), (vec![1, 2], vec![6.0; 2]), "{name}");
        assert_eq!(one(2, "product"), (vec![1, 2], vec![8.0; 2]), "{name}");
    }
}

#[test]
fn images_of_any_size_are_read_by_two_profiles() {
    let (images, labels) = dynamic_shapes::digits::scans(6).unwrap();
    let (one, _) = dynamic_shapes::digits::scans(1).unwrap();
    for (name, builder) in builders() {
        let reader = dynamic_shapes::Reader::new(&builder).unwrap();
        let sets = [
            images.clone(),
            dynamic_shapes::enlarged(&one, 2).unwrap(),
            dynamic_shapes::enlarged(&images, 2).unwrap(),
            one.clone(),
        ];
        let found = reader.read(&sets).unwrap();
        let wanted = [labels.clone(), labels[..1].to_vec(), labels.clone(), labels[..1].to_vec()];
        assert_eq!(found, wanted, "{name}");
        // 33 images are in no profile.
        let many = Tensor::zeros(DType::F32, &[33, 1, 28, 28]).unwrap();
        let e = reader.read(&[many]).unwrap_err().to_string();
        assert!(e.contains("33") && e.contains("32"), "{name}: {e}");
    }
}

#[test]
fn an_inspector_shows_what_the_plan_keeps_at_the_shapes_of_a_context() {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for (name, builder) in builders() {
        let inspect = |verbosity| inspector::inspected(&digits("lenet_a.onnx"), &builder, verbosity).unwrap();
        let (none, names) = (inspect(Verbosity::None), inspect(Verbosity::Names));
        assert!(none.lines.iter().all(|l| l.parse::<usize>().is_ok()), "{name}: {:?}", none.lines);
        assert!(names.lines.iter().any(|l| l.contains("conv1")), "{name}: {:?}", names.lines);
        assert!(json(&names.json)["Layers"][0].is_string(), "{name}: {}", names.json);
        let all = inspect(Verbosity::Detailed);
        let (built, shaped) = (json(&all.json), json(&all.at_shapes));
        assert_eq!(inspector::dimensions(&built, "logits"), Some(vec![-1, 10]), "{name}");
        assert_eq!(inspector::dimensions(&shaped, "logits"), Some(vec![4, 10]), "{name}");
        assert_eq!(built["I/O Tensors"], serde_json::json!(["input", "logits"]), "{name}");
        assert!(built["Layers"][0]["TacticName"].is_string(), "{name}");
    }
}

#[test]
fn ranges_and_types_of_layers_are_obeyed_without_calibration() {
    let (images, labels) = int8_api::digits::scans(16).unwrap();
    for (name, builder) in builders() {
        let config = int8_api::settings(int8_api::ranges().unwrap(), "/conv1/Conv", "/fc1/Gemm");
        let config = kiln::BuildConfig { estimates: true, ..config };
        let (found, codes) = int8_api::recognized(&builder, config.clone(), images.clone()).unwrap();
        assert_eq!(found, labels, "{name}");
        let on_codes = |layer: &str| codes.iter().any(|c| c.contains(layer));
        assert!(on_codes("/fc1/Gemm") && on_codes("/conv2/Conv"), "{name}: {codes:?}");
        // Asked to stay in f32, against the choice of codes everywhere.
        assert!(!on_codes("/conv1/Conv"), "{name}: {codes:?}");
        // Without a range of what it reads a layer cannot do what is asked.
        let mut less = config;
        less.ranges.retain(|name, _| name == "input");
        let e = int8_api::recognized(&builder, less, images.clone()).map(drop).unwrap_err();
        let chain =
            std::iter::successors(e.source(), |e| e.source()).fold(e.to_string(), |t, e| format!("{t}: {e}"));
        assert!(chain.contains("/fc1/Gemm") && chain.contains("i8"), "{name}: {chain}");
    }
}

#[test]
fn a_batch_is_implicit_up_to_the_greatest() {
    for (name, builder) in builders() {
        let batches = [vec![[1.0, 2.0]], vec![[0.0, 0.0], [3.0, 0.5], [-4.0, 1.0], [1.0, 1.0]]];
        let found = implicit_batch::results(&builder, &batches).unwrap();
        assert_eq!(found[0], [1.0, 1.0, 4.0], "{name}");
        assert_eq!(found[1], [0.0, 0.0, 1.0, 3.0, 0.0, 4.5, 0.0, 0.0, 0.0, 1.0, 0.0, 3.0], "{name}");
        let e = implicit_batch::results(&builder, &[vec![[0.0; 2]; 5]]).unwrap_err().to_string();
        assert!(e.contains("\"x\"") && e.contains("[5, 1, 2]") && e.contains("[4, 1, 2]"), "{name}: {e}");
    }
}

#[test]
fn googlenet_answers_in_the_types_that_are_permitted() {
    let sample = googlenet::Sample::read("inception_v1").unwrap();
    let backends = all_backends();
    for (name, builder) in builders() {
        let target = backends.get(&name).unwrap().targets().unwrap().remove(0);
        let all = [(&[][..], 0.99999), (&[DType::F16][..], 0.999), (&[DType::I8][..], 0.9)];
        // A software driver takes minutes for narrow types.
        let types = if target.has("software") { &all[..1] } else { &all[..] };
        for &(types, least) in types {
            let config = sample.settings(&builder, types).unwrap();
            let narrowing = kiln::Narrowing::Everywhere;
            let config = kiln::BuildConfig { estimates: true, narrowing, ..config };
            let (correlation, engine) = sample.compare(&builder, config).unwrap();
            assert!(correlation > least, "{name} in {types:?}: {correlation}");
            let steps = &engine.report().unwrap().steps;
            let is_narrow = |s: &&kiln::report::StepReport| s.inputs.iter().any(|t| types.contains(&t.dtype));
            let narrow = steps.iter().filter(is_narrow).count();
            assert!(types.is_empty() || narrow > 50, "{name} in {types:?}: {narrow} of {}", steps.len());
        }
    }
}
