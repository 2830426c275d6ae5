//! Layers that the network API makes of several operators, through builder and engine on all backends: experts, packed attention,
//! results of two ranks.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln::network::{
    CausalMask, ElementwiseOp, Layer, MatrixOp, NetworkError, ReduceOp, TensorId, TopKOp, Weights,
    WeightsRole,
};
use kiln::{Backends, DType, Engine, EngineBuilder, Network, Outputs, Refit, Tensor, TensorType};
use kiln_backend::Backend;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use std::sync::Arc;

fn builder(backend: &Arc<dyn Backend>) -> EngineBuilder {
    let mut backends = Backends::new();
    backends.register(backend.clone()).unwrap();
    let config = kiln::BuildConfig { estimates: true, ..kiln::BuildConfig::default() };
    Engine::builder().backends(backends).backend(backend.name()).config(config)
}

fn first<P>(layer: Result<Layer<'_, P>, NetworkError>) -> TensorId {
    layer.unwrap().output(0).unwrap()
}

fn f32s(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(shape, v).unwrap()
}

/// Numbers between −1 and 1, other ones for each seed.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let one = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    f32s(shape, &(0..count).map(one).collect::<Vec<_>>())
}

fn input(net: &mut Network, name: &str, dtype: DType, dims: &[i64]) -> TensorId {
    net.add_input(name, TensorType::new(dtype, dims.to_vec())).unwrap()
}

fn same(found: &Outputs, wanted: &Outputs, name: &str) {
    for (key, t) in found.iter() {
        let other = wanted.get(key).unwrap();
        assert_eq!(t.shape(), other.shape(), "{name}: {key}");
        let far = |(a, b): (f64, f64)| (a - b).abs() > 2e-5 * b.abs().max(1.0);
        let (a, b) = (t.to_f64(), other.to_f64());
        assert!(!a.iter().copied().zip(b.iter().copied()).any(far), "{name}: {key}: {a:?}, wants {b:?}");
    }
}

