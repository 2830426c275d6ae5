//! Networks with an implicit batch through builder and engine, on all backends: batches of 1 to the greatest one.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln::network::{
    ActivationKind, ElementwiseOp, Layer, MatrixOp, NetworkError, PoolingKind, ReduceOp, TensorId,
};
use kiln::{Backends, DType, Engine, EngineBuilder, Error, Network, Tensor, TensorType};
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

/// Convolution, pooling, quantization, normalization, einsum and gathers of x [2, 4, 4] for each entry; `scale` [1, 1] is the
/// same for all of them.
fn network() -> Network {
    let mut net = Network::with_implicit_batch("old");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 4, 4])).unwrap();
    let ids = net.add_input("ids", TensorType::new(DType::I32, [2])).unwrap();
    let scale = net.add_input("scale", TensorType::new(DType::F32, [1, 1])).unwrap();
    net.set_broadcast_across_batch(scale, true).unwrap();
    let kernel = f32s(&[3, 2, 1, 1], &[1.0, 0.0, 0.0, 1.0, 1.0, -1.0]);
    let maps = first(net.add_convolution_nd(x, 3, &[1, 1], kernel, f32s(&[3], &[0.0, 0.5, 0.0])));
    let maps = first(net.add_activation(maps, ActivationKind::Relu));
    let pool = net.add_pooling_nd(maps, PoolingKind::Max, &[2, 2]).unwrap().set_stride_nd(&[2, 2]).unwrap();
    let pool = pool.output(0).unwrap();
    let step = first(net.add_constant(f32s(&[], &[0.25])));
    let codes = first(net.add_quantize(pool, step, DType::I8, None));
    let rounded = first(net.add_dequantize(codes, step, DType::F32, None));
    net.mark_output(rounded, "rounded").unwrap();
    let rows = first(net.add_shuffle(rounded).unwrap().set_reshape_dimensions(&[3, 4]));
    let ones = first(net.add_constant(f32s(&[1, 4], &[1.0; 4])));
    let zeros = first(net.add_constant(f32s(&[1, 4], &[0.0; 4])));
    let norm = first(net.add_normalization(rows, ones, zeros, 0b10));
    net.mark_output(norm, "norm").unwrap();
    let gram = first(net.add_einsum(&[norm, norm], "ij,kj->ik"));
    let w = first(net.add_constant(f32s(&[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 1.0])));
    let mixed = first(net.add_matrix_multiply(w, MatrixOp::None, gram, MatrixOp::None));
    let scaled = first(net.add_elementwise(mixed, scale, ElementwiseOp::Prod));
    net.mark_output(scaled, "scaled").unwrap();
    let picked = first(net.add_gather(rows, ids, 0));
    let sums = first(net.add_reduce(picked, ReduceOp::Sum, 0b10, false));
    net.mark_output(sums, "sums").unwrap();
    net
}

/// Inputs of so many entries, each with numbers of its own.
fn inputs(entries: usize) -> [(&'static str, Tensor); 3] {
    let numbers: Vec<f32> = (0..entries * 32).map(|i| ((i * 37 + i / 32) % 23) as f32 / 4.0 - 2.0).collect();
    let ids: Vec<i32> = (0..entries * 2).map(|i| (i % 3) as i32).collect();
    [
        ("x", f32s(&[entries, 2, 4, 4], &numbers)),
        ("ids", Tensor::from_slice(&[entries, 2], &ids).unwrap()),
        ("scale", f32s(&[1, 1, 1], &[0.5])),
    ]
}

/// Part of a tensor: one entry of the batch.
fn entry(t: &Tensor, i: usize) -> Vec<f64> {
    let size = t.len() / t.shape()[0];
    t.to_f64()[i * size..][..size].to_vec()
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0))
}

/// The rounded maxima of an entry, as the layers say.
fn rounded(x: &[f32]) -> Vec<f64> {
    let map = |m: usize, at: usize| match m {
        0 => x[at].max(0.0),
        1 => (x[16 + at] + 0.5).max(0.0),
        _ => (x[at] - x[16 + at]).max(0.0),
    };
    let corner = |i: usize| (i / 2 % 2 * 2) * 4 + i % 2 * 2;
    let most = |m: usize, c: usize| [0, 1, 4, 5].map(|d| map(m, c + d)).into_iter().fold(0.0, f32::max);
    let code = |v: f32| f64::from((v / 0.25).round_ties_even().clamp(-128.0, 127.0)) * 0.25;
    (0..12).map(|i| code(most(i / 4, corner(i % 4)))).collect()
}

