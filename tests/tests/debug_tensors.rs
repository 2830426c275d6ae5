//! Debug tensors on every backend: what a listener receives, when, and what the engine is without one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, BuildError, Builder};
use kiln_ir::{DType, ErrorCode, ErrorLog, Graph, Source, Tensor, TensorType, ValueId};
use kiln_network::{ActivationKind, Network};
use kiln_onnx::parse_file;
use kiln_plan::Plan;
use kiln_runtime::{DebugListener, Engine, ExecutionContext, Profile, RuntimeError};
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use kiln_tests::models::{archive, data, difference, rows};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const BATCH: usize = 3;

type Seen = Arc<Mutex<Vec<(String, Tensor)>>>;

fn lenet() -> Graph {
    parse_file(data("digits/lenet_a.onnx"), &Default::default()).unwrap().network.lower().unwrap()
}

fn images() -> Tensor {
    rows(&archive("digits/digits_test.npz").unwrap()["images"], 0, BATCH).unwrap()
}

fn profile() -> Profile {
    let mut profile = Profile::new();
    profile.set_shape("input", &[1, 1, 28, 28], &[3, 1, 28, 28], &[4, 1, 28, 28]).unwrap();
    profile
}

fn built(backend: &Arc<dyn Backend>, graph: Graph, debug: &[String]) -> Result<Engine, BuildError> {
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend.clone(), target.clone());
    b.config = BuildConfig {
        samples: 1,
        max_tactics: 1,
        debug_tensors: debug.to_vec(),
        profiles: vec![profile()],
        ..BuildConfig::default()
    };
    let built = b.build_graph(graph, &mut |_, _, _| true)?;
    // Through a file's bytes: marks are part of the plan.
    let bytes = Plan::new(built.program, vec![profile()], target).write().unwrap();
    Ok(Engine::from_plan(Plan::read(bytes).unwrap(), backend.clone()).unwrap())
}

/// Names of all values that layers of LeNet compute, and what the oracle computes for them.
fn oracle() -> BTreeMap<String, Tensor> {
    let mut g = lenet();
    let computed = |v: &ValueId| matches!(g.value(*v).source, Source::Node(..));
    g.outputs = g.value_ids().filter(computed).collect();
    let names: Vec<String> = g.outputs.iter().map(|&v| g.value(v).name.clone()).collect();
    names.into_iter().zip(g.eval(&[images()]).unwrap()).collect()
}

fn listen(context: &mut ExecutionContext) -> Seen {
    let seen = Seen::default();
    let to = seen.clone();
    let listener = move |name: &str, t: &Tensor| {
        to.lock().unwrap().push((name.to_owned(), t.clone()));
        true
    };
    context.set_debug_listener(Some(Box::new(listener)));
    seen
}

fn take(seen: &Seen) -> Vec<(String, Tensor)> {
    std::mem::take(&mut *seen.lock().unwrap())
}

fn names(seen: &[(String, Tensor)]) -> Vec<&str> {
    seen.iter().map(|(n, _)| n.as_str()).collect()
}

fn sorted(seen: &[(String, Tensor)]) -> Vec<String> {
    expected(&names(seen))
}

fn expected(names: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    all.sort_unstable();
    all
}

