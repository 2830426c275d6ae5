//! Kernels by profile and by size of the inputs: chosen by the times of their shapes, stored in the plan, and taken at these.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, Program};
use kiln_builder::cache::{Entry, TimingCache};
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, TripLimitKind};
use kiln_plan::{Plan, Profile, Verbosity};
use kiln_runtime::{Engine, ExecutionContext, Layer, LayerTable};
use kiln_tests::backends::{all, cpu_or_oracle, reference};
use kiln_tests::driver::Driver;
use kiln_tests::models::difference;
use std::collections::BTreeSet;
use std::sync::Arc;

const WIDTH: usize = 48;

/// A product of rows of any number, with a function behind it.
fn network() -> Network {
    let mut net = Network::new("rows");
    let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host("n"), Dim::new(WIDTH as i64)] };
    let x = net.add_input("x", ty).unwrap();
    let w = Rng::new(5).tensor(DType::F32, &[WIDTH, WIDTH]);
    let w = net.add_weights(Some("w"), w).unwrap();
    let y = net.add_layer("product", "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    let y = net.add_layer("relu", "relu", Attrs::new(), &[Some(y)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net
}

fn profile(min: i64, opt: i64, max: i64) -> Profile {
    let mut p = Profile::new();
    let shape = |n: i64| [n, WIDTH as i64];
    p.set_shape("x", &shape(min), &shape(opt), &shape(max)).unwrap();
    p
}

fn build(backend: &Arc<dyn Backend>, cache: TimingCache, config: &BuildConfig) -> (TimingCache, Built) {
    build_of(network, backend, cache, config)
}

fn build_of(
    net: fn() -> Network,
    backend: &Arc<dyn Backend>,
    cache: TimingCache,
    config: &BuildConfig,
) -> (TimingCache, Built) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config =
        BuildConfig { samples: 1, search: false, estimate_limit: f64::INFINITY, ..config.clone() };
    builder.cache = cache;
    let built = builder.build(&net()).unwrap();
    (builder.cache, built)
}

/// Whether an entry is for a product of so many rows.
fn rows(entry: &Entry, n: i64) -> bool {
    entry.region.contains(&format!("f32[{n},{WIDTH}]"))
}

/// The times of a build, such that in products of `n` rows the first tactic by name is the fastest, and the last elsewhere.
fn favour(backend: &Arc<dyn Backend>, config: &BuildConfig, n: &[i64]) -> TimingCache {
    favour_of(network, backend, config, n)
}

fn favour_of(
    net: fn() -> Network,
    backend: &Arc<dyn Backend>,
    config: &BuildConfig,
    n: &[i64],
) -> TimingCache {
    let (cold, _) = build_of(net, backend, TimingCache::new(), config);
    let mut out = TimingCache::new();
    for (key, entry) in cold.iter() {
        let mut entry = entry.clone();
        let first = n.iter().any(|&n| rows(&entry, n));
        let count = entry.candidates.len();
        for (i, c) in entry.candidates.values_mut().enumerate() {
            let rank = if first { i } else { count - 1 - i };
            c.samples = vec![1e3 * (1 + rank) as f64; 3];
        }
        out.insert(key, entry);
    }
    out
}

fn load(program: Program, profiles: &[Profile], backend: &Arc<dyn Backend>) -> Engine {
    let target = backend.targets().unwrap().remove(0);
    Engine::on_target(program, profiles.to_vec(), backend.as_ref(), target).unwrap()
}

fn input(n: usize) -> Tensor {
    Rng::new(n as u64).tensor(DType::F32, &[n, WIDTH])
}

/// The tactic by which a run multiplied.
fn ran(context: &mut ExecutionContext, n: usize) -> String {
    context.layer_times().unwrap();
    context.run(&[("x", input(n))]).unwrap();
    let times = context.layer_times().unwrap();
    times.into_iter().find(|t| t.name.contains("product")).unwrap().tactic
}

/// The kernels of the product by the inspector: shapes and tactics.
fn inspected(table: &LayerTable) -> (String, Vec<(String, String)>) {
    let info = table.layers.iter().find_map(|l| match l {
        Layer::Detailed(info) if info.ops.contains("matmul") => Some(info),
        _ => None,
    });
    let info = info.unwrap();
    let kernels = info.kernels.iter().map(|k| (k.shapes.join(", "), k.tactic.clone()));
    (info.tactic.clone(), kernels.collect())
}

