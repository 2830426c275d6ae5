//! Runs that wait for the host say at which layer, why, and what may be done.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, assisted};
use kiln_builder::{BuildConfig, BuildError, Builder};
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_runtime::{Engine, ExecutionContext, HostLayer};
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use kiln_tests::models::{archive, engine};
use std::collections::BTreeMap;
use std::sync::Arc;

/// x doubled so many times.
fn doubled(net: &mut Network, name: &str, x: TensorId, n: TensorId) -> TensorId {
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, name).unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let next = net.add_layer("next", "add", Attrs::new(), &[Some(value), Some(value)]).unwrap()[0];
    net.set_input(id, 1, next).unwrap();
    net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap()
}

/// Elements of a tensor that is too large for the host to follow what is computed from it.
const MANY: usize = 300;

/// The greatest element of a large tensor, found on the device.
fn greatest(net: &mut Network, x: TensorId) -> TensorId {
    let axis = net.add_weights(None, Tensor::i64(&[1], &[0]).unwrap()).unwrap();
    let attrs = Attrs::new().with("op", "max").with("keep_dims", false);
    net.add_layer("greatest", "reduce", attrs, &[Some(x), Some(axis)]).unwrap()[0]
}

/// A loop of 3 iterations, one of as many as the device finds, and the places of what is not zero.
fn net(counted: bool, asked: bool, places: bool) -> Network {
    let mut net = Network::new("host");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [MANY as i64])).unwrap();
    let three = net.add_weights(None, Tensor::i64(&[], &[3]).unwrap()).unwrap();
    if places {
        let found = net.add_layer("places", "nonzero", Attrs::new(), &[Some(x)]).unwrap()[0];
        net.mark_output(found, "found").unwrap();
    }
    if counted {
        let y = doubled(&mut net, "counted", x, three);
        net.mark_output(y, "y").unwrap();
    }
    if asked {
        let n = greatest(&mut net, n);
        let z = doubled(&mut net, "asked", x, n);
        net.mark_output(z, "z").unwrap();
    }
    net
}

fn context(backend: &Arc<dyn Backend>, net: &Network) -> ExecutionContext {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let program = builder.build(net).unwrap().program;
    Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap().create_context().unwrap()
}

fn run(context: &mut ExecutionContext) -> Vec<HostLayer> {
    let x = Tensor::f32(&[4], &[1.0, 0.0, 2.0, 0.5]).unwrap();
    context.run(&[("x", x), ("n", Tensor::i64(&[MANY], &[5; MANY]).unwrap())]).unwrap();
    context.host_layers().unwrap()
}

/// The names of layers; each has a reason, and advice.
fn names(layers: &[HostLayer]) -> Vec<&str> {
    assert!(layers.iter().all(|l| !l.why.is_empty() && !l.advice.is_empty()), "{layers:?}");
    layers.iter().map(|l| l.name.as_str()).collect()
}

#[test]
fn the_oracle_waits_for_nobody() {
    assert!(run(&mut context(&reference(), &net(true, true, true))).is_empty());
}

#[test]
fn wgpu_tells_what_it_reads() {
    let Some(backend) = wgpu().unwrap() else { return };
    let mut all = context(&backend, &net(true, true, true));
    for _ in 0..2 {
        let layers = run(&mut all);
        assert_eq!(names(&layers), ["places", "asked"], "iterations of a constant number need no answer");
        assert!(layers[0].why.contains("how large its results are"), "{layers:?}");
        assert!(layers[1].why.contains("numbers of iterations"), "{layers:?}");
    }
    assert!(run(&mut context(&backend, &net(true, false, false))).is_empty());
}

#[test]
fn cuda_tells_what_it_walks() {
    let Some(backend) = cuda().unwrap() else { return };
    for (asked, places) in [(false, false), (true, false)] {
        assert!(run(&mut context(&backend, &net(true, asked, places))).is_empty(), "asked: {asked}");
    }
    let mut all = context(&backend, &net(true, true, true));
    for timed in [false, false, true, true] {
        let layers = run(&mut all);
        eprintln!("{layers:#?}");
        let mut found = names(&layers);
        found.sort_unstable();
        assert_eq!(found, ["asked", "counted", "places"], "layers that wait, and control flow beside them");
        if timed {
            all.layer_times().unwrap();
        }
    }
}

/// Layers of the first case of a model at which its second run waits.
fn of_model(backend: &Arc<dyn Backend>, name: &str) -> Vec<HostLayer> {
    let all = archive(&format!("control_flow/{name}.npz")).unwrap();
    let case = all.keys().find_map(|k| Some(k.split_once("/in/")?.0.to_owned())).unwrap();
    let own = all.iter().filter_map(|(k, t)| Some((k.strip_prefix(&format!("{case}/in/"))?, t.clone())));
    let own: Vec<(&str, Tensor)> = own.collect();
    let config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let mut context =
        engine(&format!("control_flow/{name}.onnx"), backend, &[], config).unwrap().create_context().unwrap();
    context.run(&own).unwrap();
    context.run(&own).unwrap();
    context.host_layers().unwrap()
}