/// Every tensor of LeNet, marked: a listener gets what the oracle computes, and the outputs stay what they were.
fn every_tensor(backend: &Arc<dyn Backend>) {
    let (wanted, name) = (oracle(), backend.name());
    let all: Vec<String> = wanted.keys().cloned().collect();
    let plain = built(backend, lenet(), &[]).unwrap();
    let engine = built(backend, lenet(), &all).unwrap();
    assert_eq!(engine.io_tensors(), plain.io_tensors(), "{name}: debug tensors are not outputs");
    assert_eq!((plain.debug_tensors().len(), engine.debug_tensors()), (0, all.clone()));
    let mut context = engine.create_context().unwrap();
    let input = [("input", images())];
    let seen = listen(&mut context);
    let quiet = context.run(&input).unwrap();
    assert!(take(&seen).is_empty(), "{name}: all are off at first");
    context.set_all_debug_states(true);
    for run in 0..2 {
        let outputs = context.run(&input).unwrap();
        assert_eq!(*outputs, *quiet, "{name}: run {run}");
        let found = take(&seen);
        let mut sorted = names(&found);
        sorted.sort_unstable();
        assert_eq!(sorted, all, "{name}: each once a run");
        for (tensor, t) in &found {
            let w = &wanted[tensor];
            assert_eq!((t.dtype(), t.shape()), (w.dtype(), w.shape()), "{name}: {tensor}");
            let d = difference(t, w);
            assert!(d <= 1e-3, "{name}: {tensor} differs by {d}");
        }
    }
    // Without a listener runs are as before.
    context.set_debug_listener(None);
    assert_eq!(*context.run(&input).unwrap(), *quiet);
    assert!(take(&seen).is_empty());
}

/// States of single tensors, and of values that nobody marked.
fn states(backend: &Arc<dyn Backend>) {
    let name = backend.name();
    let wanted = oracle();
    let order: Vec<String> = {
        let g = lenet();
        let all = g.nodes().flat_map(|(_, n)| n.outputs.clone()).map(|v| g.value(v).name.clone());
        all.filter(|n| n != "logits").collect()
    };
    let marked = [order[1].clone(), order[3].clone(), "input".to_owned()];
    let engine = built(backend, lenet(), &marked).unwrap();
    let mut context = engine.create_context().unwrap();
    let log = Arc::new(ErrorLog::new(4));
    context.set_error_recorder(Some(log.clone()));
    let seen = listen(&mut context);
    let input = [("input", images())];
    context.set_tensor_debug_state(&order[3], true).unwrap();
    context.run(&input).unwrap();
    assert_eq!(names(&take(&seen)), [&order[3]], "{name}");
    context.set_all_debug_states(true);
    assert!(context.debug_state(&order[1]).unwrap());
    context.run(&input).unwrap();
    let found = take(&seen);
    assert_eq!(sorted(&found), expected(&["input", &order[1], &order[3]]), "{name}");
    assert_eq!((names(&found)[0], &found[0].1), ("input", &images()), "{name}: inputs are known first");
    context.set_tensor_debug_state(&order[1], false).unwrap();
    context.run(&input).unwrap();
    assert_eq!(sorted(&take(&seen)), expected(&["input", &order[3]]), "{name}");
    context.set_all_debug_states(false);
    context.run(&input).unwrap();
    assert!(take(&seen).is_empty());
    // Values between kernels, marked or not.
    context.set_unfused_debug_state(true);
    context.run(&input).unwrap();
    let found = take(&seen);
    assert!(found.len() >= 3 && names(&found).contains(&"logits"), "{name}: {:?}", names(&found));
    for (tensor, t) in found.iter().filter(|(n, _)| wanted.contains_key(n)) {
        let (d, w) = (difference(t, &wanted[tensor]), &wanted[tensor]);
        assert!(t.shape() == w.shape() && d <= 1e-3, "{name}: {tensor} differs by {d}");
    }
    context.set_unfused_debug_state(false);
    // Tensors that were not marked.
    assert!(log.is_empty());
    let e = context.set_tensor_debug_state("logits", true).unwrap_err();
    assert!(matches!(&e, RuntimeError::UnknownTensor { mode: "debug tensor", .. }), "{e}");
    assert!(e.to_string().contains(&order[3]), "{e}");
    assert_eq!(log.get(0).unwrap(), (ErrorCode::InvalidArgument, e.to_string()));
    // A listener that refuses fails the run, once; the next run is right.
    struct Refuses(u32);
    impl DebugListener for Refuses {
        fn debug_tensor(&mut self, _: &str, _: &Tensor) -> bool {
            self.0 += 1;
            self.0 != 2
        }
    }
    context.set_all_debug_states(true);
    context.set_debug_listener(Some(Box::new(Refuses(0))));
    let e = context.run(&input).unwrap_err();
    let second = |t: &String| *t == order[1] || *t == order[3];
    assert!(matches!(&e, RuntimeError::DebugListener { tensor } if second(tensor)), "{e}");
    context.run(&input).unwrap();
    // The end of a run may be waited for, too: then it is reported there.
    let seen = listen(&mut context);
    context.enqueue().unwrap();
    context.wait().unwrap();
    assert_eq!(take(&seen).len(), 3, "{name}");
    context.outputs().unwrap();
    assert!(take(&seen).is_empty(), "{name}: once a run");
}

