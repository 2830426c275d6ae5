//! Pointwise layers behind attention, whose result nobody else reads, are computed by its kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::tensor::Elems;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::Network;
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use std::sync::Arc;

/// A case: the type, what is behind, the sizes of batch, heads, positions and components, and whether queries are transposed first.
type Case = (DType, &'static str, [usize; 4], bool);

/// Components in whole vectors and others, one tile of positions and several.
const CASES: &[Case] = &[
    (DType::F16, "quantize", [2, 3, 20, 16], false),
    (DType::F16, "quantize", [1, 2, 130, 64], false),
    (DType::F16, "add", [1, 2, 70, 24], true),
    (DType::F16, "sigmoid", [2, 1, 33, 12], false),
    (DType::BF16, "quantize", [1, 2, 40, 32], false),
    (DType::F32, "quantize", [1, 2, 20, 12], true),
    (DType::F32, "relu", [2, 2, 9, 7], false),
];

fn network(&(dtype, behind, sizes, transposed): &Case) -> Network {
    let mut net = Network::new("attention");
    let dims = sizes.map(|d| d as i64);
    let [b, h, s, d] = dims;
    let ty = |dims: [i64; 4]| TensorType::new(dtype, dims);
    let mut q = net.add_input("q", ty(if transposed { [b, s, h, d] } else { dims })).unwrap();
    let k = net.add_input("k", ty(dims)).unwrap();
    let v = net.add_input("v", ty(dims)).unwrap();
    if transposed {
        let attrs = Attrs::new().with("perm", vec![0i64, 2, 1, 3]);
        q = net.add_layer("heads", "transpose", attrs, &[Some(q)]).unwrap()[0];
    }
    let y = net.add_layer("attention", "attention", Attrs::new(), &[Some(q), Some(k), Some(v)]).unwrap()[0];
    let y = match behind {
        "quantize" => {
            let step = Tensor::from_elems(dtype, &[], &Elems::F(vec![0.01])).unwrap();
            let step = net.add_weights(Some("step"), step).unwrap();
            let attrs = Attrs::new().with("to", DType::I8);
            net.add_layer("quantize", "quantize", attrs, &[Some(y), Some(step)]).unwrap()[0]
        }
        "add" => net.add_layer("add", "add", Attrs::new(), &[Some(y), Some(k)]).unwrap()[0],
        op => net.add_layer(op, op, Attrs::new(), &[Some(y)]).unwrap()[0],
    };
    net.mark_output(y, "y").unwrap();
    net
}

/// The number of kernels that a network becomes, and its output.
fn run(backend: &Arc<dyn Backend>, case: &Case) -> (usize, Tensor) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let program = builder.build(&network(case)).unwrap().program;
    let steps = program.steps.iter().filter(|s| !program.is_view(s)).count();
    let engine = Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap();
    let (dtype, [b, h, s, d], mut rng) = (case.0, case.2, Rng::new(3));
    let mut input = |dims: [usize; 4]| rng.tensor_in(dtype, &dims, -2.0, 2.0, 0);
    let q = input(if case.3 { [b, s, h, d] } else { case.2 });
    let (k, v) = (input(case.2), input(case.2));
    let outputs = engine.create_context().unwrap().run(&[("q", q), ("k", k), ("v", v)]).unwrap();
    (steps, outputs.into_iter().map(|(_, t)| t).next().unwrap())
}

fn check(backend: &Arc<dyn Backend>, fuses: bool) {
    for case in CASES {
        let ((steps, found), (_, wanted)) = (run(backend, case), run(&reference(), case));
        assert!(!fuses || steps == 1, "{case:?}: {steps} kernels");
        assert_eq!((found.dtype(), found.shape()), (wanted.dtype(), wanted.shape()));
        let pairs = || found.to_f64().into_iter().zip(wanted.to_f64());
        // A code may be the next one where a quotient is nearly half of a step.
        let most = match (case.1, case.0) {
            ("quantize", _) => 1.0,
            (_, DType::F32) => 1e-4,
            _ => 1e-2,
        };
        let apart = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart <= most, "{case:?}: {apart}");
        let unlike = pairs().filter(|(a, b)| a != b).count();
        assert!(case.1 != "quantize" || unlike * 10 <= found.len(), "{case:?}: {unlike} of {}", found.len());
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
