//! Graphs of many layers: builds take time and memory in proportion.
//!
//! `KILN_LARGE=100000` sets the number of layers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_backend_cpu::Cpu;
use kiln_builder::{BuildConfig, Builder, Built, Narrowing};
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Layers of a graph.
fn layers() -> usize {
    std::env::var("KILN_LARGE").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}

/// Most time for the build of a graph: quadratic steps take longer by far.
const PATIENCE: Duration = Duration::from_secs(60);

fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).unwrap()
}

fn built(what: &str, g: Graph, reduced: Vec<DType>) -> Built {
    let start = Instant::now();
    let backend = Arc::new(Cpu::new());
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend, target);
    builder.config =
        BuildConfig { estimates: true, reduced, narrowing: Narrowing::Everywhere, ..BuildConfig::default() };
    let built = builder.build_graph(g, &mut |_, _, _| true).unwrap();
    println!("{what}: {:?}", start.elapsed());
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    built
}

#[test]
fn a_long_chain() {
    let mut g = Graph::new("chain");
    let mut v = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2, 3])));
    for i in 0..layers() {
        // Two of the same in a row would be one.
        v = g.add(&format!("l{i}"), op(if i % 2 == 0 { "relu" } else { "sigmoid" }), &[v]).unwrap();
    }
    g.outputs = vec![v];
    let built = built("chain", g, Vec::new());
    assert!(built.program.steps.len() >= layers() / 24, "{}", built.program.steps.len());
}

#[test]
fn a_sum_of_many_inputs() {
    let mut g = Graph::new("sum");
    let ty = TensorType::new(DType::F32, [2, 3]);
    let mut v = g.add_input("x", Fact::of(ty.clone()));
    for i in 0..layers() {
        let x = g.add_input(&format!("x{i}"), Fact::of(ty.clone()));
        v = g.add(&format!("l{i}"), op("add"), &[v, x]).unwrap();
    }
    g.outputs = vec![v];
    built("sum", g, Vec::new());
}

/// Every fifth layer ends a GELU that is written out, and all run in f16.
#[test]
fn many_rewrites() {
    let mut g = Graph::new("gelus");
    let mut v = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2, 3])));
    let number = |g: &mut Graph, name: &str, x: f32| g.add_constant(name, Tensor::f32(&[], &[x]).unwrap());
    let (root, one, half) =
        (number(&mut g, "root", 2f32.sqrt()), number(&mut g, "one", 1.0), number(&mut g, "half", 0.5));
    let gelus = layers() / 5;
    for i in 0..gelus {
        let mut layer = |what: &str, inputs: &[_]| g.add(&format!("{what}{i}"), op(what), inputs).unwrap();
        let scaled = layer("div", &[v, root]);
        let erf = layer("erf", &[scaled]);
        let more = layer("add", &[erf, one]);
        let times = layer("mul", &[v, more]);
        v = g.add(&format!("y{i}"), op("mul"), &[times, half]).unwrap();
    }
    g.outputs = vec![v];
    let built = built("rewrites", g, vec![DType::F16]);
    let patterns = built.passes.iter().find(|p| p.pass == "patterns").unwrap();
    assert_eq!(patterns.changes, gelus);
    let g = &built.program.graph;
    assert!(
        g.nodes().filter(|(_, n)| n.op.name() == "gelu").all(|(_, n)| g.ty(n.outputs[0]).dtype == DType::F16)
    );
}