#[test]
fn each_profile_runs_by_the_tactic_that_is_fastest_at_its_usual_shape() {
    let backend = cpu_or_oracle();
    let profiles = vec![profile(1, 4, 8), profile(9, 32, 64), profile(65, 70, 80)];
    let config = BuildConfig { profiles: profiles.clone(), ..BuildConfig::default() };
    let cache = favour(&backend, &config, &[32]);
    assert!([4, 32, 70].iter().all(|&n| cache.iter().any(|(_, e)| rows(e, n))), "keys have the shapes");
    let (warm, built) = build(&backend, cache, &BuildConfig { locked: true, ..config.clone() });
    let step = built.steps.iter().find(|s| s.ops.contains("matmul")).unwrap();
    assert_ne!(step.tactic, step.alternatives[0].tactic);
    assert_eq!(step.alternatives[0].shapes, ["profile 1"], "{step:?}");
    assert!(step.alternatives[0].ns < step.alternatives[0].own_ns);
    let note = built.notes.iter().find(|n| n.contains("kernels by shape")).unwrap();
    assert!(note.contains("profile 0, profile 2 by") && note.contains("profile 1 by"), "{note}");

    // The plan holds both kernels, and equal times make equal plans.
    let plan = |b: &Built| {
        let target = backend.targets().unwrap().remove(0);
        let plan = Plan::new(b.program.clone(), profiles.clone(), target);
        plan.with_verbosity(Verbosity::Detailed).write().unwrap()
    };
    let bytes = plan(&built);
    let (_, again) = build(&backend, warm, &BuildConfig { locked: true, ..config });
    assert!(again.timed == 0 && plan(&again) == bytes, "a warm build is the same");
    let read = Plan::read(bytes).unwrap();
    let (first, kernels) = inspected(&LayerTable::of(&read.program, Verbosity::Detailed));
    assert_eq!(kernels.len(), 2, "{kernels:?}");
    assert_eq!((first == kernels[0].1, kernels[0].0.as_str()), (true, "profile 0, profile 2"));
    assert_eq!(kernels[1].0, "profile 1");
    let at = |n: i64| inspected(&read.layers_at(&profile(n, n, n)).unwrap()).0;
    assert_eq!([3, 40, 66].map(at), [&kernels[0].1, &kernels[1].1, &kernels[0].1].map(String::clone));

    // Runs take the kernel of their profile, whether it is chosen by the shape or by the caller.
    let engine = load(read.program, &profiles, &backend);
    let mut context = engine.create_context().unwrap();
    let found = [8, 9, 64, 65].map(|n| ran(&mut context, n));
    let (own, other) = (step.tactic.as_str(), step.alternatives[0].tactic.as_str());
    assert_eq!(found, [own, other, other, own]);
    context.set_profile(Some(1)).unwrap();
    assert_eq!(ran(&mut context, 32), other);
}

#[test]
fn of_overlapping_profiles_the_one_that_is_set_has_its_kernels() {
    let backend = cpu_or_oracle();
    let profiles = vec![profile(1, 4, 64), profile(1, 32, 64)];
    let config = BuildConfig { profiles: profiles.clone(), ..BuildConfig::default() };
    let (_, built) = build(&backend, favour(&backend, &config, &[32]), &config);
    let engine = load(built.program, &profiles, &backend);
    let mut context = engine.create_context().unwrap();
    let mut by = |p| {
        context.set_profile(p).unwrap();
        ran(&mut context, 16)
    };
    let [any, first, second] = [by(None), by(Some(0)), by(Some(1))];
    assert!(any == first && first != second, "{any} {first} {second}");
}

#[test]
fn sizes_inside_of_a_profile_have_kernels_of_their_own() {
    let backend = cpu_or_oracle();
    let profiles = vec![profile(1, 16, 256)];
    let config = BuildConfig { profiles: profiles.clone(), shape_buckets: 3, ..BuildConfig::default() };
    let (_, built) = build(&backend, favour(&backend, &config, &[1]), &config);
    let step = built.steps.iter().find(|s| s.ops.contains("matmul")).unwrap();
    // Up to the geometric mean of the least and the usual size.
    let limit = 4 * WIDTH;
    assert_eq!(step.alternatives[0].shapes, [format!("profile 0 up to {limit} elements")]);
    let engine = load(built.program, &profiles, &backend);
    let mut context = engine.create_context().unwrap();
    let found = [1, 4, 5, 256].map(|n| ran(&mut context, n) == step.tactic);
    assert_eq!(found, [false, false, true, true]);
    let one = BuildConfig { shape_buckets: 1, ..config };
    let (_, built) = build(&backend, TimingCache::new(), &one);
    assert!(built.program.cases.is_empty() && built.steps.iter().all(|s| s.alternatives.is_empty()));
}