fn batches_run_up_to_the_greatest(backend: &Arc<dyn Backend>) {
    let name = backend.name();
    let engine = builder(backend).max_batch(5).build(&network()).unwrap();
    let profile = &engine.profiles()[0].shapes["x"];
    assert_eq!((profile.min[0], profile.opt[0], profile.max[0]), (1, 5, 5));
    let mut context = engine.create_context().unwrap();
    let all = context.run(&inputs(5)).unwrap();
    for entries in 1..=5 {
        let given = inputs(entries);
        let outputs = context.run(&given).unwrap();
        for (key, t) in outputs.iter() {
            assert_eq!(t.shape()[0], entries, "{name}: {key}");
            for i in 0..entries {
                assert!(close(&entry(t, i), &entry(all.get(key).unwrap(), i)), "{name}: {key} of {entries}");
            }
        }
        let x = given[0].1.to_vec::<f32>().unwrap();
        for (i, x) in x.chunks(32).enumerate() {
            let wanted = rounded(x);
            assert!(close(&entry(outputs.get("rounded").unwrap(), i), &wanted), "{name}: entry {i}");
            let sum = |row: usize| wanted[row * 4..][..4].iter().sum::<f64>();
            let picked = [2 * i, 2 * i + 1].map(|at| sum(at % 3));
            assert!(close(&entry(outputs.get("sums").unwrap(), i), &picked), "{name}: entry {i}");
        }
    }
    // The oracle's answers for what is not computed by hand here.
    let oracle = builder(&reference()).max_batch(5).build(&network()).unwrap();
    let wanted = oracle.run(inputs(5)).unwrap();
    for (key, t) in all.iter() {
        assert!(close(&t.to_f64(), &wanted.get(key).unwrap().to_f64()), "{name}: {key}");
    }
    let e = context.run(&inputs(6)).unwrap_err().to_string();
    assert!(e.contains("[6, 2, 4, 4]") && e.contains("max [5, 2, 4, 4]"), "{name}: {e}");
}

#[test]
fn batches_run_up_to_the_greatest_on_cpu() {
    batches_run_up_to_the_greatest(&cpu());
}

#[test]
fn batches_run_up_to_the_greatest_on_reference() {
    batches_run_up_to_the_greatest(&reference());
}

#[test]
fn batches_run_up_to_the_greatest_on_wgpu() {
    wgpu().unwrap().iter().for_each(batches_run_up_to_the_greatest);
}

#[test]
fn batches_run_up_to_the_greatest_on_cuda() {
    cuda().unwrap().iter().for_each(batches_run_up_to_the_greatest);
}

#[test]
fn the_greatest_batch_is_checked() {
    let build = |entries: i64| builder(&cpu()).max_batch(entries).build_plan(&network()).map(drop);
    let says = |r: Result<(), Error>, words: &str| {
        let e = r.unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    };
    says(build(0), "wants 1 or more");
    says(build(-3), "wants 1 or more");
    let both = builder(&cpu()).max_batch(2).shape("x", &[2, 2, 4, 4]);
    says(both.build_plan(&network()).map(drop), "leave one of them out");
    let mut explicit = Network::new("new");
    let x = explicit.add_input("x", TensorType::new(DType::F32, [-1, 2])).unwrap();
    let y = first(explicit.add_activation(x, ActivationKind::Relu));
    explicit.mark_output(y, "y").unwrap();
    says(builder(&cpu()).max_batch(2).build_plan(&explicit).map(drop), "no implicit batch");
    // By default it is 1.
    let engine = builder(&cpu()).build(&network()).unwrap();
    assert_eq!(engine.profiles()[0].shapes["x"].max, [1, 2, 4, 4]);
    // A plan has it already.
    let plan = builder(&cpu()).max_batch(2).build_plan(&network()).unwrap().plan;
    says(builder(&cpu()).max_batch(2).build(plan).map(drop), "max_batch");
}
