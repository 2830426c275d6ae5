//! Refits of trained models on all backends: there and back again, while threads run.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Narrowing, Refit};
use kiln_ir::{DType, Elems, Tensor, WeightsRole};
use kiln_onnx::parse_file;
use kiln_plan::Plan;
use kiln_runtime::{Engine, ExecutionContext, Profile, Refitter, verify_recipes};
use kiln_tests::backends::{all, reference};
use kiln_tests::driver::Driver;
use kiln_tests::models::{archive, data, rows};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Weights by name.
type Weights = BTreeMap<String, Tensor>;

fn backends() -> Vec<Arc<dyn Backend>> {
    all().unwrap().into_iter().chain([reference()]).collect()
}

/// Whether a backend computes in a type.
fn has(backend: &Arc<dyn Backend>, t: DType) -> bool {
    t != DType::F16
        || matches!(backend.name(), "cpu" | "reference")
        || backend.targets().unwrap()[0].has("f16")
}

/// The plan of a model of digits for up to 16 images, chosen without times. In i8 all tensors of f32 have one range.
fn plan(model: &str, backend: &Arc<dyn Backend>, reduced: &[DType]) -> Plan {
    let network = parse_file(data(&format!("digits/{model}.onnx")), &Default::default()).unwrap().network;
    let graph = network.lower().unwrap();
    let floats = graph.value_ids().filter(|&v| graph.weight(v).is_none() && graph.ty(v).dtype == DType::F32);
    let ranges = floats.map(|v| (graph.value(v).name.to_string(), [-12.0, 12.0])).collect();
    let target = backend.targets().unwrap().remove(0);
    let mut profile = Profile::new();
    profile.set_shape("input", &[1, 1, 28, 28], &[16, 1, 28, 28], &[16, 1, 28, 28]).unwrap();
    let mut builder = Builder::new(backend.clone(), target.clone());
    let profiles = vec![profile.clone()];
    builder.config = BuildConfig {
        profiles,
        reduced: reduced.to_vec(),
        ranges,
        narrowing: Narrowing::Everywhere,
        refit: Refit::All,
        estimates: true,
        ..BuildConfig::default()
    };
    Plan::new(builder.build(&network).unwrap().program, vec![profile], target.clone())
}

/// The named weights of a model.
fn weights_of(model: &str) -> Weights {
    let network = parse_file(data(&format!("digits/{model}.onnx")), &Default::default()).unwrap().network;
    let g = network.lower().unwrap();
    let named = g.value_ids().filter_map(|v| g.weight(v));
    named.filter_map(|w| Some((w.name.as_ref()?.to_string(), w.tensor.clone()))).collect()
}

/// Other elements of the same type and shape.
fn changed(t: &Tensor) -> Tensor {
    let elems = match t.elems() {
        Elems::F(v) => Elems::F(v.into_iter().map(|x| x * 0.5).collect()),
        Elems::I(v) => Elems::I(v.into_iter().rev().collect()),
    };
    Tensor::from_elems(t.dtype(), t.shape(), &elems).unwrap()
}

fn logits(context: &mut ExecutionContext) -> Tensor {
    let images = rows(&archive("digits/digits_test.npz").unwrap()["images"], 0, 4).unwrap();
    context.run(&[("input", images)]).unwrap().remove(0).1
}

/// A way to give weights to a refitter.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// Weights of layers by their role, others by name.
    Roles(&'a Weights),
    Names(&'a Weights),
    File(&'a Path),
}

impl Way<'_> {
    fn label(&self) -> String {
        match self {
            Way::Roles(_) => "roles".into(),
            Way::Names(_) => "names".into(),
            Way::File(path) => path.display().to_string(),
        }
    }
}

/// Sets all weights that can be replaced.
fn set(r: &mut Refitter, way: Way) {
    match way {
        Way::Names(weights) => r.get_all().iter().for_each(|n| r.set(n, weights[n].clone()).unwrap()),
        Way::Roles(weights) => by_roles(r, weights),
        Way::File(path) => {
            let found = kiln::weights::set_from_file(r, path).unwrap();
            assert_eq!(found.set.len(), r.get_all().len(), "{}", path.display());
        }
    }
    assert_eq!(r.get_missing(), Vec::<String>::new());
}

fn by_roles(r: &mut Refitter, weights: &Weights) {
    let by_role: BTreeMap<String, (String, WeightsRole)> = r
        .get_all_roles()
        .into_iter()
        .map(|(layer, role)| (r.prototype_of(&layer, role).unwrap().name.clone(), (layer, role)))
        .collect();
    for name in r.get_all() {
        match &by_role[&name] {
            (_, WeightsRole::Constant) => r.set(&name, weights[&name].clone()).unwrap(),
            (layer, role) => r.set_weights(layer, *role, weights[&name].clone()).unwrap(),
        }
    }
}

fn refit(engine: &Engine, way: Way) {
    let mut r = engine.refitter().unwrap();
    set(&mut r, way);
    assert!(r.refit().unwrap().replaced > 0);
}

/// Refits to B and back in each of some ways, by an engine that runs in 4 threads. A fresh engine of the refitted plan computes the same.
fn there_and_back(label: &str, backend: &Arc<dyn Backend>, plan: Plan, ways: &[[Way; 2]]) {
    let label = format!("{label} on {}", backend.name());
    let engine = Engine::from_plan(plan.clone(), backend.clone()).unwrap();
    let mut fresh = Refitter::of_plan(plan).unwrap();
    set(&mut fresh, ways[0][0]);
    fresh.refit().unwrap();
    let fresh = Engine::from_plan(fresh.into_plan(), backend.clone()).unwrap();
    let of_b = logits(&mut fresh.create_context().unwrap());
    let mut context = engine.create_context().unwrap();
    let of_a = logits(&mut context);
    assert!(of_a != of_b, "{label}: the weights make no difference");
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let mut own = engine.create_context().unwrap();
                while !done.load(Ordering::Relaxed) {
                    let found = logits(&mut own);
                    assert!(found == of_a || found == of_b, "{label}: weights of two refits mixed");
                }
            });
        }
        for [b, a] in ways {
            let way = b.label();
            refit(&engine, *b);
            assert!(logits(&mut context) == of_b, "{label}: B differs from a fresh engine, by {way}");
            refit(&engine, *a);
            assert!(logits(&mut context) == of_a, "{label}: A, B, A is not A, by {way}");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(verify_recipes(&engine.program()).unwrap().different, Vec::<String>::new(), "{label}");
}