#[test]
fn every_tensor_on_cpu() {
    every_tensor(&cpu());
}

#[test]
fn states_on_cpu() {
    states(&cpu());
}

#[test]
fn every_tensor_on_reference() {
    every_tensor(&reference());
}

#[test]
fn states_on_reference() {
    states(&reference());
}

#[test]
fn every_tensor_on_wgpu() {
    if let Some(b) = wgpu().unwrap() {
        every_tensor(&b);
    }
}

#[test]
fn states_on_wgpu() {
    if let Some(b) = wgpu().unwrap() {
        states(&b);
    }
}

#[test]
fn every_tensor_on_cuda() {
    if let Some(b) = cuda().unwrap() {
        every_tensor(&b);
    }
}

#[test]
fn states_on_cuda() {
    if let Some(b) = cuda().unwrap() {
        states(&b);
    }
}

#[test]
fn networks_mark_tensors() {
    let mut net = Network::new("net");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let a = net.add_activation(x, ActivationKind::Relu).unwrap().output(0).unwrap();
    let b = net.add_activation(a, ActivationKind::Sigmoid).unwrap().output(0).unwrap();
    let unread = net.add_activation(a, ActivationKind::Tanh).unwrap().output(0).unwrap();
    net.set_tensor_name(a, "a").unwrap();
    net.set_tensor_name(unread, "unread").unwrap();
    net.mark_output(b, "y").unwrap();
    for t in [a, b, unread, a] {
        net.mark_debug(t).unwrap();
    }
    assert_eq!(net.debug_tensors().len(), 3);
    assert!(net.unmark_debug(b) && !net.unmark_debug(b));
    let g = net.lower().unwrap();
    assert_eq!(g.debug.iter().collect::<Vec<_>>(), ["a", "unread"]);
    assert_eq!(Graph::from_text(&g.to_text()).unwrap(), g);
    // A layer that only the listener wants is computed.
    let target = cpu().targets().unwrap().remove(0);
    let built = Builder::new(cpu(), target).build(&net).unwrap();
    let engine = Engine::from_program(built.program, Vec::new(), cpu()).unwrap();
    let mut context = engine.create_context().unwrap();
    let seen = listen(&mut context);
    context.set_all_debug_states(true);
    context.run(&[("x", Tensor::f32(&[4], &[-1.0, 0.0, 0.5, f32::NAN]).unwrap())]).unwrap();
    let seen = take(&seen);
    assert_eq!(names(&seen), ["a", "unread"]);
    assert_eq!(seen[0].1.to_f64()[..3], [0.0, 0.0, 0.5]);
    assert!((seen[1].1.to_f64()[2] - 0.5f64.tanh()).abs() < 1e-6 && seen[1].1.to_f64()[3].is_nan());
}

#[test]
fn names_of_the_settings_are_checked() {
    let e = built(&cpu(), lenet(), &["nothing".to_owned()]).unwrap_err();
    assert!(matches!(e, BuildError::UnknownTensor { .. }), "{e}");
    assert_eq!(e.code(), ErrorCode::InvalidArgument);
    assert!(e.to_string().contains("\"nothing\"") && e.to_string().contains("input"), "{e}");
}
