//! Engines whose weights are streamed within a budget: bit for bit the same outputs, on every backend that streams.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::Network;
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::Plan;
use kiln_runtime::{Engine, LoadOptions, Outputs, Profile, RuntimeError};
use kiln_tests::backends;
use kiln_tests::models::data;
use std::sync::Arc;

fn streaming() -> Vec<Arc<dyn Backend>> {
    [backends::wgpu().unwrap(), backends::cuda().unwrap()].into_iter().flatten().collect()
}

/// A plan of a LeNet of one to four images, which can be refitted.
fn plan(backend: &Arc<dyn Backend>, model: &str) -> Plan {
    let network = parse_file(data(model), &ImportOptions::default()).unwrap().network;
    let mut profile = Profile::new();
    profile.set_shape("input", &[1, 1, 28, 28], &[2, 1, 28, 28], &[4, 1, 28, 28]).unwrap();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig {
        profiles: vec![profile.clone()],
        refit: Refit::All,
        estimates: true,
        ..BuildConfig::default()
    };
    Plan::new(builder.build(&network).unwrap().program, vec![profile], target)
}

fn images(n: usize) -> Tensor {
    let mut rng = Rng::new(7);
    rng.tensor_in(kiln_ir::DType::F32, &[n, 1, 28, 28], 0.0, 1.0, 1)
}

fn run(engine: &Engine, n: usize) -> Outputs {
    engine.create_context().unwrap().run(&[("input", images(n))]).unwrap()
}

#[test]
fn outputs_are_the_same_within_any_budget() {
    for backend in streaming() {
        let plan = plan(&backend, "digits/lenet_a.onnx");
        let engine = Engine::from_plan(plan.clone(), backend.clone()).unwrap();
        let (all, least) = (engine.streamable_weights(), engine.least_weight_budget());
        assert!(least < all && least > all / 2, "the largest layer has most of them: {least} of {all}");
        let mut context = engine.create_context().unwrap();
        let wanted = [run(&engine, 1), run(&engine, 4)];
        let kept = context.run(&[("input", images(4))]).unwrap();
        assert_eq!(kept, wanted[1]);
        assert_eq!(engine.weight_budget(), None);
        for budget in [least, (least + all) / 2, all * 2] {
            engine.set_weight_budget(Some(budget)).unwrap();
            assert_eq!(engine.weight_budget(), Some(budget));
            // A context of before follows, several shapes and runs in turn included.
            for n in [4, 1, 4] {
                let found = context.run(&[("input", images(n))]).unwrap();
                assert_eq!(found, wanted[usize::from(n == 4)], "{}: {budget} bytes", backend.name());
            }
            assert_eq!(run(&engine, 1), wanted[0]);
            // CUDA copies them by nodes of its graph, for which the host does not wait.
            let waits = context.counters().backend.host_syncs > 0;
            let copied = budget < all && backend.name() != "cuda";
            assert_eq!(waits, copied, "{}: weights are copied in the run", backend.name());
        }
        // A budget below the least is refused with an error, and nothing changes then.
        let e = engine.set_weight_budget(Some(least - 1)).unwrap_err().to_string();
        assert!(e.contains(&format!("at least {least} bytes")), "{e}");
        assert_eq!(engine.weight_budget(), Some(all * 2));
        engine.set_weight_budget(None).unwrap();
        assert_eq!(context.run(&[("input", images(1))]).unwrap(), wanted[0]);
        // A plan that is loaded with a budget.
        let mut options = LoadOptions::default();
        options.weight_budget = Some(least);
        let engine = Engine::from_plan_with(plan, backend.clone(), &options).unwrap();
        assert_eq!((run(&engine, 4), engine.weight_budget()), (wanted[1].clone(), Some(least)));
    }
}

/// Twenty products by weights of equal size: a tenth of them is on the device.
#[test]
fn a_tenth_of_the_weights_on_the_device_gives_the_same_outputs() {
    let mut net = Network::new("layers");
    let mut rng = Rng::new(11);
    let mut v = net.add_input("x", TensorType::new(DType::F32, [4, 128])).unwrap();
    for i in 0..20 {
        let w = rng.tensor_in(DType::F32, &[128, 128], -0.2, 0.2, 1);
        let w = net.add_weights(Some(&format!("w{i}")), w).unwrap();
        v = net.add_layer(&format!("y{i}"), "matmul", Attrs::new(), &[Some(v), Some(w)]).unwrap()[0];
        v = net.add_layer(&format!("z{i}"), "tanh", Attrs::new(), &[Some(v)]).unwrap()[0];
    }
    net.mark_output(v, "y").unwrap();
    let x = rng.tensor_in(DType::F32, &[4, 128], -1.0, 1.0, 1);
    for backend in streaming() {
        let target = backend.targets().unwrap().remove(0);
        let mut builder = Builder::new(backend.clone(), target.clone());
        builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
        let plan = Plan::new(builder.build(&net).unwrap().program, Vec::new(), target);
        let engine = Engine::from_plan(plan, backend.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        let wanted = context.run(&[("x", x.clone())]).unwrap();
        let (all, least) = (engine.streamable_weights(), engine.least_weight_budget());
        assert!(least <= all / 10, "{}: {least} of {all} bytes at least", backend.name());
        engine.set_weight_budget(Some(all / 10)).unwrap();
        for _ in 0..4 {
            assert_eq!(context.run(&[("x", x.clone())]).unwrap(), wanted, "{}", backend.name());
        }
    }
}

#[test]
fn a_refit_keeps_the_budget_and_contexts_run_at_the_same_time() {
    for backend in streaming() {
        let (a, b) = (plan(&backend, "digits/lenet_a.onnx"), plan(&backend, "digits/lenet_b.onnx"));
        let wanted = run(&Engine::from_plan(b, backend.clone()).unwrap(), 2);
        let engine = Engine::from_plan(a, backend.clone()).unwrap();
        let before = run(&engine, 2);
        engine.set_weight_budget(Some(engine.least_weight_budget())).unwrap();
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let mut context = engine.create_context().unwrap();
                    for _ in 0..5 {
                        assert_eq!(context.run(&[("input", images(2))]).unwrap(), before);
                    }
                });
            }
        });
        let other = parse_file(data("digits/lenet_b.onnx"), &ImportOptions::default()).unwrap().network;
        let graph = other.lower().unwrap();
        let mut refitter = engine.refitter().unwrap();
        let names: Vec<String> = refitter.weights().map(|w| w.name.clone()).collect();
        for name in names {
            let weight = graph.find(&name).and_then(|v| graph.weight(v)).unwrap();
            refitter.set(&name, weight.tensor.clone()).unwrap();
        }
        refitter.refit().unwrap();
        assert_eq!(run(&engine, 2), wanted, "{}", backend.name());
        assert!(engine.weight_budget().is_some());
    }
}

#[test]
fn backends_with_weights_in_host_memory_refuse_budgets() {
    for backend in [backends::cpu(), backends::reference()] {
        let plan = plan(&backend, "digits/lenet_a.onnx");
        let engine = Engine::from_plan(plan, backend).unwrap();
        let e = engine.set_weight_budget(Some(1 << 20)).unwrap_err();
        assert!(
            matches!(e, RuntimeError::Backend { .. }) && e.to_string().contains("does not stream"),
            "{e}"
        );
        assert_eq!(run(&engine, 1).len(), 1);
    }
}