#[test]
fn there_and_back_on_all_backends_in_all_types_while_threads_run() {
    for backend in backends() {
        let (of_a, of_b) = (weights_of("lenet_a_bn"), archive("digits/lenet_b_bn_weights.npz").unwrap());
        let ways = [[Way::Roles(&of_b), Way::Roles(&of_a)], [Way::Names(&of_b), Way::Names(&of_a)]];
        there_and_back("lenet_a_bn", &backend, plan("lenet_a_bn", &backend, &[]), &ways);
        if has(&backend, DType::F16) {
            there_and_back("f16 lenet_a_bn", &backend, plan("lenet_a_bn", &backend, &[DType::F16]), &ways);
        }
        let of_a = weights_of("lenet_a_qdq");
        let of_b: Weights = of_a.iter().map(|(name, t)| (name.clone(), changed(t))).collect();
        let ways = [[Way::Roles(&of_b), Way::Roles(&of_a)]];
        there_and_back("lenet_a_qdq", &backend, plan("lenet_a_qdq", &backend, &[]), &ways);
    }
}

/// The tensors of a file in the format safetensors.
fn safetensors(all: &Weights) -> Vec<u8> {
    let (mut head, mut bytes) = (serde_json::Map::new(), Vec::new());
    for (name, t) in all {
        let from = bytes.len();
        bytes.extend_from_slice(t.bytes());
        let entry =
            serde_json::json!({"dtype": "F32", "shape": t.shape(), "data_offsets": [from, bytes.len()]});
        head.insert(name.clone(), entry);
    }
    let head = serde_json::Value::Object(head).to_string();
    [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &bytes].concat()
}

/// By roles, by names, from archives, safetensors and ONNX models; in f32, in f16 and on codes of 8 bits.
#[test]
fn there_and_back_by_every_way_on_all_backends() {
    let folder = tempfile::tempdir().unwrap();
    let weights = ["b", "a"].map(|m| archive(&format!("digits/lenet_{m}_weights.npz")).unwrap());
    let files = |end: &str| ["b", "a"].map(|m| data(&format!("digits/lenet_{m}{end}")));
    let (archives, models) = (files("_weights.npz"), files(".onnx"));
    let tensors = ["b", "a"].map(|m| folder.path().join(format!("{m}.safetensors")));
    tensors.iter().zip(&weights).for_each(|(path, w)| std::fs::write(path, safetensors(w)).unwrap());
    let mut ways = vec![weights.each_ref().map(Way::Roles), weights.each_ref().map(Way::Names)];
    ways.extend([&archives, &models, &tensors].map(|f| f.each_ref().map(|p| Way::File(p))));
    for backend in backends() {
        // Where a program stands for the device, runs take long: each type goes another way.
        let few = backend.name() == "cuda" && Driver::open().is_of_tests();
        for (at, types) in [&[][..], &[DType::F16], &[DType::I8]].into_iter().enumerate() {
            if !types.iter().all(|&t| has(&backend, t)) {
                continue;
            }
            let ways = if few { &ways[2 * at..=2 * at] } else { &ways[..] };
            let plan = plan("lenet_a", &backend, types);
            let of = |t: &DType| plan.program.weights().any(|(_, w)| w.dtype() == *t);
            assert!(types.iter().all(of), "{} has no weights in {types:?}", backend.name());
            there_and_back(&format!("lenet_a, {types:?}"), &backend, plan, ways);
        }
    }
}

/// On backends that take memory of the caller's: bindings of a context outlive the context that a refit replaces.
#[test]
fn inputs_kept_on_the_device_stay_through_a_refit() {
    let b = archive("digits/lenet_b_weights.npz").unwrap();
    for backend in all().unwrap() {
        let engine = Engine::from_plan(plan("lenet_a", &backend, &[]), backend.clone()).unwrap();
        let mut kept = engine.create_context().unwrap();
        let of_a = logits(&mut kept);
        if kept.keep_on_device().is_err() {
            continue;
        }
        kept.enqueue().unwrap();
        assert!(kept.outputs().unwrap().remove(0).1 == of_a, "{}: before the refit", backend.name());
        refit(&engine, Way::Roles(&b));
        // The elements come from the device, where the first run left them.
        kept.enqueue().unwrap();
        let found = kept.outputs().unwrap().remove(0).1;
        let of_b = logits(&mut engine.create_context().unwrap());
        assert!(found == of_b && found != of_a, "{}: after the refit", backend.name());
        refit(&engine, Way::Roles(&weights_of("lenet_a")));
        kept.enqueue().unwrap();
        assert!(kept.outputs().unwrap().remove(0).1 == of_a, "{}: after the second refit", backend.name());
    }
}
