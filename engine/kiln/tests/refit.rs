//! Refit through the façade: roles, names and files of all kinds; stripped plans; saved engines.
#![allow(clippy::panic, reason = "a test")]

use kiln::{
    BuildConfig, DType, Engine, Error, Network, Plan, Refit, Refitter, RuntimeError, Tensor, WeightsRole,
    weights,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn digits(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits")).join(name)
}

fn plan(model: &str, refit: Refit, strip: bool) -> Plan {
    // Without times all builds choose alike.
    let config = BuildConfig { estimates: true, refit, ..BuildConfig::default() };
    let builder = Engine::builder().backend("cpu").config(config).strip_weights(strip);
    builder.build_plan(digits(model)).expect("the model builds").plan
}

fn written(plan: &Plan) -> Vec<u8> {
    plan.write().expect("bytes")
}

fn load(plan: Plan) -> Engine {
    Engine::builder().build(plan).expect("the plan loads")
}

fn logits(engine: &Engine) -> Tensor {
    let image =
        Tensor::from_slice(&[1, 1, 28, 28], &(0..784).map(|i| (i % 17) as f32 / 17.0).collect::<Vec<_>>());
    let image = image.expect("an image");
    engine.run([("input", image)]).expect("it runs").get("logits").expect("logits").clone()
}

fn archive(name: &str) -> BTreeMap<String, Tensor> {
    let arrays = kiln_npz::read_npz(digits(name)).expect("an archive");
    let tensor = |(n, a): (String, kiln_npz::Array)| {
        let t = kiln::arrays::tensor(&n, a).expect("a tensor");
        (n, t)
    };
    arrays.into_iter().map(tensor).collect()
}

fn said<T: std::fmt::Debug, E: std::fmt::Display>(r: Result<T, E>) -> String {
    r.map_err(|e| e.to_string()).expect_err("it is refused")
}

/// All tensors of an archive as safetensors.
fn safetensors(all: &BTreeMap<String, Tensor>) -> Vec<u8> {
    let views = all.iter().map(|(n, t)| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, t.shape().to_vec(), t.bytes());
        (n.clone(), view.expect("a view"))
    });
    safetensors::serialize(views, None).expect("safetensors")
}

#[test]
fn plans_without_refit_keep_no_sources_and_are_smaller() {
    let size = |refit| plan("lenet_a_bn.onnx", refit, false).write().expect("bytes").len();
    let (off, all) = (size(Refit::Off), size(Refit::All));
    assert!(off + 100_000 < all, "{off} bytes without refit, {all} with");
    let engine = load(plan("lenet_a_bn.onnx", Refit::Off, false));
    assert!(said(engine.refitter().map(drop)).contains("built without refit"));
    assert_eq!(logits(&engine), logits(&load(plan("lenet_a_bn.onnx", Refit::All, false))));
}

#[test]
fn a_to_b_to_a_by_roles_names_and_files_is_exact() {
    let (a, b) =
        (load(plan("lenet_a.onnx", Refit::All, false)), load(plan("lenet_b.onnx", Refit::All, false)));
    let (of_a, of_b) = (logits(&a), logits(&b));
    assert_ne!(of_a, of_b);
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = vec![];
    for (model, name) in [("lenet_b", "b"), ("lenet_a", "a")] {
        let path = folder.path().join(format!("{name}.safetensors"));
        std::fs::write(&path, safetensors(&archive(&format!("{model}_weights.npz")))).expect("a file");
        files.push([digits(&format!("{model}_weights.npz")), path, digits(&format!("{model}.onnx"))]);
    }
    let [of_file_b, of_file_a] = &files[..] else { panic!("two models") };
    for (file_b, file_a) in of_file_b.iter().zip(of_file_a) {
        for (file, wanted) in [(file_b, &of_b), (file_a, &of_a)] {
            let mut refitter = a.refitter().expect("a refitter");
            let found = weights::set_from_file(&mut refitter, file).expect("weights");
            assert_eq!(found.set.len(), 8, "{}", file.display());
            assert!(refitter.get_missing().is_empty());
            assert_eq!(refitter.refit().expect("a refit").replaced, 8);
            assert_eq!(&logits(&a), wanted, "{}", file.display());
        }
    }
    // By layers and roles where a layer has them, by name elsewhere.
    for (name, wanted) in [("lenet_b_weights.npz", &of_b), ("lenet_a_weights.npz", &of_a)] {
        let mut refitter = a.refitter().expect("a refitter");
        let values = archive(name);
        let roles = refitter.get_all_roles();
        assert!(roles.iter().any(|(_, r)| *r == WeightsRole::Kernel), "{roles:?}");
        assert!(roles.iter().any(|(_, r)| *r == WeightsRole::Bias), "{roles:?}");
        for (layer, role) in roles {
            let weight = refitter.prototype_of(&layer, role).expect("a weight").name.clone();
            refitter.set_weights(&layer, role, values[&weight].clone()).expect("a role");
        }
        refitter.refit().expect("a refit");
        assert_eq!(&logits(&a), wanted, "{name}");
    }
}

