//! The controls of an engine on a CUDA device with a network of the caller's: refit, weights that are streamed, addresses that change,
//! branches in several streams. Prints what they take. `KILN_CONTROLS_MODEL` names an ONNX file; without it, and without a device, the tests skip.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Narrowing, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Tensor};
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::Plan;
use kiln_runtime::{Engine, ExecutionContext, Outputs};
use kiln_tests::backends;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Cx {
    backend: Arc<dyn Backend>,
    model: PathBuf,
}

impl Cx {
    fn open() -> Option<Cx> {
        let model = std::env::var_os("KILN_CONTROLS_MODEL").map(PathBuf::from);
        let backend = backends::cuda().unwrap();
        let (Some(model), Some(backend)) = (model, backend) else {
            println!("skipped: no model (KILN_CONTROLS_MODEL), or no CUDA device");
            return None;
        };
        Some(Cx { backend, model })
    }

    /// A plan in f16 that can be refitted, kernels by estimates.
    fn plan(&self, streams: usize) -> Plan {
        let network = parse_file(&self.model, &ImportOptions::default()).unwrap().network;
        let target = self.backend.targets().unwrap().remove(0);
        let mut builder = Builder::new(self.backend.clone(), target.clone());
        builder.config = BuildConfig {
            refit: Refit::All,
            estimates: true,
            reduced: vec![DType::F16],
            narrowing: Narrowing::Everywhere,
            max_aux_streams: streams,
            ..BuildConfig::default()
        };
        let built = builder.build(&network).unwrap();
        built.notes.iter().filter(|n| n.contains("streams")).for_each(|n| println!("{n}"));
        Plan::new(built.program, Vec::new(), target)
    }
}

fn inputs(engine: &Engine) -> Vec<(String, Tensor)> {
    let mut rng = Rng::new(3);
    let all = engine.io_tensors().iter().filter(|t| t.mode == kiln_plan::IoMode::Input);
    let one = |t: &kiln_plan::IoTensor| {
        let shape: Vec<usize> = t.dims.iter().map(|d| d.as_const().unwrap_or(1) as usize).collect();
        (t.name.clone(), rng.tensor_in(t.dtype, &shape, -1.0, 1.0, 1))
    };
    all.map(one).collect()
}

fn run(context: &mut ExecutionContext, inputs: &[(String, Tensor)]) -> Outputs {
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    context.run(&inputs).unwrap()
}

