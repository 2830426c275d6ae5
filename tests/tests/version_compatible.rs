//! Version-compatible plans: launches of every shape are stored, and what a plan cannot hold is refused by name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, CompiledKernel, Program, Target, offer_feature};
use kiln_builder::{BuildConfig, BuildError, Builder};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::Profile;
use kiln_runtime::Engine;
use kiln_tests::backends::{cuda, wgpu};
use kiln_tests::models::data;
use std::sync::Arc;

type Device = (Arc<dyn Backend>, Target);

/// The devices whose kernels have launches.
fn devices() -> Vec<Device> {
    let backends = [wgpu().unwrap(), cuda().unwrap()].into_iter().flatten();
    let device = |b: Arc<dyn Backend>| Some((b.clone(), b.targets().unwrap().into_iter().next()?));
    backends.filter_map(device).collect()
}

fn build(
    (backend, target): &Device,
    net: &Network,
    profiles: &[Profile],
    compatible: bool,
) -> Result<Program, BuildError> {
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig {
        estimates: true,
        profiles: profiles.to_vec(),
        version_compatible: compatible,
        ..BuildConfig::default()
    };
    builder.build(net).map(|b| b.program)
}

fn layer(net: &mut Network, name: &str, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, attrs, &inputs).unwrap()[0]
}

fn profile(input: &str, min: &[i64], max: &[i64]) -> Profile {
    let mut p = Profile::new();
    p.set_shape(input, min, max, max).unwrap();
    p
}

/// Lets each kernel run by its stored launches alone: the code that would plan them is of no known build.
fn without_code(mut program: Program) -> Program {
    for step in program.steps.iter_mut().filter(|s| !s.blob.as_slice().is_empty()) {
        let mut kernel = CompiledKernel::from_blob(step.blob.as_slice()).unwrap();
        kernel.launch_code = Some("none".into());
        step.blob = kernel.to_blob().unwrap().into();
    }
    program
}

/// Runs of a version-compatible plan give the bits of runs whose launches the host's code plans.
fn agrees(device: &Device, net: &Network, profiles: &[Profile], input: &str, shapes: &[Vec<usize>]) {
    let [planned, stored] = [false, true].map(|compatible| build(device, net, profiles, compatible).unwrap());
    let (backend, target) = device;
    let load = |p: Program| Engine::on_target(p, profiles.to_vec(), backend.as_ref(), target.clone());
    let refused = load(without_code(planned.clone())).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(
        refused.contains("version-compatible"),
        "launches of varying shapes are planned by code: {refused}"
    );
    let (planned, stored) = (load(planned).unwrap(), load(without_code(stored)).unwrap());
    let mut contexts = [planned, stored].map(|e| e.create_context().unwrap());
    for (i, shape) in shapes.iter().enumerate() {
        let n: usize = shape.iter().product();
        let x: Vec<f32> = (0..n).map(|k| ((k * 37 + i) % 101) as f32 / 50.0 - 1.0).collect();
        let x = Tensor::f32(shape, &x).unwrap();
        let [planned, stored] = contexts.each_mut().map(|c| c.run(&[(input, x.clone())]).unwrap());
        assert_eq!(stored, planned, "{shape:?}");
    }
}

#[test]
fn every_shape_of_the_profiles_runs_by_stored_launches() {
    devices().iter().for_each(every_shape);
}

fn every_shape(device: &Device) {
    let net = parse_file(data("digits/lenet_a.onnx"), &ImportOptions::default()).unwrap().network;
    let profiles = [
        profile("input", &[1, 1, 28, 28], &[3, 1, 28, 28]),
        profile("input", &[9, 1, 28, 28], &[9, 1, 28, 28]),
    ];
    agrees(device, &net, &profiles, "input", &[1, 2, 3, 9].map(|n| vec![n, 1, 28, 28]));

    let mut net = Network::new("two symbols");
    let dims = vec![Dim::host("rows"), Dim::host("columns")];
    let x = net.add_input("x", TensorType { dtype: DType::F32, dims }).unwrap();
    let turned = layer(&mut net, "turned", "transpose", Attrs::new().with("perm", vec![1i64, 0]), &[x]);
    let product = layer(&mut net, "product", "matmul", Attrs::new(), &[x, turned]);
    let soft = layer(&mut net, "soft", "softmax", Attrs::new(), &[product]);
    let axes = net.add_constant(Tensor::i64(&[1], &[0]).unwrap()).unwrap().output(0).unwrap();
    let sums = layer(&mut net, "sums", "reduce", Attrs::new().with("op", "sum"), &[soft, axes]);
    net.mark_output(sums, "sums").unwrap();
    net.mark_output(soft, "soft").unwrap();
    let shapes: Vec<Vec<usize>> =
        [(1, 1), (33, 7), (40, 64), (17, 32), (40, 1)].map(|(a, b)| vec![a, b]).to_vec();
    agrees(device, &net, &[profile("x", &[1, 1], &[40, 64])], "x", &shapes);
}

#[test]
fn layers_that_a_plan_cannot_hold_are_refused_by_name() {
    devices().iter().for_each(refused_by_name);
}

fn refused_by_name(device: &Device) {
    let mut net = Network::new("n");
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 4])).unwrap();
    let soft = layer(&mut net, "soft", "softmax", Attrs::new(), &[x]);
    net.mark_output(soft, "y").unwrap();
    build(device, &net, &[], true).unwrap();
    let shape = net.add_constant(Tensor::i64(&[2], &[4, 4]).unwrap()).unwrap().output(0).unwrap();
    let noise = layer(&mut net, "noise", "random", Attrs::new().with("dist", "uniform"), &[shape]);
    let noisy = layer(&mut net, "noisy", "add", Attrs::new(), &[noise, x]);
    net.mark_output(noisy, "z").unwrap();
    build(device, &net, &[], false).unwrap();
    let Err(e) = build(device, &net, &[], true) else { panic!("a random key is no part of a plan") };
    let BuildError::VersionCompatible { layer: named, why, .. } = &e else { panic!("{e}") };
    assert!(named.contains("noise") && why.contains("seed"), "{e}");

    let mut net = Network::new("large");
    let dims = ["a", "b", "c"].map(Dim::host).to_vec();
    let x = net.add_input("x", TensorType { dtype: DType::F32, dims }).unwrap();
    let soft = layer(&mut net, "soft", "softmax", Attrs::new(), &[x]);
    net.mark_output(soft, "y").unwrap();
    let e = build(device, &net, &[profile("x", &[1, 1, 1], &[200, 200, 200])], true).unwrap_err().to_string();
    for part in ["\"soft\"", "a from 1 to 200", "narrower profiles"] {
        assert!(e.contains(part), "{part}: {e}");
    }
}

#[test]
fn tactics_of_libraries_are_refused() {
    let Some((backend, mut target)) = devices().into_iter().next() else { return };
    target.features.push(offer_feature("cublaslt"));
    let mut net = Network::new("n");
    let x = net.add_input("x", TensorType::new(DType::F32, [4])).unwrap();
    let y = layer(&mut net, "y", "neg", Attrs::new(), &[x]);
    net.mark_output(y, "y").unwrap();
    let mut builder = Builder::new(backend, target);
    builder.config.tactic_sources = vec!["cublaslt".into()];
    builder.config.version_compatible = true;
    let e = builder.build(&net).unwrap_err();
    assert!(matches!(&e, BuildError::VersionCompatibleLibrary { name } if name == "cublaslt"), "{e}");
}
