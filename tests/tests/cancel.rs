//! Runs that are stopped, by other threads at random moments and at time limits, and what their contexts do next.
//!
//! `KILN_CANCEL_MOMENTS=1000` stops so many runs of each network on each backend, `KILN_CANCEL_SEED=n` at other moments.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_runtime::{Engine, ExecutionContext, RuntimeError};
use kiln_tests::backends;
use kiln_tests::models::engine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time in which a stopped run returns. Nine of ten do so whatever else the machine does; from the others the time is
/// taken off in which their threads were ready to run, and other programs had the processors.
const USUAL: Duration = Duration::from_millis(100);
/// The time in which a stopped run returns on a machine that does much else beside.
const WORST: Duration = Duration::from_secs(2);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn count(n: i64) -> Tensor {
    Tensor::i64(&[], &[n]).unwrap()
}

fn floats(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::f32(shape, &(0..n).map(|i| (i * 7 % 11) as f32 * 0.1).collect::<Vec<_>>()).unwrap()
}

type Inputs = Vec<(&'static str, Tensor)>;

/// A network, inputs with which it runs for ever (or for longer than a test may), and some with which it does not.
struct Case {
    name: &'static str,
    engine: Engine,
    long: Inputs,
    short: Inputs,
}

fn cases(backend: &Arc<dyn Backend>) -> Vec<Case> {
    let endless = i64::MAX;
    let model = |name: &'static str, of: &dyn Fn(i64) -> Inputs, short: i64| {
        let config = BuildConfig { estimates: true, ..BuildConfig::default() };
        let path = format!("control_flow/{name}.onnx");
        let engine = engine(&path, backend, &[], config).unwrap_or_else(|e| panic!("{name}: {e}"));
        Case { name, engine, long: of(endless), short: of(short) }
    };
    let swap = |n| vec![("a", floats(&[2])), ("b", floats(&[2])), ("trips", count(n))];
    let nested = |n| vec![("rows", count(2)), ("cols", count(n)), ("step", floats(&[]))];
    // A tolerance that is never met.
    let newton =
        |n| vec![("a", Tensor::f32(&[], &[2.0]).unwrap()), ("max_trips", count(n)), ("tol", never())];
    let capture = |n| vec![("x", floats(&[2, 3])), ("w", floats(&[3, 3])), ("trips", count(n))];
    let stacked = |n| vec![("x", floats(&[8])), ("n", count(n))];
    let small = stacking(backend);
    vec![
        model("loop_swap", &swap, 3),
        model("nested_loops", &nested, 4),
        model("while_newton_bounded", &newton, 5),
        model("loop_invariant_capture", &capture, 5),
        Case { name: "stacking", engine: small, long: stacked(3_000_000), short: stacked(4) },
    ]
}

fn never() -> Tensor {
    Tensor::f32(&[], &[-1.0]).unwrap()
}

fn plain(net: &mut Network, name: &str, op: &str, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, Attrs::new(), &inputs).unwrap()[0]
}

fn built(net: &Network, backend: &Arc<dyn Backend>) -> Engine {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let program = builder.build(net).unwrap_or_else(|e| panic!("{e}")).program;
    Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap()
}

/// A loop that keeps what it carries at each iteration, in one of two iterations.
fn stacking(backend: &Arc<dyn Backend>) -> Engine {
    let mut net = Network::new("stacking");
    let x = net.add_input("x", TensorType::new(DType::F32, [8])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, "loop").unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let next = plain(&mut net, "next", "sin", &[value]);
    net.set_input(id, 1, next).unwrap();
    let last = net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    let stacked = net.add_loop_output(l, next, LoopOutputKind::Concatenate, 0).unwrap();
    let (id, all) = (stacked.id(), stacked.output(0).unwrap());
    net.set_input(id, 1, n).unwrap();
    net.mark_output(last, "last").unwrap();
    net.mark_output(all, "all").unwrap();
    built(&net, backend)
}

/// Starts a run and stops it after this time; what it ended with, how long after it was asked to stop, and how much of that
/// other programs took.
fn stopped(
    context: &mut ExecutionContext,
    inputs: &Inputs,
    after: Duration,
) -> (Result<(), RuntimeError>, Duration, Duration) {
    let (canceller, over) = (context.canceller(), AtomicBool::new(false));
    std::thread::scope(|s| {
        let asked = s.spawn(|| {
            std::thread::sleep(after);
            // The run may not have begun, or be over.
            while !canceller.cancel() && !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            (Instant::now(), queued())
        });
        let ended = context.run(inputs).map(drop);
        let end = Instant::now();
        over.store(true, Ordering::Relaxed);
        let (asked, before) = asked.join().unwrap();
        (ended, end.saturating_duration_since(asked), starved(&before))
    })
}

