//! Runs that wait for the host say at which layer, why, and what may be done.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::network::{LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_runtime::{Engine, ExecutionContext, HostLayer};
use kiln_tests::backends::{cuda, reference, wgpu};
use kiln_tests::models::{archive, engine};
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

/// A loop of 3 trips, one of as many as an input says, and the places of what is not zero.
fn net(counted: bool, asked: bool, places: bool) -> Network {
    let mut net = Network::new("host");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
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
    context.run(&[("x", x), ("n", Tensor::i64(&[], &[5]).unwrap())]).unwrap();
    context.host_layers().unwrap()
}

/// The names of layers; each has a reason, and advice.
fn names(layers: &[HostLayer]) -> Vec<&str> {
    assert!(layers.iter().all(|l| !l.why.is_empty() && !l.advice.is_empty()), "{layers:?}");
    layers.iter().map(|l| l.name.as_str()).collect()
}

#[test]
fn the_reference_waits_for_nobody() {
    assert!(run(&mut context(&reference(), &net(true, true, true))).is_empty());
}

#[test]
fn wgpu_tells_what_it_reads() {
    let Some(backend) = wgpu().unwrap() else { return };
    let mut all = context(&backend, &net(true, true, true));
    for _ in 0..2 {
        let layers = run(&mut all);
        assert_eq!(names(&layers), ["places", "asked"], "trips of a constant number need no answer");
        assert!(layers[0].why.contains("how large its results are"), "{layers:?}");
        assert!(layers[1].why.contains("numbers of trips"), "{layers:?}");
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

/// Nothing bounds the trips of `while_collatz`, whose values it stacks; those of `while_newton_bounded` are bounded.
#[test]
fn what_nothing_bounds_says_so() {
    for backend in [wgpu().unwrap(), cuda().unwrap()].into_iter().flatten() {
        let layers = of_model(&backend, "while_collatz");
        eprintln!("{}: {layers:#?}", backend.name());
        assert!(!names(&layers).is_empty(), "{}", backend.name());
        if backend.name() == "cuda" {
            assert!(layers[0].why.contains("number of trips"), "{layers:?}");
            assert_eq!(of_model(&backend, "while_newton_bounded"), []);
        }
    }
}
