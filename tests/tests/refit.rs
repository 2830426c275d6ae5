//! Refits of trained models on all backends: there and back again, while threads run.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln_backend::{Backend, Target};
use kiln_builder::{BuildConfig, Builder, Narrowing, Refit};
use kiln_ir::{DType, Elems, Tensor, WeightsRole};
use kiln_onnx::parse_file;
use kiln_plan::Plan;
use kiln_runtime::{Engine, ExecutionContext, Profile, Refitter, verify_recipes};
use kiln_tests::backends::all;
use kiln_tests::models::{archive, data, rows};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Weights by name.
type Weights = BTreeMap<String, Tensor>;

/// The plan of a model of digits for up to 16 images, chosen without times.
fn plan(model: &str, backend: &Arc<dyn Backend>, target: &Target, reduced: Vec<DType>) -> Plan {
    let network = parse_file(data(&format!("digits/{model}.onnx")), &Default::default()).unwrap().network;
    let mut profile = Profile::new();
    profile.set_shape("input", &[1, 1, 28, 28], &[16, 1, 28, 28], &[16, 1, 28, 28]).unwrap();
    let mut builder = Builder::new(backend.clone(), target.clone());
    let profiles = vec![profile.clone()];
    builder.config = BuildConfig {
        profiles,
        reduced,
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
    let images = rows(&archive("digits/digits_test.npz").unwrap()["images"], 0, 16).unwrap();
    context.run(&[("input", images)]).unwrap().remove(0).1
}

/// Sets weights that can be replaced, those of layers by their role.
fn set(r: &mut Refitter, weights: &Weights) {
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
    assert_eq!(r.get_missing(), Vec::<String>::new());
}

fn refit(engine: &Engine, weights: &Weights) {
    let mut r = engine.refitter().unwrap();
    set(&mut r, weights);
    assert!(r.refit().unwrap().replaced > 0);
}

/// Refits to B and back, by an engine that runs in 4 threads, and compares with a fresh engine of the refitted plan.
fn there_and_back(model: &str, backend: &Arc<dyn Backend>, reduced: Vec<DType>, b: &Weights) {
    let label = format!("{model} on {}, {reduced:?}", backend.name());
    let target = backend.targets().unwrap().remove(0);
    let plan = plan(model, backend, &target, reduced);
    let a = weights_of(model);
    let engine = Engine::from_plan(plan.clone(), backend.clone()).unwrap();
    let mut fresh = Refitter::of_plan(plan).unwrap();
    set(&mut fresh, b);
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
        for _ in 0..2 {
            refit(&engine, b);
            assert!(logits(&mut context) == of_b, "{label}: B differs from a fresh engine");
            refit(&engine, &a);
            assert!(logits(&mut context) == of_a, "{label}: A, B, A is not A");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(verify_recipes(&engine.program()).unwrap().different, Vec::<String>::new(), "{label}");
}

#[test]
fn there_and_back_on_all_backends_in_all_types_while_threads_run() {
    for backend in all().unwrap() {
        let halves = backend.name() == "cpu" || backend.targets().unwrap()[0].has("f16");
        let b = archive("digits/lenet_b_weights.npz").unwrap();
        there_and_back("lenet_a", &backend, Vec::new(), &b);
        let b = archive("digits/lenet_b_bn_weights.npz").unwrap();
        there_and_back("lenet_a_bn", &backend, Vec::new(), &b);
        if halves {
            there_and_back("lenet_a_bn", &backend, vec![DType::F16], &b);
        }
        let b: Weights = weights_of("lenet_a_qdq").into_iter().map(|(name, t)| (name, changed(&t))).collect();
        there_and_back("lenet_a_qdq", &backend, Vec::new(), &b);
    }
}

/// On backends that take memory of the caller's: bindings of a context outlive the context that a refit replaces.
#[test]
fn inputs_kept_on_the_device_stay_through_a_refit() {
    let b = archive("digits/lenet_b_weights.npz").unwrap();
    for backend in all().unwrap() {
        let target = backend.targets().unwrap().remove(0);
        let engine =
            Engine::from_plan(plan("lenet_a", &backend, &target, Vec::new()), backend.clone()).unwrap();
        let mut kept = engine.create_context().unwrap();
        let of_a = logits(&mut kept);
        if kept.keep_on_device().is_err() {
            continue;
        }
        kept.enqueue().unwrap();
        assert!(kept.outputs().unwrap().remove(0).1 == of_a, "{}: before the refit", backend.name());
        refit(&engine, &b);
        // The elements come from the device, where the first run left them.
        kept.enqueue().unwrap();
        let found = kept.outputs().unwrap().remove(0).1;
        let of_b = logits(&mut engine.create_context().unwrap());
        assert!(found == of_b && found != of_a, "{}: after the refit", backend.name());
        refit(&engine, &weights_of("lenet_a"));
        kept.enqueue().unwrap();
        assert!(kept.outputs().unwrap().remove(0).1 == of_a, "{}: after the second refit", backend.name());
    }
}