#[test]
fn a_refitted_engine_is_saved_and_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("b.kiln");
    let engine = load(plan("lenet_a_bn.onnx", Refit::All, false));
    assert!(written(&engine.plan()) == written(&plan("lenet_a_bn.onnx", Refit::All, false)));
    let mut refitter = engine.refitter().expect("a refitter");
    weights::set_from_file(&mut refitter, digits("lenet_b_bn_weights.npz")).expect("weights");
    assert!(refitter.refit().expect("a refit").derived > 0);
    engine.plan().write_file(&file).expect("a file");
    let saved = Engine::open(&file).expect("an engine");
    assert_eq!(logits(&saved), logits(&engine));
    assert_eq!(kiln::verify_recipes(&saved.program()).expect("recipes").different, Vec::<String>::new());
    // The plan can be refitted without a device to the same bytes.
    let mut refitter = Refitter::of_plan(plan("lenet_a_bn.onnx", Refit::All, false)).expect("a refitter");
    weights::set_from_file(&mut refitter, digits("lenet_b_bn_weights.npz")).expect("weights");
    refitter.refit().expect("a refit");
    assert!(
        written(&refitter.into_plan()) == std::fs::read(&file).expect("bytes"),
        "without a device the same"
    );
}

#[test]
fn stripped_plans_run_once_they_are_filled() {
    let whole = plan("lenet_a_bn.onnx", Refit::Identical, false);
    let stripped = plan("lenet_a_bn.onnx", Refit::Off, true);
    assert!(stripped.header.identical && stripped.header.refittable);
    let (full, small) = (whole.write().expect("bytes"), stripped.write().expect("bytes"));
    assert!(small.len() < full.len() / 4, "{} of {} bytes", small.len(), full.len());
    let engine = load(Plan::read(small).expect("a plan"));
    let all = load(plan("lenet_a_bn.onnx", Refit::Identical, false));
    let (size, left_out) = (engine.weights_size(), engine.stripped_weights_size().expect("a stripped plan"));
    assert_eq!((all.weights_size(), all.stripped_weights_size()), (size, None));
    // Sources of derived weights are in the plan, and do not count.
    assert!(size > 100_000 && size < full.len() as u64, "{size} of {} bytes", full.len());
    assert!(left_out <= size && left_out > size / 10 * 9, "{left_out} of {size} bytes");
    let image = Tensor::from_slice(&[1, 1, 28, 28], &[0.5f32; 784]).expect("an image");
    let e = engine.run([("input", image)]).map(drop);
    assert!(matches!(e, Err(Error::Runtime(RuntimeError::Stripped { count, .. })) if count >= 8), "{e:?}");
    let mut refitter = engine.refitter().expect("a refitter");
    let missing = refitter.get_missing();
    assert_eq!(missing, engine.plan().header.absent.iter().map(|a| a.name.clone()).collect::<Vec<_>>());
    assert!(said(refitter.refit()).contains("also set"));
    // Other weights than those of the build are refused, unless nobody checks.
    let other = archive("lenet_b_bn_weights.npz");
    assert!(
        said(refitter.set("conv1.weight", other["conv1.weight"].clone())).contains("identical weights only")
    );
    weights::set_from_file(&mut refitter, digits("lenet_a_bn.onnx")).expect("the model");
    assert!(refitter.get_missing().is_empty());
    refitter.refit().expect("a refit");
    assert_eq!(logits(&engine), logits(&load(whole)));
    assert!(written(&engine.plan()) == full, "a filled plan is the plan that was not stripped");
    let mut refitter = engine.refitter().expect("a refitter");
    refitter.set_validation(false);
    refitter.set("conv1.weight", other["conv1.weight"].clone()).expect("no checks");
}