/// The iterations of `while_collatz`, whose values it stacks, have no bound; those of `while_newton_bounded`
/// have one.
#[test]
fn what_nothing_bounds_says_so() {
    for backend in [wgpu().unwrap(), cuda().unwrap()].into_iter().flatten() {
        let layers = of_model(&backend, "while_collatz");
        eprintln!("{}: {layers:#?}", backend.name());
        assert!(!names(&layers).is_empty(), "{}", backend.name());
        if backend.name() == "cuda" {
            assert!(layers[0].why.contains("number of iterations"), "{layers:?}");
            assert_eq!(of_model(&backend, "while_newton_bounded"), []);
        }
    }
}

/// Refusal of a strict build, for a target with these features more.
fn refusal(backend: &Arc<dyn Backend>, features: &[&str], net: &Network) -> Option<BuildError> {
    let mut target = backend.targets().unwrap().remove(0);
    target.features.extend(features.iter().map(|&f| f.to_owned()));
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { estimates: true, strict: true, ..BuildConfig::default() };
    builder.build(net).err()
}

/// The layers that a strict build names, with reasons.
fn refused(backend: &Arc<dyn Backend>, features: &[&str], net: &Network) -> Vec<(String, String)> {
    match refusal(backend, features, net) {
        None => Vec::new(),
        Some(BuildError::NeedsHost { layers, .. }) => layers.into_iter().map(|l| (l.name, l.why)).collect(),
        Some(e) => panic!("{e}"),
    }
}

/// One operator of a network: a layer whose input comes from an input of the network.
fn layer(op: &str, dtype: DType, attrs: Attrs, more: &[Tensor]) -> Network {
    let mut net = Network::new("one");
    let x = net.add_input("x", TensorType::new(dtype, [4])).unwrap();
    let mut inputs = vec![Some(x)];
    inputs.extend(more.iter().map(|t| Some(net.add_weights(None, t.clone()).unwrap())));
    let out = net.add_layer("it", op, attrs, &inputs).unwrap();
    match out.first() {
        Some(&y) => net.mark_output(y, "y").unwrap(),
        None => {
            let to = Attrs::new().with("to", DType::F32);
            let y = net.add_layer("other", "cast", to, &[Some(x)]).unwrap()[0];
            net.mark_output(y, "y").unwrap();
        }
    }
    net
}

