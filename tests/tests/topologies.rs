//! Nine well-known CNNs with random weights agree with ONNX Runtime, and come to few kernels.
//!
//! Logits are scaled to a standard deviation of 2, so that an absolute tolerance of 1e-3 says something.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Refit};
use kiln_tests::backends::{cpu, wgpu};
use kiln_tests::models::difference;
use kiln_tests::topologies::{NAMES, Topology};
use std::sync::Arc;
use std::time::Instant;

const TOLERANCE: f64 = 1e-3;

/// Takes the kernels of the best estimates and searches for nothing: on a CPU driver of a graphics interface, timing a
/// whole network takes minutes.
fn untimed() -> BuildConfig {
    BuildConfig { max_tactics: 1, search: false, ..BuildConfig::default() }
}

/// Builds and runs one, and compares every output.
fn check(name: &str, backend: &Arc<dyn Backend>, config: BuildConfig) {
    let start = Instant::now();
    let topology = Topology::open(name).unwrap();
    let (_, built) = topology.build(backend, config).unwrap();
    let (steps, built_in) = (built.program.steps.len(), start.elapsed());
    let found = topology.run(backend, built.program).unwrap();
    assert!(topology.outputs.contains_key("logits"), "{name} has no logits");
    assert_eq!(found.len(), topology.outputs.len(), "{name}");
    let all = topology.outputs.iter().map(|(n, wanted)| difference(&found[n], wanted));
    let worst = all.fold(0.0, f64::max);
    println!(
        "{name} on {}: {steps} steps, built in {built_in:.1?}, all {:.1?}, off by {worst:.1e}",
        backend.name(),
        start.elapsed()
    );
    assert!(worst <= TOLERANCE, "{name} on {} differs from ONNX Runtime by {worst}", backend.name());
}

#[test]
fn all_agree_on_cpu() {
    for name in NAMES {
        check(name, &cpu(), BuildConfig::default());
    }
}

#[test]
fn resnet50_has_few_kernels_on_cpu() {
    let config = BuildConfig { search: false, ..BuildConfig::default() };
    let (_, built) = Topology::open("resnet50").unwrap().build(&cpu(), config).unwrap();
    let steps = built.program.steps.len();
    assert!(steps <= 58, "ResNet-50 has {steps} steps");
}

/// Bytes of a stripped plan of ResNet-50 at most, code of kernels aside, of which the CPU has none.
const STRIPPED: usize = 2 << 20;

#[test]
fn a_stripped_resnet50_is_small_and_is_filled_to_the_same_bits() {
    let topology = Topology::open("resnet50").unwrap();
    let config =
        || BuildConfig { estimates: true, search: false, refit: Refit::Identical, ..BuildConfig::default() };
    let builder = || kiln::Engine::builder().backend("cpu").config(config());
    let whole = builder().build_plan(topology.path.as_path()).unwrap().plan;
    let stripped = builder().strip_weights(true).build_plan(topology.path.as_path()).unwrap().plan;
    let (all, few) = (whole.write().unwrap().len(), stripped.write().unwrap().len());
    println!("ResNet-50: {all} bytes, stripped {few}");
    assert!(few <= STRIPPED && all > 50 * few, "{few} of {all} bytes");
    let run = |engine: kiln::Engine| {
        let inputs = topology.inputs.iter().map(|(n, t)| (n.as_str(), t.clone()));
        engine.run(inputs).unwrap()
    };
    let filled = kiln::Engine::builder().external_weights(&topology.path).build(stripped).unwrap();
    let wanted = run(kiln::Engine::builder().build(whole).unwrap());
    assert_eq!(run(filled), wanted);
}

#[test]
fn resnet50_has_few_kernels_on_wgpu() {
    for backend in wgpu().unwrap().iter() {
        let (_, built) = Topology::open("resnet50").unwrap().build(backend, untimed()).unwrap();
        let steps = built.program.steps.len();
        assert!(steps <= 58, "ResNet-50 has {steps} steps");
    }
}

#[test]
fn resnet50_agrees_on_wgpu() {
    for backend in wgpu().unwrap().iter() {
        check("resnet50", backend, untimed());
    }
}

#[test]
fn squeezenet_agrees_on_wgpu() {
    for backend in wgpu().unwrap().iter() {
        check("squeezenet", backend, untimed());
    }
}

#[test]
fn vgg19_agrees_on_wgpu() {
    for backend in wgpu().unwrap().iter() {
        check("vgg19", backend, untimed());
    }
}