/// A gate picks 2 of 4 experts for each of 6 tokens of 8 numbers.
fn experts() -> Network {
    let mut net = Network::new("experts");
    let x = input(&mut net, "x", DType::F32, &[2, 3, 8]);
    let flat = first(net.add_shuffle(x).unwrap().set_reshape_dimensions(&[6, 8]));
    let gate = net.add_weights(Some("gate"), numbers(&[8, 4], 1)).unwrap();
    let scores = first(net.add_matrix_multiply(flat, MatrixOp::None, gate, MatrixOp::None));
    let scores = net.add_softmax(scores).unwrap().set_axes(0b10).unwrap().output(0).unwrap();
    let top = net.add_topk(scores, TopKOp::Max, 2, 0b10).unwrap();
    let (values, ids) = (top.output(0).unwrap(), top.output(1).unwrap());
    let shaped = |net: &mut Network, t| first(net.add_shuffle(t).unwrap().set_reshape_dimensions(&[2, 3, 2]));
    let (values, ids) = (shaped(&mut net, values), shaped(&mut net, ids));
    let w = [("up.gate", [4, 8, 5]), ("up", [4, 8, 5]), ("down", [4, 5, 8])];
    let w = w.map(|(name, shape)| net.add_weights(Some(name), numbers(&shape, name.len())).unwrap());
    let y = net.add_moe(x, ids, values, w).unwrap().set_swiglu_limit(0.75).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

/// Attention over three sequences, of which one has no queries.
fn packed(causal: CausalMask) -> Network {
    let mut net = Network::new("packed");
    let q = input(&mut net, "q", DType::F32, &[5, 4, 8]);
    let [k, v] = ["k", "v"].map(|name| input(&mut net, name, DType::F32, &[7, 2, 8]));
    let [at_q, at_k] = ["at_q", "at_k"].map(|name| input(&mut net, name, DType::I64, &[4]));
    let layer = net.add_packed_attention([q, k, v], at_q, at_k, causal).unwrap().set_scale(0.35).unwrap();
    let y = layer.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

/// The sum of a vector or of the rows of a matrix, times weights: the ranks differ by the branch.
fn ranks() -> Network {
    let mut net = Network::new("ranks");
    let c = input(&mut net, "c", DType::Bool, &[]);
    let x = input(&mut net, "x", DType::F32, &[2, 1, 1]);
    let m = input(&mut net, "m", DType::F32, &[3, 2, 1, 1]);
    let choice = net.add_if_conditional().unwrap();
    net.set_condition(choice, c).unwrap();
    let [x, m] = [x, m].map(|t| net.add_if_input(choice, t).unwrap().output(0).unwrap());
    let either = first(net.add_if_output(choice, x, m));
    let fc =
        net.add_fully_connected(either, 2, f32s(&[2, 2], &[1.0, 10.0, 2.0, 0.0]), Weights::None).unwrap();
    let fc = fc.set_weights_name(WeightsRole::Kernel, "w").unwrap().output(0).unwrap();
    let twice = first(net.add_elementwise(fc, fc, ElementwiseOp::Sum));
    let flat = first(net.add_shuffle(twice).unwrap().set_reshape_dimensions(&[-1]));
    let sum = first(net.add_reduce(flat, ReduceOp::Sum, 1, false));
    net.mark_output(flat, "flat").unwrap();
    net.mark_output(sum, "sum").unwrap();
    net
}

fn layers_agree_with_the_oracle(backend: &Arc<dyn Backend>) {
    let (name, oracle) = (backend.name(), reference());
    let given = [("x", numbers(&[2, 3, 8], 3))];
    let [found, wanted] =
        [backend, &oracle].map(|b| builder(b).build(&experts()).unwrap().run(given.clone()).unwrap());
    same(&found, &wanted, name);
    for causal in [CausalMask::None, CausalMask::UpperLeft, CausalMask::LowerRight] {
        let starts = |v: [i64; 4]| Tensor::from_slice(&[4], &v).unwrap();
        let given = [
            ("q", numbers(&[5, 4, 8], 5)),
            ("k", numbers(&[7, 2, 8], 6)),
            ("v", numbers(&[7, 2, 8], 7)),
            ("at_q", starts([0, 3, 3, 5])),
            ("at_k", starts([0, 3, 4, 7])),
        ];
        let [found, wanted] = [backend, &oracle]
            .map(|b| builder(b).build(&packed(causal)).unwrap().run(given.clone()).unwrap());
        same(&found, &wanted, name);
    }
}

fn branches_of_two_ranks_run(backend: &Arc<dyn Backend>) {
    let name = backend.name();
    let engine = builder(backend).refit(Refit::All).build(&ranks()).unwrap();
    let mut context = engine.create_context().unwrap();
    let mut run = |c: bool| {
        let given = [
            ("c", Tensor::from_slice(&[], &[c]).unwrap()),
            ("x", f32s(&[2, 1, 1], &[1.0, 2.0])),
            ("m", f32s(&[3, 2, 1, 1], &[3.0, 4.0, 5.0, 6.0, 0.0, 1.0])),
        ];
        let outputs = context.run(&given).unwrap();
        let of = |key: &str| outputs.get(key).unwrap().to_vec::<f32>().unwrap();
        (of("flat"), of("sum"))
    };
    assert_eq!(run(true), (vec![42.0, 4.0], vec![46.0]), "{name}");
    let all = vec![86.0, 12.0, 130.0, 20.0, 20.0, 0.0];
    assert_eq!(run(false), (all, vec![268.0]), "{name}");
    // Weights of a layer that is written into both branches are replaced once.
    let mut refitter = engine.refitter().unwrap();
    assert_eq!(refitter.get_all_roles().len(), 2);
    refitter.set("w", f32s(&[2, 2], &[0.5, 0.0, 0.0, 0.5])).unwrap();
    assert!(refitter.get_missing().is_empty());
    refitter.refit().unwrap();
    assert_eq!(run(true), (vec![1.0, 2.0], vec![3.0]), "{name}");
    assert_eq!(run(false), (vec![3.0, 4.0, 5.0, 6.0, 0.0, 1.0], vec![19.0]), "{name}");
}

#[test]
fn on_cpu() {
    layers_agree_with_the_oracle(&cpu());
    branches_of_two_ranks_run(&cpu());
}

#[test]
fn on_reference() {
    branches_of_two_ranks_run(&reference());
}

#[test]
fn on_wgpu() {
    if let Some(backend) = wgpu().unwrap() {
        layers_agree_with_the_oracle(&backend);
        branches_of_two_ranks_run(&backend);
    }
}

#[test]
fn on_cuda() {
    if let Some(backend) = cuda().unwrap() {
        layers_agree_with_the_oracle(&backend);
        branches_of_two_ranks_run(&backend);
    }
}
