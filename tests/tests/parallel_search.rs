//! Equal layers side by side become one where the samples of the timing cache say that this is faster, with the same results.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::cache::{Entry, TimingCache};
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_runtime::Engine;
use kiln_tests::backends::{all, cpu};
use kiln_tests::models::difference;
use std::sync::Arc;

/// A network with one input, and the layer that stands for several.
struct Case {
    net: Network,
    input: Tensor,
    pattern: &'static str,
    op: &'static str,
    /// Layers of this operator, apart and together.
    counts: [usize; 2],
    /// Dimensions of the stacked weights.
    stacked: &'static [&'static str],
}

fn layer(net: &mut Network, name: &str, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, attrs, &inputs).unwrap()[0]
}

/// Embeddings of five columns, side by side.
fn tables() -> Case {
    let (mut net, mut rng) = (Network::new("tables"), Rng::new(5));
    let ids = net.add_input("x", TensorType::new(DType::I64, [8, 5])).unwrap();
    let mut rows = Vec::new();
    for i in 0..5 {
        let at = net.add_weights(None, Tensor::i64(&[], &[i]).unwrap()).unwrap();
        let column = Attrs::new().with("axis", 1i64);
        let column = layer(&mut net, &format!("column{i}"), "gather", column, &[ids, at]);
        let table = net.add_weights(Some(&format!("table{i}")), rng.tensor(DType::F32, &[10, 4])).unwrap();
        rows.push(layer(&mut net, &format!("rows{i}"), "gather", Attrs::new(), &[table, column]));
    }
    let all = layer(&mut net, "all", "concat", Attrs::new().with("axis", 1i64), &rows);
    let y = layer(&mut net, "y", "neg", Attrs::new(), &[all]);
    net.mark_output(y, "y").unwrap();
    let ids: Vec<i64> = (0..40).map(|i| (i * 7) % 20 - 10).collect();
    let input = Tensor::i64(&[8, 5], &ids).unwrap();
    Case { net, input, pattern: "parallel-gather", op: "gather", counts: [10, 1], stacked: &["[50,4]"] }
}

/// Three convolutions of one input with biases and ReLU, of different widths.
fn branches() -> Case {
    let (mut net, mut rng) = (Network::new("branches"), Rng::new(6));
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 8, 6, 6])).unwrap();
    for (i, channels) in [3usize, 4, 5].into_iter().enumerate() {
        let w = net
            .add_weights(
                Some(&format!("w{i}")),
                rng.tensor_in(DType::F32, &[channels, 8, 1, 1], -0.5, 0.5, 0),
            )
            .unwrap();
        let b = net
            .add_weights(Some(&format!("b{i}")), rng.tensor_in(DType::F32, &[channels], -0.5, 0.5, 0))
            .unwrap();
        let y = layer(&mut net, &format!("conv{i}"), "conv", Attrs::new(), &[x, w, b]);
        let y = layer(&mut net, &format!("relu{i}"), "relu", Attrs::new(), &[y]);
        let y = layer(&mut net, &format!("y{i}"), "neg", Attrs::new(), &[y]);
        net.mark_output(y, &format!("y{i}")).unwrap();
    }
    let input = rng.tensor_in(DType::F32, &[2, 8, 6, 6], -1.0, 1.0, 0);
    // Weights may be stored with channels last.
    Case { net, input, pattern: "parallel-conv", op: "conv", counts: [3, 1], stacked: &["f32[12,"] }
}

