//! Eight contexts of one engine in eight threads give the right results, 10,000 times on every backend.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::Network;
use kiln_runtime::{Engine, Outputs};
use kiln_tests::backends;
use kiln_tests::models::{archive, difference, engine, rows};
use std::sync::Arc;

const THREADS: usize = 8;

/// Bytes that the process may grow by in the second half of its runs: what allocators keep for threads.
const GROWTH: u64 = 32 << 20;

/// Bytes of memory that the process has, where the system reports it (Linux).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Inputs by name and the outputs that they must give.
struct Expected {
    inputs: Vec<(&'static str, Tensor)>,
    outputs: Vec<Tensor>,
}

/// Runs every thread so many times over the cases, each thread in another order. Results must agree with the expected
/// ones, and with those of one thread bit for bit.
fn hammer(e: &Engine, cases: &[Expected], runs: usize, tolerance: f64) {
    let mut alone = e.create_context().unwrap();
    let exact: Vec<Outputs> = cases.iter().map(|c| alone.run(&c.inputs).unwrap()).collect();
    for (found, case) in exact.iter().zip(cases) {
        for ((name, found), wanted) in found.iter().zip(&case.outputs) {
            let d = difference(found, wanted);
            assert!(d <= tolerance, "{}: {name} differs by {d}", e.backend());
        }
    }
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (exact, mut context) = (&exact, e.create_context().unwrap());
            s.spawn(move || {
                let mut warm = (0, 0);
                for r in 0..runs {
                    let i = (r * (2 * t + 1) + t) % cases.len();
                    let found = context.run(&cases[i].inputs).unwrap();
                    assert!(found == exact[i], "run {r} of thread {t}: case {i} differs");
                    if r == runs / 2 {
                        warm = (context.counters().backend.allocations, resident());
                    }
                }
                let (allocations, bytes) = (context.counters().backend.allocations, resident());
                assert_eq!(allocations, warm.0, "thread {t} allocates on and on");
                assert!(bytes < warm.1 + GROWTH, "{} bytes more than half-way", bytes - warm.1);
            });
        }
    });
}

fn lenet(backend: &Arc<dyn Backend>, runs: usize) {
    let shape: [&[i64]; 3] = [&[1, 1, 28, 28], &[1, 1, 28, 28], &[2, 1, 28, 28]];
    let config = BuildConfig { samples: 1, ..BuildConfig::default() };
    let e = engine("digits/lenet_a.onnx", backend, &[("input", shape)], config).unwrap();
    let images = &archive("digits/digits_test.npz").unwrap()["images"];
    let logits = &archive("digits/logits_lenet_a.npz").unwrap()["logits"];
    let case = |(from, to)| Expected {
        inputs: vec![("input", rows(images, from, to).unwrap())],
        outputs: vec![rows(logits, from, to).unwrap()],
    };
    let cases: Vec<_> = [(0, 1), (1, 3), (3, 4), (4, 6), (6, 7)].into_iter().map(case).collect();
    hammer(&e, &cases, runs, 1e-4);
}

fn bert(backend: &Arc<dyn Backend>, runs: usize) {
    let shape: [&[i64]; 3] = [&[1, 1], &[1, 8], &[2, 16]];
    let config = BuildConfig { samples: 1, ..BuildConfig::default() };
    let shapes: &[(&str, [&[i64]; 3])] = &[("input_ids", shape), ("attention_mask", shape)];
    let e = engine("nlp/bert_tiny.onnx", backend, shapes, config).unwrap();
    // Weights are in the graph, so the oracle can run it at any shape.
    let network =
        kiln_onnx::parse_file(kiln_tests::models::data("nlp/bert_tiny.onnx"), &Default::default()).unwrap();
    let graph = network.network.lower().unwrap();
    let mut rng = Rng::new(7);
    let cases: Vec<Expected> = [(1, 3), (2, 5), (1, 16), (2, 1), (1, 9)]
        .into_iter()
        .map(|(batch, length)| {
            let ids: Vec<i64> = (0..batch * length).map(|_| rng.int(1, 60)).collect();
            let ids = Tensor::i64(&[batch, length], &ids).unwrap();
            let mask = Tensor::i64(&[batch, length], &vec![1; batch * length]).unwrap();
            let outputs = graph.eval(&[ids.clone(), mask.clone()]).unwrap();
            Expected { inputs: vec![("input_ids", ids), ("attention_mask", mask)], outputs }
        })
        .collect();
    hammer(&e, &cases, runs, 1e-4);
}

/// Keys of three steps of a decoder: the new rows are written into the cache in place, then read.
fn cache() -> Network {
    let mut n = Network::new("cache");
    let layer = |n: &mut Network, op: &str, ins: &[kiln_network::TensorId]| {
        let ins: Vec<_> = ins.iter().copied().map(Some).collect();
        n.add_layer("", op, Attrs::new(), &ins).unwrap()[0]
    };
    let f32_ty = |d: &[i64]| TensorType::new(DType::F32, d.iter().map(|&d| kiln_ir::Dim::new(d)));
    let old = n.add_input("cache", f32_ty(&[2, 6, 4])).unwrap();
    let new = n.add_input("new", f32_ty(&[2, 2, 4])).unwrap();
    let at = n.add_input("at", TensorType::new(DType::I32, [2])).unwrap();
    let own = layer(&mut n, "abs", &[old]);
    let rows = layer(&mut n, "tanh", &[new]);
    let written = layer(&mut n, "kv_cache_update", &[own, rows, at]);
    let sum = layer(&mut n, "add", &[written, old]);
    n.mark_output(sum, "sum").unwrap();
    n.mark_output(written, "written").unwrap();
    n
}

fn in_place(backend: &Arc<dyn Backend>, runs: usize) {
    let network = cache();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config.samples = 1;
    let built = builder.build(&network).unwrap();
    let e = Engine::on_target(built.program, vec![], backend.as_ref(), target).unwrap();
    let graph = network.lower().unwrap();
    let mut rng = Rng::new(3);
    let cases: Vec<Expected> = [[0, 4], [3, 1], [2, 2], [5, -1]]
        .into_iter()
        .map(|at| {
            let cache = rng.tensor(DType::F32, &[2, 6, 4]);
            let new = rng.tensor(DType::F32, &[2, 2, 4]);
            let at = Tensor::from_elems(DType::I32, &[2], &kiln_ir::Elems::I(at.to_vec())).unwrap();
            let outputs = graph.eval(&[cache.clone(), new.clone(), at.clone()]).unwrap();
            Expected { inputs: vec![("cache", cache), ("new", new), ("at", at)], outputs }
        })
        .collect();
    hammer(&e, &cases, runs, 1e-5);
}

/// 10,000 runs, most of them of the small network.
#[test]
fn eight_contexts_in_eight_threads() {
    for backend in backends::all().unwrap() {
        lenet(&backend, 100);
        bert(&backend, 150);
        in_place(&backend, 1000);
    }
}