fn least(all: impl IntoIterator<Item = f64>) -> f64 {
    all.into_iter().fold(f64::INFINITY, f64::min)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The least time of a run's kernels, in microseconds.
fn kernels(context: &mut ExecutionContext) -> f64 {
    least(context.time_runs(20).unwrap()) / 1e3
}

#[test]
fn refit_and_streaming() {
    let Some(cx) = Cx::open() else { return };
    let start = Instant::now();
    let plan = cx.plan(0);
    println!("build by estimates: {:.1} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
    println!("load: {:.1} ms", ms(start.elapsed()));
    let mut context = engine.create_context().unwrap();
    let given = inputs(&engine);
    let wanted = run(&mut context, &given);
    let known = engine.refitter().unwrap();
    let named: Vec<_> = known.weights().filter(|w| w.fixed.is_none()).cloned().collect();
    let program = engine.program();
    let old: Vec<(String, Tensor)> = named
        .iter()
        .filter_map(|w| {
            let v = program.graph.value_ids().find(|&v| {
                program.graph.weight(v).is_some_and(|x| x.name.as_deref() == Some(w.name.as_str()))
            })?;
            Some((w.name.clone(), program.graph.weight(v)?.tensor.clone()))
        })
        .collect();
    let mut rng = Rng::new(5);
    let new: Vec<(String, Tensor)> = old
        .iter()
        .map(|(n, t)| match t.dtype() {
            DType::F32 => (n.clone(), rng.tensor_in(DType::F32, t.shape(), 0.01, 0.1, 1)),
            _ => (n.clone(), t.clone()),
        })
        .collect();
    let bytes: usize = old.iter().map(|(_, t)| t.bytes().len()).sum();
    let mut times = Vec::new();
    for _ in 0..3 {
        for weights in [&new, &old] {
            let mut refitter = engine.refitter().unwrap();
            weights.iter().for_each(|(n, t)| refitter.set(n, t.clone()).unwrap());
            let start = Instant::now();
            let report = refitter.refit().unwrap();
            times.push(ms(start.elapsed()));
            if times.len() == 1 {
                println!(
                    "refit: {} weights replaced, {} derived, {} MB",
                    report.replaced,
                    report.derived,
                    bytes / 1_000_000
                );
                assert_ne!(run(&mut context, &given), wanted);
            }
        }
    }
    println!("refit: {:.1} ms at best of {times:.1?}", least(times.iter().copied()));
    assert_eq!(run(&mut context, &given), wanted, "there and back");

    (0..3).for_each(|_| drop(run(&mut context, &given)));
    println!("kernels with all weights on the device: {:.1} us", kernels(&mut context));
    let all = engine.streamable_weights();
    let budget = (all / 10).max(engine.least_weight_budget());
    engine.set_weight_budget(Some(budget)).unwrap();
    for _ in 0..4 {
        assert_eq!(run(&mut context, &given), wanted, "within {budget} bytes");
    }
    let share = budget as f64 / all as f64 * 100.0;
    println!("streamed with {share:.0} % of {all} bytes: {:.1} us, the same bits", kernels(&mut context));
    println!("host layers: {}", context.host_layers().unwrap().len());
    println!("automatic budget: {:?}", engine.automatic_weight_budget());
}

#[test]
fn streams_beside() {
    let Some(cx) = Cx::open() else { return };
    let mut found = Vec::new();
    for streams in [0, 1, 3] {
        let engine = Engine::from_plan(cx.plan(streams), cx.backend.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        let given = inputs(&engine);
        let outputs: Vec<Outputs> = (0..4).map(|_| run(&mut context, &given)).collect();
        println!(
            "{streams} auxiliary streams: {:.1} us, arena {} bytes",
            kernels(&mut context),
            engine.context_memory()
        );
        found.extend(outputs);
    }
    found.iter().for_each(|o| assert_eq!(*o, found[0], "streams change nothing"));
}

type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;

#[test]
fn addresses_that_change() {
    let Some(cx) = Cx::open() else { return };
    let engine = Engine::from_plan(cx.plan(0), cx.backend.clone()).unwrap();
    let mut context = engine.create_context().unwrap();
    let given = inputs(&engine);
    let wanted = run(&mut context, &given);
    let library = std::env::var_os("KILN_CUDA_DRIVER").unwrap_or_else(|| "libcuda.so.1".into());
    // SAFETY: the driver, which the backend has loaded.
    let driver = unsafe { libloading::Library::new(library) }.unwrap();
    // SAFETY: the function's own type.
    let allocate = *unsafe { driver.get::<Allocate>(b"cuMemAlloc_v2") }.unwrap();
    let sets = 64;
    let names: Vec<(String, u64)> = engine
        .io_tensors()
        .iter()
        .map(|t| {
            let n: u64 = t.dims.iter().map(|d| d.as_const().unwrap_or(1) as u64).product();
            (t.name.clone(), t.dtype.bytes_for(n).unwrap().next_multiple_of(256))
        })
        .collect();
    let total: u64 = names.iter().map(|(_, n)| n).sum();
    let mut base = 0;
    // SAFETY: the place is valid; the backend has made its context current on this thread.
    assert_eq!(unsafe { allocate(&mut base, (total * sets) as usize) }, 0);
    let mut times = Vec::new();
    for round in 0..3 * sets {
        let mut at = base + total * (round % sets);
        let start = Instant::now();
        for (name, bytes) in &names {
            // SAFETY: memory that was allocated above.
            unsafe { context.bind(name, at as usize as *mut c_void, *bytes) }.unwrap();
            at += bytes;
        }
        context.enqueue().unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e6);
        context.wait().unwrap();
    }
    times.sort_by(f64::total_cmp);
    println!("all addresses changed: {:.1} us at best, {:.1} median", times[0], times[times.len() / 2]);
    let fixed: Vec<f64> = (0..sets)
        .map(|_| {
            let start = Instant::now();
            context.enqueue().unwrap();
            let took = start.elapsed().as_secs_f64() * 1e6;
            context.wait().unwrap();
            took
        })
        .collect();
    println!("none changed: {:.1} us at best", least(fixed));
    drop(wanted);
}