/// Replayed builds take the recorded tactic of each case, whatever times say.
#[test]
fn tactics_of_all_profiles_are_recorded_and_replayed() {
    let backend = cpu_or_oracle();
    let config =
        BuildConfig { profiles: vec![profile(1, 4, 8), profile(9, 32, 64)], ..BuildConfig::default() };
    let (_, built) = build(&backend, favour(&backend, &config, &[32]), &config);
    let target = backend.targets().unwrap().remove(0);
    let record = kiln_builder::TacticRecord::of(&built.steps, &built.times, &target, false);
    let record = kiln_builder::TacticRecord::from_text(&record.to_text()).unwrap();
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { samples: 1, search: false, estimate_limit: f64::INFINITY, ..config };
    builder.replay(&record).unwrap();
    let again = builder.build(&network()).unwrap();
    assert_eq!(again.timed, 0);
    let bytes = |p: Program| Plan::new(p, Vec::new(), target.clone()).write().unwrap();
    assert!(bytes(again.program) == bytes(built.program));
}

/// Contexts, and switches of shape and profile in all.
const CONTEXTS: usize = 8;
const SWITCHES: usize = 10_000;
/// Switches between looks at the calls of the driver of tests, which remembers a part of them.
const LOOK: usize = 250;

/// Switches on a backend: fewer where a program stands for the device, unless `KILN_SWITCHES` asks for a number.
fn switches(backend: &dyn Backend) -> usize {
    let asked = std::env::var("KILN_SWITCHES").ok().and_then(|n| n.parse().ok());
    let emulated = backend.name() == "cuda" && Driver::open().is_of_tests();
    asked.unwrap_or(if emulated || backend.name() == "reference" { SWITCHES / 20 } else { SWITCHES })
}

/// Calls of the driver that load or make something, on the driver of tests.
fn made(driver: &Driver) -> usize {
    let makes = [
        "cuModuleLoad",
        "cuLibraryLoad",
        "cuGraphInstantiate",
        "cuMemAlloc",
        "cuMemHostAlloc",
        "cuStreamCreate",
    ];
    driver.calls(0, &makes).map_or(0, |(found, _)| found.into_iter().sum())
}

/// Eight contexts go through profiles with kernels of their own and through shapes: after each shape was seen once, nothing is allocated,
/// compiled or made.
#[test]
fn ten_thousand_switches_cost_nothing_after_warm_up() {
    for backend in all().unwrap().into_iter().chain([reference()]) {
        let name = backend.name().to_owned();
        let switches = switches(backend.as_ref());
        let profiles = vec![profile(1, 4, 8), profile(9, 24, 32)];
        let config = BuildConfig { profiles: profiles.clone(), shape_buckets: 3, ..BuildConfig::default() };
        let (_, built) = build(&backend, favour(&backend, &config, &[1, 24]), &config);
        let varies = built.steps.iter().any(|s| !s.alternatives.is_empty());
        assert!(varies || name == "reference" || name == "cpu", "{name} has several tactics of a product");
        let exact = built.program.graph.clone();
        let engine = load(built.program, &profiles, &backend);
        let shapes = [1, 8, 2, 9, 32, 5, 24];
        let wanted = shapes.map(|n| exact.eval(&[input(n)]).unwrap().remove(0));
        let inputs = shapes.map(input);
        let mut contexts: Vec<_> = (0..CONTEXTS).map(|_| engine.create_context().unwrap()).collect();
        for context in &mut contexts {
            // Results that a caller keeps are not used again.
            for x in inputs.iter().chain(&inputs) {
                context.run(&[("x", x.clone())]).unwrap();
            }
        }
        let counted = |c: &ExecutionContext| {
            let b = c.counters().backend;
            (b.allocations, b.compilations, b.pipelines)
        };
        let warm: Vec<_> = contexts.iter().map(counted).collect();
        let mut seen = BTreeSet::new();
        let driver = (name == "cuda").then(Driver::open);
        for i in 0..switches {
            if let Some(driver) = driver.as_ref().filter(|_| i % LOOK == 0) {
                // The driver of tests has counted what was made before the first switch.
                let expected = i == 0 && driver.is_of_tests();
                assert_eq!(made(driver) > 0, expected, "the driver has made something before switch {i}");
                driver.restart();
            }
            let (c, s) = (i % CONTEXTS, (i / CONTEXTS + i * 3) % shapes.len());
            let fits = usize::from(shapes[s] > 8);
            contexts[c].set_profile((i % 3 > 0).then_some(fits)).unwrap();
            let y = contexts[c].run(&[("x", inputs[s].clone())]).unwrap().remove(0).1;
            seen.insert((c, s));
            if i % 97 < 14 {
                let d = difference(&y, &wanted[s]);
                assert!(d <= 1e-4, "{name}: {} rows differ by {d}", shapes[s]);
            }
        }
        assert_eq!(seen.len(), CONTEXTS * shapes.len());
        let after: Vec<_> = contexts.iter().map(counted).collect();
        assert_eq!(after, warm, "{name}: allocations, compilations and pipelines");
    }
}