/// A reshape to a shape that is computed from data, from more than the host follows.
fn asked_for_contents() -> Network {
    let mut net = Network::new("contents");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let by = net.add_input("by", TensorType::new(DType::F32, [2, 4096])).unwrap();
    let axes = net.add_weights(None, Tensor::i64(&[1], &[1]).unwrap()).unwrap();
    let sum = Attrs::new().with("op", "sum").with("keep_dims", false);
    let doubled = net.add_layer("doubled", "reduce", sum, &[Some(by), Some(axes)]).unwrap()[0];
    let to = Attrs::new().with("to", DType::I64);
    let shape = net.add_layer("whole", "cast", to, &[Some(doubled)]).unwrap()[0];
    let y = net.add_layer("reshaped", "reshape", Attrs::new(), &[Some(x), Some(shape)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn strict_builds_refuse_each_reason_by_name() {
    let Some(backend) = wgpu().unwrap() else { return };
    let one = |net: &Network| {
        let mut found = refused(&backend, &[], net);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    };
    // What is found, within bounds, is computed on the device: the report says that the host reads how much it is.
    assert_eq!(refused(&backend, &[], &net(false, false, true)), []);
    let checks = one(&layer("assertion", DType::Bool, Attrs::new(), &[]));
    assert!(checks.0 == "it" && checks.1.contains("what it checks"), "{checks:?}");
    let contents = one(&asked_for_contents());
    assert!(contents.0.contains("reshaped") && contents.1.contains("computed on the device"), "{contents:?}");
    let decisions = one(&net(false, true, false));
    assert!(decisions.0 == "asked" && decisions.1.contains("numbers of iterations"), "{decisions:?}");
    let e = refusal(&backend, &[], &net(false, true, true)).unwrap().to_string();
    assert!(e.contains("layer \"asked\"") && e.contains("constants or inputs of the network"), "{e}");
}

/// The rules of a backend that keeps control flow on the device, as CUDA does; they depend on the target alone.
#[test]
fn strict_builds_refuse_what_no_device_keeps() {
    let Some(backend) = wgpu().unwrap() else { return };
    let device = |net: &Network| refused(&backend, &[assisted::DEVICE_FLOW], net);
    assert_eq!(device(&net(true, true, false)), []);
    let beside = device(&net(true, false, true));
    assert!(beside.iter().any(|(n, why)| n == "counted" && why.contains("the same network")), "{beside:?}");
}

#[test]
fn strict_builds_take_what_the_device_runs_alone() {
    let Some(backend) = wgpu().unwrap() else { return };
    assert_eq!(refused(&backend, &[], &net(true, false, false)), [], "iterations of a constant number");
    let attrs = Attrs::new().with("seed", 3i64);
    let mut random = Network::new("random");
    let shape = random.add_weights(None, Tensor::i64(&[2], &[64, 65]).unwrap()).unwrap();
    let y = random.add_layer("it", "random", attrs, &[Some(shape)]).unwrap()[0];
    random.mark_output(y, "y").unwrap();
    assert_eq!(refused(&backend, &[], &random), []);
    assert_eq!(refused(&reference(), &[], &net(true, true, true)), [], "the host is the device");
}

/// Layers that the build expects to wait for the host are those that runs report.
#[test]
fn expected_layers_are_those_that_runs_find() {
    let Some(backend) = wgpu().unwrap() else { return };
    for (counted, asked, places) in
        [(true, true, true), (true, false, false), (false, true, false), (false, false, true)]
    {
        let net = net(counted, asked, places);
        let target = backend.targets().unwrap().remove(0);
        let mut builder = Builder::new(backend.clone(), target.clone());
        builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
        let built = builder.build(&net).unwrap();
        let engine = Engine::on_target(built.program, Vec::new(), backend.as_ref(), target).unwrap();
        let found = run(&mut engine.create_context().unwrap());
        assert_eq!(built.host_layers, found, "{counted} {asked} {places}");
    }
}

/// x doubled n times and stacked, where n is also what a float says, then negated if c says so; the first rows of x one by one.
fn decided_by_inputs() -> Network {
    let mut net = Network::new("decided");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
    let f = net.add_input("f", TensorType::new(DType::F32, [0; 0])).unwrap();
    let c = net.add_input("c", TensorType::new(DType::Bool, [0; 0])).unwrap();
    let counted = doubled(&mut net, "counted", x, n);
    let to = Attrs::new().with("to", DType::I64);
    let m = net.add_layer("whole", "cast", to, &[Some(f)]).unwrap()[0];
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, m, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, counted).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let next = net.add_layer("again", "add", Attrs::new(), &[Some(value), Some(value)]).unwrap()[0];
    net.set_input(id, 1, next).unwrap();
    let all = net.add_loop_output(l, value, LoopOutputKind::Concatenate, 0).unwrap();
    let all = all.set_exact_length().unwrap().output(0).unwrap();
    net.mark_output(all, "all").unwrap();
    let of = net.add_if_conditional().unwrap();
    net.set_condition(of, c).unwrap();
    let (a, b) = (net.add_if_input(of, counted).unwrap().output(0).unwrap(), net.add_if_input(of, counted));
    let b = b.unwrap().output(0).unwrap();
    let a = net.add_layer("negated", "neg", Attrs::new(), &[Some(a)]).unwrap()[0];
    let b = net.add_layer("kept", "abs", Attrs::new(), &[Some(b)]).unwrap()[0];
    let y = net.add_if_output(of, a, b).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

/// Inputs come from the host: what they decide is known before the run, and changes from run to run.
#[test]
fn what_inputs_decide_is_known_before_the_run() {
    for backend in [Some(cpu()), wgpu().unwrap(), cuda().unwrap()].into_iter().flatten() {
        let net = decided_by_inputs();
        assert_eq!(refused(&backend, &[], &net), [], "{}", backend.name());
        assert_eq!(refused(&backend, &[assisted::DEVICE_FLOW], &net), [], "{}", backend.name());
        let mut context = context(&backend, &net);
        for (n, f, c) in [(2i64, 3.0f32, true), (0, 1.0, false), (1, 0.0, true), (3, 2.5, false)] {
            let x = Tensor::f32(&[4], &[1.0, 0.0, 2.0, 0.5]).unwrap();
            let c_in = Tensor::from_bytes(DType::Bool, &[], vec![u8::from(c)]).unwrap();
            let n_in = Tensor::i64(&[], &[n]).unwrap();
            let f_in = Tensor::f32(&[], &[f]).unwrap();
            let out = context.run(&[("x", x), ("n", n_in), ("f", f_in), ("c", c_in)]).unwrap();
            let out: BTreeMap<String, Tensor> = out.into_iter().collect();
            let by = |k: i64| [1.0f64, 0.0, 2.0, 0.5].map(|v| v * f64::from(1u32 << k));
            let (m, name) = (f as i64, backend.name());
            let sign = if c { -1.0 } else { 1.0 };
            assert_eq!(out["y"].to_f64(), by(n).map(|v| v * sign), "{name} {n} {f} {c}");
            let rows: Vec<f64> = (0..m).flat_map(|i| by(n + i)).collect();
            assert_eq!((out["all"].shape(), out["all"].to_f64()), (&[m as usize, 4][..], rows), "{name}");
            assert_eq!(context.host_layers().unwrap(), [], "{name} {n} {f} {c}");
        }
    }
}