#[test]
fn stripped_plans_are_filled_as_they_are_loaded() {
    let whole = logits(&load(plan("lenet_a.onnx", Refit::Identical, false)));
    let stripped = || plan("lenet_a.onnx", Refit::Off, true);
    // From the model, or from two files that have a part each.
    let engine = Engine::builder().external_weights(digits("lenet_a.onnx")).build(stripped());
    assert_eq!(logits(&engine.expect("an engine")), whole);
    let folder = tempfile::tempdir().expect("a folder");
    let all = archive("lenet_a_weights.npz");
    let (first, second): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.into_iter().partition(|(n, _)| n.starts_with("conv"));
    let (a, b) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    std::fs::write(&a, safetensors(&first)).expect("written");
    std::fs::write(&b, safetensors(&second)).expect("written");
    let engine = Engine::builder().external_weights(&a).external_weights(&b).build(stripped());
    assert_eq!(logits(&engine.expect("an engine")), whole);
    // A part alone, other weights, and plans that take none are refused.
    let refused = |file: PathBuf, plan: Plan| said(Engine::builder().external_weights(file).build(plan));
    let e = refused(a, stripped());
    assert!(e.contains("also set") && second.keys().any(|n| e.contains(n.as_str())), "{e}");
    assert!(refused(digits("lenet_b_weights.npz"), stripped()).contains("identical weights only"));
    let fixed = plan("lenet_a.onnx", Refit::Off, false);
    assert!(refused(digits("lenet_a.onnx"), fixed).contains("without refit"));
    // A refittable plan runs with the weights of the file.
    let other = plan("lenet_a.onnx", Refit::All, false);
    let engine =
        Engine::builder().external_weights(digits("lenet_b_weights.npz")).build(other).expect("an engine");
    assert_eq!(logits(&engine), logits(&load(plan("lenet_b.onnx", Refit::All, false))));
}

#[test]
fn single_weights_are_refittable_where_only_they_are_asked_for() {
    let one = Refit::Individual(["conv1.weight".to_owned()].into());
    let engine = load(plan("lenet_a.onnx", one, false));
    let mut refitter = engine.refitter().expect("a refitter");
    assert_eq!(refitter.get_all(), ["conv1.weight"]);
    let b = archive("lenet_b_weights.npz");
    assert!(said(refitter.set("conv2.weight", b["conv2.weight"].clone())).contains("there is no weight"));
    refitter.set("conv1.weight", b["conv1.weight"].clone()).expect("set");
    assert_eq!(refitter.get_missing(), Vec::<String>::new());
    refitter.refit().expect("a refit");
    let all = load(plan("lenet_a.onnx", Refit::All, false));
    let mut refitter = all.refitter().expect("a refitter");
    refitter.set("conv1.weight", b["conv1.weight"].clone()).expect("set");
    refitter.refit().expect("a refit");
    assert_eq!(logits(&engine), logits(&all));
    let none = Refit::Individual(["conv9.weight".to_owned()].into());
    let e = Engine::builder().backend("cpu").refit(none).build(digits("lenet_a.onnx")).map(drop);
    let Err(Error::Build { source, .. }) = e else { panic!("{e:?}") };
    assert!(
        source.to_string().contains("conv9.weight") && source.to_string().contains("conv1.bias"),
        "{source}"
    );
}

fn f32s(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(shape, v).expect("a tensor")
}