/// Three experts of two products each, all computed.
fn experts() -> Case {
    let (mut net, mut rng) = (Network::new("experts"), Rng::new(7));
    let x = net.add_input("x", TensorType::new(DType::F32, [6, 8])).unwrap();
    let mut parts = Vec::new();
    for i in 0..3 {
        let mut y = x;
        for (j, [depth, width]) in [[8usize, 16], [16, 4]].into_iter().enumerate() {
            let w = rng.tensor_in(DType::F32, &[depth, width], -0.5, 0.5, 0);
            let w = net.add_weights(Some(&format!("w{i}.{j}")), w).unwrap();
            let b = rng.tensor_in(DType::F32, &[width], -0.5, 0.5, 0);
            let b = net.add_weights(Some(&format!("b{i}.{j}")), b).unwrap();
            y = layer(&mut net, &format!("product{i}.{j}"), "matmul", Attrs::new(), &[y, w]);
            y = layer(&mut net, &format!("sum{i}.{j}"), "add", Attrs::new(), &[y, b]);
            y = layer(&mut net, &format!("relu{i}.{j}"), "relu", Attrs::new(), &[y]);
        }
        parts.push(y);
    }
    let all = layer(&mut net, "all", "concat", Attrs::new().with("axis", 0i64), &parts);
    let y = layer(&mut net, "y", "neg", Attrs::new(), &[all]);
    net.mark_output(y, "y").unwrap();
    let input = rng.tensor_in(DType::F32, &[6, 8], -1.0, 1.0, 0);
    Case {
        net,
        input,
        pattern: "batched-matmul",
        op: "matmul",
        counts: [6, 2],
        stacked: &["[8,48]", "[3,16,4]", "[48,8]", "[3,4,16]"],
    }
}

fn build(backend: &Arc<dyn Backend>, cache: TimingCache, locked: bool, net: &Network) -> (Builder, Built) {
    let mut builder = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
    builder.config =
        BuildConfig { samples: 2, locked, estimate_limit: f64::INFINITY, ..BuildConfig::default() };
    builder.cache = cache;
    let built = builder.build(net).unwrap();
    (builder, built)
}

/// The cache with other samples.
fn timed(cache: &TimingCache, ns: impl Fn(&Entry) -> f64) -> TimingCache {
    let mut out = TimingCache::new();
    for (key, entry) in cache.iter() {
        let mut entry = entry.clone();
        let ns = ns(&entry);
        entry.candidates.values_mut().for_each(|c| c.samples = vec![ns; 3]);
        out.insert(key, entry);
    }
    out
}

fn taken_where_faster(case: &Case) {
    for backend in all().unwrap() {
        let (cold, _) = build(&backend, TimingCache::new(), false, &case.net);
        let reference = build(&cpu(), TimingCache::new(), false, &case.net).1;
        let wanted = reference.program.graph.eval(std::slice::from_ref(&case.input)).unwrap();
        for faster in [false, true] {
            let best = if faster { 1e3 } else { 1e8 };
            let together = |e: &Entry| case.stacked.iter().any(|s| e.region.contains(s));
            let ns = |e: &Entry| match (together(e), e.region.contains(&format!("{}{{", case.op))) {
                (true, _) => best,
                (_, true) => 1e5,
                _ => 1e3,
            };
            // Regions that a rewrite makes possible are timed by the next build.
            let (more, _) = build(&backend, timed(&cold.cache, ns), false, &case.net);
            let (warm, built) = build(&backend, timed(&more.cache, ns), false, &case.net);
            let taken = built.considered.iter().any(|c| c.rewrite == case.pattern && c.taken);
            assert_eq!(taken, faster, "{}: {:?}", backend.name(), built.considered);
            let count = built.program.graph.nodes().filter(|(_, n)| n.op.name() == case.op).count();
            assert_eq!(count, case.counts[usize::from(faster)], "{}", backend.name());
            let (_, again) = build(&backend, warm.cache, true, &case.net);
            assert_eq!((again.timed, &again.considered), (0, &built.considered));
            let target = backend.targets().unwrap().remove(0);
            let engine = Engine::on_target(built.program, Vec::new(), backend.as_ref(), target).unwrap();
            let found = engine.create_context().unwrap().run(&[("x", case.input.clone())]).unwrap();
            for ((name, y), wanted) in found.iter().zip(&wanted) {
                assert!(difference(y, wanted) < 1e-4, "{} {name}", backend.name());
            }
        }
    }
}

#[test]
fn rows_of_several_tables_by_one_gather() {
    taken_where_faster(&tables());
}

#[test]
fn convolutions_of_one_input_by_one() {
    taken_where_faster(&branches());
}

#[test]
fn products_of_experts_by_one_of_a_batch() {
    taken_where_faster(&experts());
}
