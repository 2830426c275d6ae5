//! Host code in front of and around kernels: import, passes, search, loading of plans, refit, and what a run costs beside its
//! kernels. All on the CPU backend, so that no device is needed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use kiln_backend_cpu::Cpu;
use kiln_builder::passes::{AFTER_TYPES, BEFORE_TYPES, PassCx, PassWork, run_list};
use kiln_builder::{BuildConfig, Builder, Refit};
use kiln_ir::{Attrs, DType, Graph, Tensor, TensorType};
use kiln_network::Network;
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::Plan;
use kiln_runtime::{Engine, Profile, graph_io};
use kiln_tests::backends::cpu;
use kiln_tests::models::data;
use std::hint::black_box;

/// A transformer as PyTorch's exporter writes it.
const MODEL: &str = "exports/bert.onnx";

fn graph() -> Graph {
    parse_file(data(MODEL), &ImportOptions::default()).unwrap().network.lower().unwrap()
}

/// The profile of a graph with small fixed sizes.
fn profile(g: &Graph) -> Profile {
    let mut p = Profile::new();
    for io in graph_io(g).iter().take(g.inputs.len()) {
        let shape: Vec<i64> = io.dims.iter().map(|d| d.as_const().unwrap_or(4)).collect();
        p.set_shape(&io.name, &shape, &shape, &shape).unwrap();
    }
    p
}

fn config(g: &Graph) -> BuildConfig {
    BuildConfig { estimates: true, profiles: vec![profile(g)], ..BuildConfig::default() }
}

fn import(c: &mut Criterion) {
    c.bench_function("import", |b| {
        b.iter(|| black_box(parse_file(data(MODEL), &ImportOptions::default()).unwrap()));
    });
    let imported = parse_file(data(MODEL), &ImportOptions::default()).unwrap();
    c.bench_function("lower", |b| b.iter(|| black_box(imported.network.lower().unwrap())));
}

fn build(c: &mut Criterion) {
    let (g, backend, target) = (graph(), cpu(), Cpu::target());
    let config = config(&g);
    c.bench_function("passes", |b| {
        let run = |mut g: Graph| {
            let work = PassWork::new(&config);
            let cx = PassCx::new(&config, backend.as_ref(), &target, &work);
            run_list(&mut g, &cx, BEFORE_TYPES).unwrap();
            run_list(&mut g, &cx, AFTER_TYPES).unwrap();
            g
        };
        b.iter_batched(|| g.clone(), run, BatchSize::LargeInput);
    });
    c.bench_function("build by estimates", |b| {
        let run = |g: Graph| {
            let mut builder = Builder::new(backend.clone(), target.clone());
            builder.config = config.clone();
            builder.build_graph(g, &mut |_, _, _| true).unwrap()
        };
        b.iter_batched(|| g.clone(), run, BatchSize::LargeInput);
    });
}

fn plan(c: &mut Criterion) {
    let (g, target) = (graph(), Cpu::target());
    let mut builder = Builder::new(cpu(), target.clone());
    builder.config = config(&g);
    let profile = profile(&g);
    let program = builder.build_graph(g, &mut |_, _, _| true).unwrap().program;
    let plan = Plan::new(program, vec![profile], target);
    let bytes = plan.write().unwrap();
    c.bench_function("write a plan", |b| b.iter(|| black_box(plan.write().unwrap())));
    c.bench_function("read a plan", |b| {
        b.iter_batched(|| bytes.clone(), |bytes| Plan::read(bytes).unwrap(), BatchSize::LargeInput);
    });
    c.bench_function("load a plan", |b| {
        let read = || Plan::read(bytes.clone()).unwrap();
        b.iter_batched(read, |p| Engine::from_plan(p, cpu()).unwrap(), BatchSize::LargeInput);
    });
}

/// x·w + b for a few elements: what is left of a run's time is the host's.
fn small() -> Engine {
    let mut net = Network::new("small");
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 4])).unwrap();
    let w = net.add_weights(Some("w"), Tensor::zeros(DType::F32, &[4, 4]).unwrap()).unwrap();
    let y = net.add_layer("y", "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    let z = net.add_layer("z", "tanh", Attrs::new(), &[Some(y)]).unwrap()[0];
    net.mark_output(z, "z").unwrap();
    let mut builder = Builder::new(cpu(), Cpu::target());
    builder.config = BuildConfig { estimates: true, refit: Refit::All, ..BuildConfig::default() };
    Engine::from_program(builder.build(&net).unwrap().program, Vec::new(), cpu()).unwrap()
}

fn run(c: &mut Criterion) {
    let engine = small();
    let x = || Tensor::zeros(DType::F32, &[1, 4]).unwrap();
    let mut context = engine.create_context().unwrap();
    c.bench_function("run a small engine", |b| b.iter(|| black_box(context.run(&[("x", x())]).unwrap())));
    c.bench_function("make a context", |b| b.iter(|| black_box(engine.create_context().unwrap())));
    c.bench_function("refit", |b| {
        b.iter(|| {
            let mut refitter = engine.refitter().unwrap();
            refitter.set("w", Tensor::zeros(DType::F32, &[4, 4]).unwrap()).unwrap();
            refitter.refit().unwrap();
        });
    });
}

criterion_group!(host, import, build, plan, run);
criterion_main!(host);