/// Time that each thread of this process has waited for a processor so far, as Linux counts it; nothing
/// elsewhere.
fn queued() -> BTreeMap<String, Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waited = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ns = text.split_whitespace().nth(1)?.parse().ok()?;
        Some((task.file_name().to_string_lossy().into_owned(), Duration::from_nanos(ns)))
    });
    waited.collect()
}

/// The name of the calling thread in [`queued`].
fn this_thread() -> String {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The time since then in which the calling thread, or the one that it may have waited for, had no processor: what other
/// programs cost a run.
fn starved(before: &BTreeMap<String, Duration>) -> Duration {
    let now = queued();
    let own = this_thread();
    let waited =
        |(name, d): (&String, &Duration)| d.saturating_sub(before.get(name).copied().unwrap_or_default());
    let mine = now.get_key_value(&own).map(waited).unwrap_or_default();
    mine + now.iter().filter(|(name, _)| **name != own).map(waited).max().unwrap_or_default()
}

/// The greatest and the one that nine of ten do not exceed.
fn worst(mut all: Vec<Duration>) -> (Duration, Duration) {
    all.sort();
    (all[all.len() - 1], all[(all.len() * 9 / 10).min(all.len() - 1)])
}

fn random_moments(backend: &Arc<dyn Backend>) {
    let (moments, seed) = (number("KILN_CANCEL_MOMENTS", 25), number("KILN_CANCEL_SEED", 1));
    for case in cases(backend) {
        let what = format!("{} on {}, seed {seed}", case.name, backend.name());
        let mut rng = Rng::new(seed);
        let mut context = case.engine.create_context().unwrap();
        let expected = context.run(&case.short).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (mut latencies, mut own) = (Vec::new(), Duration::ZERO);
        for moment in 0..moments {
            let after = Duration::from_micros(rng.int(0, if moment % 2 == 0 { 300 } else { 30_000 }) as u64);
            let (ended, latency, late) = stopped(&mut context, &case.long, after);
            let cancelled = matches!(ended, Err(RuntimeError::Cancelled { .. }));
            assert!(cancelled, "{what}, moment {moment} ({after:?}): {ended:?}");
            latencies.push(latency);
            if latency > USUAL / 2 {
                println!(
                    "{what}, moment {moment} ({after:?}): {latency:?}, of which {late:?} without a processor"
                );
            }
            own = own.max(latency.saturating_sub(late));
            let next = context.run(&case.short).unwrap_or_else(|e| panic!("{what}, moment {moment}: {e}"));
            assert_eq!(next, expected, "{what}: another result after moment {moment} ({after:?})");
        }
        let (worst, usual) = worst(latencies);
        let told = format!(
            "{what}: {moments} runs stopped, nine of ten within {usual:?}, all within {worst:?}, or {own:?} without the \
             time that other programs took"
        );
        println!("{told}");
        assert!(usual <= USUAL && own <= USUAL && worst <= WORST, "{told}");
    }
}

#[test]
fn cpu_stops_at_random_moments() {
    random_moments(&backends::cpu());
}

#[test]
fn wgpu_stops_at_random_moments() {
    backends::wgpu().unwrap().iter().for_each(random_moments);
}

#[test]
fn cuda_stops_at_random_moments() {
    backends::cuda().unwrap().iter().for_each(random_moments);
}

/// A limit ends a run that nothing else would, with the layer that it had come to where the host knows it.
#[test]
fn limits_end_runs_that_never_end() {
    let limit = Duration::from_millis(60);
    for backend in backends::all().unwrap() {
        for case in cases(&backend) {
            let what = format!("{} on {}", case.name, backend.name());
            let mut context = case.engine.create_context().unwrap();
            let expected = context.run(&case.short).unwrap();
            context.set_timeout(Some(limit));
            let start = Instant::now();
            let ended = context.run(&case.long);
            assert!(start.elapsed() >= limit, "{what}: ended before its limit: {ended:?}");
            assert!(start.elapsed() < limit + WORST, "{what}: {:?}", start.elapsed());
            match ended {
                Err(RuntimeError::TimedOut { limit: l, layer }) => {
                    assert_eq!(l, limit);
                    assert!(backend.name() == "cuda" || !layer.is_empty(), "{what}: no layer");
                }
                other => panic!("{what}: {other:?}"),
            }
            context.set_timeout(None);
            assert_eq!(context.run(&case.short).unwrap(), expected, "{what}");
        }
    }
}

/// A product of integers on the oracle, and one of floats on the fast path: single steps that take seconds.
#[test]
fn cpu_stops_inside_of_a_step() {
    let backend = backends::cpu();
    for (dtype, [m, k, n]) in [(DType::I64, [600, 4000, 600]), (DType::F32, [4000, 4000, 4000])] {
        let mut net = Network::new("product");
        let a = net.add_input("a", TensorType::new(dtype, [m, k])).unwrap();
        let b = net.add_input("b", TensorType::new(dtype, [k, n])).unwrap();
        let y = plain(&mut net, "product", "matmul", &[a, b]);
        net.mark_output(y, "y").unwrap();
        let mut context = built(&net, &backend).create_context().unwrap();
        let zeros = |r: i64, c: i64| Tensor::zeros(dtype, &[r as usize, c as usize]).unwrap();
        let inputs = vec![("a", zeros(m, k)), ("b", zeros(k, n))];
        for after in [0, 50, 150].map(Duration::from_millis) {
            let (ended, latency, _) = stopped(&mut context, &inputs, after);
            match ended {
                Err(RuntimeError::Cancelled { layer }) => assert!(["product", ""].contains(&layer.as_str())),
                // Many processors end the product before a later moment.
                Ok(()) if !after.is_zero() && latency.is_zero() => continue,
                other => panic!("{dtype}: {other:?}"),
            }
            assert!(latency < WORST, "{dtype}: {latency:?}");
        }
    }
}

/// A kernel that takes seconds on a software device is not cut: the run leaves it, and the next one comes after it.
#[test]
fn wgpu_leaves_a_kernel_that_takes_long() {
    let Some(backend) = backends::wgpu().unwrap() else { return };
    let mut net = Network::new("product");
    let a = net.add_input("a", TensorType::new(DType::F32, [800, 800])).unwrap();
    let w = net.add_weights(None, floats(&[800, 800])).unwrap();
    let y = plain(&mut net, "product", "matmul", &[a, w]);
    net.mark_output(y, "y").unwrap();
    let mut context = built(&net, &backend).create_context().unwrap();
    let inputs = vec![("a", floats(&[800, 800]))];
    let start = Instant::now();
    let expected = context.run(&inputs).unwrap();
    let whole = start.elapsed();
    for part in [2, 5] {
        let (ended, latency, late) = stopped(&mut context, &inputs, whole * part / 10);
        println!(
            "the whole run took {whole:?}; stopped after {part} tenths it ended in {latency:?}, late by {late:?}"
        );
        // On a fast device the run may be over before.
        assert!(matches!(ended, Err(RuntimeError::Cancelled { .. }) | Ok(())), "{ended:?}");
        assert!(latency.saturating_sub(late) <= USUAL, "{latency:?}, late by {late:?}");
        assert_eq!(context.run(&inputs).unwrap(), expected);
    }
}

/// Many steps one behind the other, without control flow.
#[test]
fn long_chains_stop_between_steps() {
    for backend in backends::all().unwrap() {
        let mut net = Network::new("chain");
        let x = net.add_input("x", TensorType::new(DType::F32, [192, 192])).unwrap();
        let w = net.add_weights(None, floats(&[192, 192])).unwrap();
        let y = (0..120).fold(x, |x, i| {
            let product = plain(&mut net, &format!("product {i}"), "matmul", &[x, w]);
            plain(&mut net, &format!("bounded {i}"), "softmax", &[product])
        });
        net.mark_output(y, "y").unwrap();
        let mut context = built(&net, &backend).create_context().unwrap();
        let inputs = vec![("x", floats(&[192, 192]))];
        let start = Instant::now();
        let expected = context.run(&inputs).unwrap();
        let whole = start.elapsed();
        let mut latencies = Vec::new();
        for part in [1, 3, 5, 7] {
            let (ended, latency, _) = stopped(&mut context, &inputs, whole * part / 10);
            // On a fast device the run may be over before: then another one is stopped, later.
            assert!(matches!(ended, Err(RuntimeError::Cancelled { .. }) | Ok(())), "{ended:?}");
            if ended.is_err() {
                latencies.push(latency);
            }
            assert_eq!(context.run(&inputs).unwrap(), expected, "on {}", backend.name());
        }
        println!("{}: the whole run took {whole:?}, stopped ones ended after {latencies:?}", backend.name());
        assert!(latencies.iter().all(|l| *l < WORST / 4), "{}: {latencies:?}", backend.name());
    }
}

/// A run that nobody waits for ends with its context.
#[test]
fn a_context_that_goes_takes_its_endless_run_along() {
    if let Some(backend) = backends::cuda().unwrap() {
        for case in cases(&backend) {
            let mut context = case.engine.create_context().unwrap();
            for (name, tensor) in &case.long {
                context.set_input(name, tensor.clone()).unwrap();
            }
            context.set_timeout(Some(Duration::from_secs(5)));
            let start = Instant::now();
            let started = context.enqueue();
            drop(context);
            // When the host walks, `enqueue` itself ends at the limit.
            let host = matches!(started, Err(RuntimeError::TimedOut { .. }));
            assert!(host || start.elapsed() < WORST, "{}: {:?}", case.name, start.elapsed());
            let mut next = case.engine.create_context().unwrap();
            next.run(&case.short).unwrap();
        }
    }
}
