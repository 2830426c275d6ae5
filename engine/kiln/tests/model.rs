//! The loader of files: an ONNX model, a plan and a network as text, told apart by what is in them.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use kiln::{DType, DiscoverOptions, Engine, EngineBuilder, Error, Model, Network, Tensor, TensorType};
use std::path::{Path, PathBuf};

/// The reference backend, and no plug-ins.
fn builder() -> EngineBuilder {
    Engine::builder().plugins(DiscoverOptions::linked())
}

fn lenet() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits/lenet_a.onnx")
}

fn logits(engine: &Engine) -> Vec<f32> {
    let image: Vec<f32> = (0..784).map(|i| (i % 7) as f32 / 7.0).collect();
    let image = Tensor::from_slice(&[1, 1, 28, 28], &image).unwrap();
    engine.run([("input", image)]).unwrap().get("logits").unwrap().to_vec().unwrap()
}

#[test]
fn content_says_what_a_file_is_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::copy(lenet(), at("model.kiln")).unwrap();
    assert!(builder().build(at("model.kiln")).unwrap().report().is_some());
    let built = builder().build_plan(at("model.kiln")).unwrap();
    built.plan.write_file(&at("plan.onnx")).unwrap();
    let plan = builder().build(at("plan.onnx")).unwrap();
    assert!(plan.report().is_none());
    assert_eq!(logits(&plan), logits(&builder().build(built.plan).unwrap()));
    let text = "graph \"double\" { input %x: f32[3] %y = add(%x, %x) output %y }";
    std::fs::write(at("network.txt"), text).unwrap();
    let doubled = builder().build(at("network.txt")).unwrap();
    let x = Tensor::from_slice(&[3], &[1.0f32, -2.0, 0.5]).unwrap();
    assert_eq!(doubled.run([("x", x)]).unwrap()[0].1.to_vec::<f32>().unwrap(), [2.0, -4.0, 1.0]);
}

#[test]
fn networks_and_plans_in_memory_are_models_too() {
    let mut net = Network::new("same");
    let x = net.add_input("x", TensorType::new(DType::I64, [2])).unwrap();
    let y = net.add_identity(x).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let built = builder().build_plan(&net).unwrap();
    let x = || Tensor::from_slice(&[2], &[7i64, -7]).unwrap();
    for engine in [builder().build(built.plan).unwrap(), builder().build(&net).unwrap()] {
        assert_eq!(engine.run([("x", x())]).unwrap().get("y").unwrap(), &x());
    }
}

#[test]
fn files_that_are_none_of_them_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |content: &[u8]| {
        let path = folder.path().join("it");
        std::fs::write(&path, content).unwrap();
        let e = Model::open(&path).unwrap_err();
        assert!(e.to_string().contains("it") || matches!(e, Error::Plan(_)), "{e}");
        e
    };
    assert!(matches!(refused(b""), Error::Import { .. }));
    assert!(matches!(refused(b"\x08\x07garbage"), Error::Import { .. }));
    assert!(matches!(refused(b"KILNPLAN and no more"), Error::Plan(_)));
    let e = refused(b"graph \"wrong\" { input %x: f32[3] output %z }");
    assert!(matches!(e, Error::Text { .. }), "{e}");
    assert!(matches!(Model::open(folder.path().join("absent")), Err(Error::File { .. })));
    assert!(matches!(Model::open(folder.path()), Err(Error::File { .. })));
}

#[test]
fn options_of_the_build_are_refused_for_plans_not_ignored() {
    let plan = builder().build_plan(lenet()).unwrap().plan;
    let refused = |b: EngineBuilder| match b.build(plan.clone()) {
        Err(Error::Built { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(builder().backend("wgpu")), "backend");
    assert_eq!(refused(builder().fallback("cpu")), "fallback");
    assert_eq!(refused(builder().shape("input", &[2, 1, 28, 28])), "shapes");
    assert_eq!(refused(builder().timing_cache("times.jsonl")), "timing_cache");
    assert!(builder().backend("cpu").build(plan.clone()).is_ok());
}

#[test]
fn portable_plans_are_built_again_and_others_say_that_they_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan");
    let mut options = kiln::BuildOptions::default();
    options.portable = true;
    options.config.fuse = false;
    let first = builder().options(options).build_plan(lenet()).unwrap();
    first.plan.write_file(&file).unwrap();
    let again = builder().shape("input", &[1, 1, 28, 28]).build_plan(&file).unwrap();
    assert!(again.report.steps.len() < first.report.steps.len(), "it was not fused anew");
    assert_eq!(logits(&builder().build(again.plan.clone()).unwrap()).len(), 10);
    let e = builder().build_plan(again.plan).unwrap_err();
    assert!(
        matches!(e, Error::NotPortable { .. }) && e.to_string().contains("build it from the model"),
        "{e}"
    );
}

#[test]
fn strong_types_hold_wherever_a_network_goes() {
    let mut net = Network::strongly_typed("strong");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let y = net.add_unary(x, kiln::network::UnaryOp::Exp).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let mut portable = kiln::BuildOptions::default();
    portable.portable = true;
    let plan = builder().options(portable).build_plan(&net).unwrap().plan;
    let mut narrow = kiln::BuildOptions::default();
    narrow.config.reduced = vec![DType::F16];
    let refused =
        |e: Error| matches!(e, Error::Build { source, .. } if source.to_string().contains("strongly typed"));
    assert!(refused(builder().options(narrow.clone()).build_plan(&net).unwrap_err()));
    assert!(refused(builder().options(narrow).build_plan(plan).unwrap_err()));
}

#[test]
fn outputs_that_do_not_exist_are_listed() {
    let engine = builder().build(lenet()).unwrap();
    let image = Tensor::zeros(DType::F32, &[1, 1, 28, 28]).unwrap();
    let outputs = engine.run([("input", image.clone())]).unwrap();
    let e = outputs.get("probabilities").unwrap_err().to_string();
    assert!(e.contains("probabilities") && e.contains("logits"), "{e}");
    let e = engine.run([("image", image)]).unwrap_err().to_string();
    assert!(e.contains("\"image\"") && e.contains("input"), "{e}");
    let e =
        engine.run([("input", Tensor::zeros(DType::F16, &[1, 1, 28, 28]).unwrap())]).unwrap_err().to_string();
    assert!(e.contains("f16") && e.contains("f32"), "{e}");
}