/// The product and the function in a loop of three iterations, which carries the rows.
fn looped() -> Network {
    let mut net = Network::new("looped");
    let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host("n"), Dim::new(WIDTH as i64)] };
    let x = net.add_input("x", ty).unwrap();
    let w = Rng::new(5).tensor_in(DType::F32, &[WIDTH, WIDTH], -0.2, 0.2, 1);
    let w = net.add_weights(Some("w"), w).unwrap();
    let three = net.add_constant(Tensor::i64(&[], &[3]).unwrap()).unwrap().output(0).unwrap();
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, three, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let y = net.add_layer("product", "matmul", Attrs::new(), &[Some(value), Some(w)]).unwrap()[0];
    let y = net.add_layer("relu", "relu", Attrs::new(), &[Some(y)]).unwrap()[0];
    net.set_input(id, 1, y).unwrap();
    let last = net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(last, "y").unwrap();
    net
}

/// The product of the loop's body, and the cases of the body.
fn body(program: &Program) -> Option<(&kiln_backend::Step, usize)> {
    let bodies = program.steps.iter().flat_map(|s| &s.bodies);
    let all = bodies.flat_map(|b| b.steps.iter().map(move |s| (s, b.cases.len())));
    all.into_iter().find(|(s, _)| s.name.contains("product"))
}

/// The tactic by which a run multiplied inside of the loop, and its result.
fn ran_inside(context: &mut ExecutionContext, n: usize) -> (String, Tensor) {
    context.layer_times().unwrap();
    let y = context.run(&[("x", input(n))]).unwrap().remove(0).1;
    let times = context.layer_times().unwrap();
    let inside = times.into_iter().find(|t| t.name.contains("product")).unwrap();
    (inside.tactic, y)
}

#[test]
fn bodies_of_loops_have_kernels_for_the_cases_around_them() {
    for backend in all().unwrap() {
        let name = backend.name().to_owned();
        let profiles = vec![profile(1, 4, 8), profile(9, 32, 64)];
        let config = BuildConfig { profiles: profiles.clone(), ..BuildConfig::default() };
        let cache = favour_of(looped, &backend, &config, &[32]);
        let (_, built) = build_of(looped, &backend, cache, &BuildConfig { locked: true, ..config });
        let Some((step, cases)) = body(&built.program) else {
            panic!(
                "{name}: the loop has no product: {:?}",
                built.program.steps.iter().map(|s| &s.name).collect::<Vec<_>>()
            )
        };
        if step.alternatives.is_empty() {
            assert!(name == "reference" || name == "cpu", "{name} has several tactics of a product");
            continue;
        }
        assert_eq!((cases, built.program.cases.len()), (2, 2), "{name}");
        let tactics = [step.tactic.name.clone(), step.alternatives[0].tactic.name.clone()];
        let note = built.notes.iter().find(|n| n.contains("kernels by shape")).unwrap();
        assert!(note.contains("product") && note.contains("profile 1 by"), "{note}");
        let exact = built.program.graph.clone();
        let target = backend.targets().unwrap().remove(0);
        let plan = Plan::new(built.program, profiles.clone(), target);
        let plan = Plan::read(plan.write().unwrap()).unwrap();
        let engine = Engine::from_plan(plan, backend.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        for n in [4, 32, 5, 64, 8, 9, 4, 32] {
            let (tactic, y) = ran_inside(&mut context, n);
            let wanted = exact.eval(&[input(n)]).unwrap().remove(0);
            let d = difference(&y, &wanted);
            assert!(d <= 1e-3, "{name}: {n} rows differ by {d}");
            let of = if n > 8 { &tactics[1] } else { &tactics[0] };
            assert!(tactic.contains(of.as_str()), "{name}: {n} rows by {tactic}, wanted {of} of {tactics:?}");
        }
    }
}
