//! Pointwise layers behind a layer norm, whose mean and deviation nobody reads, are computed by the norm's kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use std::sync::Arc;

/// Rows of 67 elements: no kernel reads them by vectors alone.
const SHAPE: [usize; 2] = [5, 67];

/// A norm of rows, and what reads it.
fn network(behind: &str, statistics: bool) -> Network {
    let mut net = Network::new("norm");
    let x = net.add_input("x", TensorType::new(DType::F32, SHAPE.map(|d| d as i64))).unwrap();
    let scale = Rng::new(2).tensor_in(DType::F32, &SHAPE[1..], 0.5, 1.5, 0);
    let scale = net.add_weights(Some("scale"), scale).unwrap();
    let attrs = Attrs::new().with("epsilon", 0.1);
    let norm = net.add_layer("norm", "layer_norm", attrs, &[Some(x), Some(scale)]).unwrap();
    let layer = |net: &mut Network, op: &str, attrs: Attrs, inputs: &[TensorId]| {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        net.add_layer(op, op, attrs, &inputs).unwrap()[0]
    };
    let y = match behind {
        "quantize" => {
            let step = net.add_weights(Some("step"), Tensor::f32(&[], &[0.02]).unwrap()).unwrap();
            layer(&mut net, "quantize", Attrs::new().with("to", DType::I8), &[norm[0], step])
        }
        "add" => layer(&mut net, "add", Attrs::new(), &[norm[0], x]),
        op => layer(&mut net, op, Attrs::new(), &[norm[0]]),
    };
    net.mark_output(y, "y").unwrap();
    if statistics {
        net.mark_output(norm[1], "mean").unwrap();
    }
    net
}

fn build(backend: &Arc<dyn Backend>, net: &Network) -> Built {
    let mut builder = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    builder.build(net).unwrap()
}

/// The number of kernels that a network becomes, and its outputs.
fn run(backend: &Arc<dyn Backend>, net: &Network) -> (usize, Vec<Tensor>) {
    let program = build(backend, net).program;
    let steps = program.steps.iter().filter(|s| !program.is_view(s)).count();
    let target = backend.targets().unwrap().remove(0);
    let engine = Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap();
    let x = Rng::new(3).tensor_in(DType::F32, &SHAPE, -2.0, 2.0, 0);
    let outputs = engine.create_context().unwrap().run(&[("x", x)]).unwrap();
    (steps, outputs.into_iter().map(|(_, t)| t).collect())
}

fn check(backend: &Arc<dyn Backend>, fuses: bool) {
    for behind in ["relu", "sigmoid", "quantize", "add"] {
        for statistics in [false, true] {
            let net = network(behind, statistics);
            let ((steps, found), (_, wanted)) = (run(backend, &net), run(&reference(), &net));
            assert!(!fuses || (steps == 1) != statistics, "{behind}, {statistics}: {steps} kernels");
            assert_eq!(found.len(), wanted.len());
            for (a, b) in found.iter().zip(&wanted) {
                assert_eq!(a.dtype(), b.dtype());
                let apart = a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                // A code may be the next one where a quotient is half of a step.
                let most = if behind == "quantize" && a.dtype() == DType::I8 { 1.0 } else { 1e-4 };
                assert!(apart <= most, "{behind}, {statistics}: {apart}");
            }
        }
    }
}

#[test]
fn on_cpu() {
    check(&cpu(), false);
}

#[test]
fn on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| check(b, true));
}

#[test]
fn on_cuda() {
    cuda().unwrap().iter().for_each(|b| check(b, true));
}