/// A network of layers with weights in all roles, that nobody named but one.
fn layers() -> Network {
    let mut net = Network::new("roles");
    let x = net.add_input("x", kiln::TensorType::new(DType::F32, [1, 1, 2, 2])).expect("an input");
    let conv =
        net.add_convolution_nd(x, 2, &[1, 1], Some(f32s(&[2], &[1.0, 2.0])), Some(f32s(&[2], &[0.5, -0.5])));
    let conv = conv.expect("a convolution").set_name("conv").expect("a name").output(0).expect("an output");
    let (shift, scale) = (f32s(&[2], &[1.0, 1.0]), f32s(&[2], &[2.0, 3.0]));
    let scale = net.add_scale(conv, kiln::network::ScaleMode::Channel, Some(shift), Some(scale), None);
    let scale = scale.expect("a scale").set_name("scale").expect("a name").output(0).expect("an output");
    let c =
        net.add_constant(f32s(&[1, 2, 2, 2], &[1.0; 8])).expect("a constant").set_name("c").expect("a name");
    let c = c.set_weights_name(WeightsRole::Constant, "named").expect("a name").output(0).expect("an output");
    let y = net.add_elementwise(scale, c, kiln::network::ElementwiseOp::Sum).expect("a sum");
    let y = y.output(0).expect("an output");
    net.mark_output(y, "y").expect("an output");
    net
}

#[test]
fn weights_that_nobody_named_are_known_by_layer_and_role() {
    let builder = Engine::builder().backend("cpu").refit(Refit::All);
    let engine = load(builder.build_plan(&layers()).expect("it builds").plan);
    let mut r = engine.refitter().expect("a refitter");
    assert_eq!(r.get_all(), ["conv/bias", "conv/kernel", "named", "scale/scale", "scale/shift"]);
    use WeightsRole::{Any, Bias, Constant, Kernel, Scale, Shift};
    let pair = |l: &str, r| (l.to_owned(), r);
    let wanted = [
        pair("c", Constant),
        pair("conv", Kernel),
        pair("conv", Bias),
        pair("scale", Shift),
        pair("scale", Scale),
    ];
    assert_eq!(r.get_all_roles(), wanted);
    assert_eq!(r.prototype_of("conv", Kernel).expect("a kernel").shape, [2, 1, 1, 1]);
    assert_eq!(r.prototype_of("c", Any).expect("the only weights").name, "named");
    assert!(said(r.prototype_of("conv", Any)).contains("kernel, bias"));
    assert!(said(r.prototype_of("conv", Scale)).contains("no weights of scale; it has kernel, bias"));
    assert!(said(r.prototype_of("cone", Kernel)).contains("there are c, conv, scale"));
    let wrong = r.set_weights("conv", Bias, f32s(&[3], &[0.0; 3]));
    assert!(said(wrong).contains("\"conv/bias\" is f32[2], was given f32[3]"));
    let x = || [("x", f32s(&[1, 1, 2, 2], &[1.0; 4]))];
    let y = |e: &Engine| e.run(x()).expect("it runs").get("y").expect("y").to_f64();
    assert_eq!(y(&engine), [[5.0; 4], [6.5; 4]].concat());
    r.set_weights("conv", Kernel, f32s(&[2, 1, 1, 1], &[3.0, 4.0])).expect("a kernel");
    assert_eq!(r.get("conv/kernel").map(Tensor::to_f64), Some(vec![3.0, 4.0]));
    assert!(r.unset_weights("conv", Kernel).expect("a role") && r.get("conv/kernel").is_none());
    r.set_weights("conv", Kernel, f32s(&[2, 1, 1, 1], &[3.0, 4.0])).expect("a kernel");
    r.set_weights("conv", Bias, f32s(&[2], &[0.0, 0.0])).expect("a bias");
    r.set_weights("scale", Scale, f32s(&[2], &[1.0, 10.0])).expect("a scale");
    r.set_weights("scale", Shift, f32s(&[2], &[0.0, 0.0])).expect("a shift");
    r.set_weights("c", Any, f32s(&[1, 2, 2, 2], &[0.0; 8])).expect("a constant");
    r.refit().expect("a refit");
    assert_eq!(y(&engine), [[3.0; 4], [40.0; 4]].concat());
}
