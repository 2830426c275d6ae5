//! Control flow at work: errors of steps inside of bodies, their times, what is searched and refitted there, and what a
//! context does iteration by iteration.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Built, Refit};
use kiln_ir::{Attrs, DType, Elems, Tensor, TensorType};
use kiln_network::{IfId, LoopId, LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_runtime::{Engine, LayerTime};
use kiln_tests::backends;
use kiln_tests::suite::{Setting, run_graph};
use std::sync::Arc;

fn ints(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::i64(shape, v).unwrap()
}

fn floats(shape: &[usize], by: f32) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::f32(shape, &(0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) * by).collect::<Vec<_>>()).unwrap()
}

fn truth(b: bool) -> Tensor {
    Tensor::from_bytes(DType::Bool, &[], vec![u8::from(b)]).unwrap()
}

fn layer(net: &mut Network, name: &str, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, attrs, &inputs).unwrap()[0]
}

fn plain(net: &mut Network, name: &str, op: &str, inputs: &[TensorId]) -> TensorId {
    layer(net, name, op, Attrs::new(), inputs)
}

fn input(net: &mut Network, name: &str, dtype: DType, shape: &[i64]) -> TensorId {
    net.add_input(name, TensorType::new(dtype, shape.iter().copied())).unwrap()
}

fn weight(net: &mut Network, name: Option<&str>, t: Tensor) -> TensorId {
    net.add_weights(name, t).unwrap()
}

fn all() -> Vec<Arc<dyn Backend>> {
    [Some(backends::cpu()), backends::wgpu().unwrap()].into_iter().flatten().collect()
}

/// Backends whose profiles are looked at.
fn profiled() -> Vec<Arc<dyn Backend>> {
    all().into_iter().chain(backends::cuda().unwrap()).collect()
}

fn settings() -> Vec<Setting> {
    all().into_iter().map(|b| Setting::of(b, true).unwrap()).collect()
}

fn built(net: &Network, backend: &Arc<dyn Backend>, config: BuildConfig) -> (Built, Engine) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = config;
    let built = builder.build(net).unwrap();
    let engine = Engine::on_target(built.program.clone(), Vec::new(), backend.as_ref(), target).unwrap();
    (built, engine)
}

/// A loop with a count.
fn counted(net: &mut Network, name: &str, n: TensorId) -> LoopId {
    let l = net.add_loop().unwrap();
    net.set_loop_name(l, name).unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    l
}

/// A value carried through a loop; its last value.
fn carry(
    net: &mut Network,
    l: LoopId,
    first: TensorId,
    next: impl FnOnce(&mut Network, TensorId) -> TensorId,
) -> TensorId {
    let r = net.add_recurrence(l, first).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let next = next(net, value);
    net.set_input(id, 1, next).unwrap();
    net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap()
}

fn conditional(net: &mut Network, c: TensorId) -> IfId {
    let of = net.add_if_conditional().unwrap();
    net.set_condition(of, c).unwrap();
    of
}

fn inside(net: &mut Network, of: IfId, t: TensorId) -> TensorId {
    net.add_if_input(of, t).unwrap().output(0).unwrap()
}

#[test]
fn an_index_out_of_range_in_a_branch_or_a_loop_is_an_error_of_its_layer() {
    let mut net = Network::new("scatter in a branch in a loop");
    let (c, n) = (input(&mut net, "c", DType::Bool, &[]), input(&mut net, "n", DType::I64, &[]));
    let at = input(&mut net, "at", DType::I64, &[1]);
    let one = weight(&mut net, None, Tensor::f32(&[1], &[1.0]).unwrap());
    let first = weight(&mut net, None, Tensor::zeros(DType::F32, &[4]).unwrap());
    let l = counted(&mut net, "loop", n);
    let y = carry(&mut net, l, first, |net, x| {
        let of = conditional(net, c);
        let (at, y) = (inside(net, of, at), inside(net, of, x));
        let sums = Attrs::new().with("axis", 0i64).with("reduction", "add");
        let more = layer(net, "put", "scatter_elements", sums, &[y, at, one]);
        net.add_if_output(of, more, x).unwrap().output(0).unwrap()
    });
    net.mark_output(y, "y").unwrap();
    let graph = net.lower().unwrap();
    for s in settings() {
        let run = |c: bool, n: i64, at: i64| {
            run_graph(&s, graph.clone(), &[truth(c), ints(&[], &[n]), ints(&[1], &[at])])
        };
        let name = s.backend.name();
        assert_eq!(run(true, 3, 2).unwrap(), [Tensor::f32(&[4], &[0.0, 0.0, 3.0, 0.0]).unwrap()], "{name}");
        for (c, n) in [(false, 3), (true, 0)] {
            assert_eq!(run(c, n, 9).unwrap(), [Tensor::zeros(DType::F32, &[4]).unwrap()], "{name}");
        }
        let e = run(true, 3, 9).expect_err(name);
        assert!(e.contains("put"), "{name}: {e}");
        assert!(run(true, 1, 1).is_ok(), "{name}: an error does not stay");
    }
}

/// A loop whose first two iterations take a heavy branch, the others a light one.
fn alternating() -> Network {
    let mut net = Network::new("alternating");
    let n = input(&mut net, "n", DType::I64, &[]);
    let x = input(&mut net, "x", DType::F32, &[4, 4]);
    let (zero, one) = (weight(&mut net, None, ints(&[], &[0])), weight(&mut net, None, ints(&[], &[1])));
    let half = weight(&mut net, None, floats(&[4, 4], 0.1));
    let l = counted(&mut net, "loop", n);
    let r = net.add_recurrence(l, zero).unwrap();
    let (id, i) = (r.id(), r.output(0).unwrap());
    let next = plain(&mut net, "count", "add", &[i, one]);
    net.set_input(id, 1, next).unwrap();
    let two = weight(&mut net, None, ints(&[], &[2]));
    let c = plain(&mut net, "early", "less", &[i, two]);
    let y = carry(&mut net, l, x, |net, y| {
        let of = conditional(net, c);
        let (a, b) = (inside(net, of, y), inside(net, of, y));
        let heavy = plain(net, "heavy", "matmul", &[a, half]);
        let light = plain(net, "light", "neg", &[b]);
        net.add_if_output(of, heavy, light).unwrap().output(0).unwrap()
    });
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn the_profile_tells_what_ran_in_bodies_and_how_often() {
    for backend in profiled() {
        let (built, engine) = built(&alternating(), &backend, BuildConfig::default());
        let mut context = engine.create_context().unwrap();
        let mut times = |n: i64| -> Option<Vec<LayerTime>> {
            for _ in 0..2 {
                context.run(&[("n", ints(&[], &[n])), ("x", floats(&[4, 4], 0.5))]).unwrap();
                context.layer_times().ok()?;
            }
            context.layer_times().ok()
        };
        let Some(five) = times(5) else { continue };
        let runs = |times: &[LayerTime], part: &str| -> u64 {
            times.iter().filter(|t| t.inside && t.name.contains(part)).map(|t| t.runs).sum()
        };
        let name = backend.name();
        assert_eq!(
            (runs(&five, "heavy"), runs(&five, "light"), runs(&five, "count")),
            (2, 3, 5),
            "{name}: {five:?}"
        );
        let outer = five.iter().find(|t| t.name == "loop").unwrap();
        assert!(!outer.inside && outer.ns > 0.0, "{name}");
        let two = times(2).unwrap();
        assert_eq!(
            (runs(&two, "heavy"), runs(&two, "light")),
            (2, 0),
            "{name}: what is not taken does not run"
        );
        // The report of the build and the inspector name the same steps.
        let reported = |part: &str| built.steps.iter().any(|s| s.name.contains(part));
        assert!(reported("heavy") && reported("light"), "{:?}", built.steps);
        let table = engine.inspector().to_text();
        for t in &five {
            assert!(table.contains(&t.name), "{name}: the inspector lacks {}:\n{table}", t.name);
        }
    }
}

/// The figures of the chapter on conditionals: x → T1 → T2 → T3 if c, x otherwise. The input of the
/// conditional is before T1 (A), after T1 (B), or there is none (C).
fn figure(which: char) -> Network {
    let mut net = Network::new("figure");
    let c = input(&mut net, "c", DType::Bool, &[]);
    let x = input(&mut net, "x", DType::F32, &[4, 4]);
    let of = conditional(&mut net, c);
    let mut t = x;
    for i in 1..=3 {
        if (which, i) == ('A', 1) || (which, i) == ('B', 2) {
            t = inside(&mut net, of, t);
        }
        let w = weight(&mut net, None, floats(&[4, 4], 0.1 * i as f32));
        t = plain(&mut net, &format!("T{i}"), "matmul", &[t, w]);
    }
    let y = net.add_if_output(of, t, x).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn the_profile_shows_what_is_lazy_in_the_figures() {
    for (which, eager) in [('A', 0), ('B', 1), ('C', 3)] {
        for backend in profiled() {
            let (_, engine) = built(&figure(which), &backend, BuildConfig::default());
            let mut context = engine.create_context().unwrap();
            for (c, ran) in [(true, 3), (false, eager)] {
                let mut times = None;
                for _ in 0..2 {
                    context.run(&[("c", truth(c)), ("x", floats(&[4, 4], 0.5))]).unwrap();
                    times = context.layer_times().ok();
                }
                let Some(times) = times else { continue };
                for i in 1..=3 {
                    let name = format!("T{i}");
                    let there = times.iter().any(|t| t.name.contains(&name) && t.tactic != "interpreted");
                    assert_eq!(there, i <= ran, "{}, figure {which}, {c}: {times:?}", backend.name());
                }
            }
        }
    }
}

#[test]
fn kernels_in_bodies_are_chosen_by_time_and_found_in_the_cache_again() {
    let mut net = Network::new("product in a loop");
    let n = input(&mut net, "n", DType::I64, &[]);
    let x = input(&mut net, "x", DType::F32, &[32, 32]);
    let w = weight(&mut net, Some("w"), floats(&[32, 32], 0.02));
    let l = counted(&mut net, "loop", n);
    let y = carry(&mut net, l, x, |net, y| plain(net, "product", "matmul", &[y, w]));
    net.mark_output(y, "y").unwrap();
    for backend in all() {
        let target = backend.targets().unwrap().remove(0);
        let mut builder = Builder::new(backend.clone(), target);
        builder.config = BuildConfig { samples: 1, ..BuildConfig::default() };
        let cold = builder.build(&net).unwrap();
        let product = |b: &Built| b.steps.iter().find(|s| s.name.contains("product")).unwrap().clone();
        let (first, name) = (product(&cold), backend.name());
        if first.candidates > 1 {
            assert!(first.key.is_some() && first.ns.is_some() && cold.timed > 0, "{name}: {first:?}");
        }
        let warm = builder.build(&net).unwrap();
        assert_eq!((warm.timed, product(&warm).tactic), (0, first.tactic), "{name}");
    }
}

#[test]
fn weights_that_a_body_reads_are_refitted() {
    let mut net = Network::new("refit");
    let n = input(&mut net, "n", DType::I64, &[]);
    let c = input(&mut net, "c", DType::Bool, &[]);
    let x = input(&mut net, "x", DType::F32, &[2]);
    let (w, b) =
        (weight(&mut net, Some("w"), floats(&[2], 0.3)), weight(&mut net, Some("b"), floats(&[2], 0.1)));
    let two = weight(&mut net, None, Tensor::f32(&[2], &[2.0, 2.0]).unwrap());
    let l = counted(&mut net, "loop", n);
    let y = carry(&mut net, l, x, |net, y| {
        // Values derived from weights inside of the loop follow them, too.
        let twice = plain(net, "twice", "mul", &[w, two]);
        let y = plain(net, "scaled", "mul", &[y, twice]);
        let of = conditional(net, c);
        let inner = inside(net, of, y);
        let shifted = plain(net, "shifted", "add", &[inner, b]);
        net.add_if_output(of, shifted, y).unwrap().output(0).unwrap()
    });
    net.mark_output(y, "y").unwrap();
    for backend in all() {
        let (_, engine) = built(&net, &backend, BuildConfig { refit: Refit::All, ..BuildConfig::default() });
        let run = || {
            let mut context = engine.create_context().unwrap();
            let given = [("n", ints(&[], &[2])), ("c", truth(true)), ("x", floats(&[2], 1.0))];
            context.run(&given).unwrap().remove(0).1.to_f64()
        };
        let wanted = |w: &Tensor, b: &Tensor| {
            let (w, b, mut y) = (w.to_f64(), b.to_f64(), floats(&[2], 1.0).to_f64());
            for _ in 0..2 {
                y = (0..2).map(|i| y[i] * w[i] * 2.0 + b[i]).collect();
            }
            y
        };
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-5);
        let old = (floats(&[2], 0.3), floats(&[2], 0.1));
        let new = (floats(&[2], -0.2), floats(&[2], 0.7));
        let first = run();
        assert!(near(&first, &wanted(&old.0, &old.1)), "{}", backend.name());
        for (w, b) in [&new, &old] {
            let mut r = engine.refitter().unwrap();
            r.set("w", w.clone()).unwrap();
            r.set("b", b.clone()).unwrap();
            assert!(r.get_missing().is_empty());
            r.refit().unwrap();
            assert!(near(&run(), &wanted(w, b)), "{}: {:?}", backend.name(), run());
        }
        assert_eq!(run(), first, "{}: there and back again", backend.name());
    }
}

#[test]
fn a_length_that_only_a_run_tells_and_that_does_not_fit_is_an_error_with_both_numbers() {
    let mut net = Network::new("stack and multiply");
    let n = input(&mut net, "n", DType::I64, &[]);
    let c = input(&mut net, "c", DType::Bool, &[]);
    let x = input(&mut net, "x", DType::F32, &[3]);
    let w = weight(&mut net, None, floats(&[2, 5], 0.1));
    // As many iterations as a condition allows: nobody knows before.
    let l = net.add_loop().unwrap();
    let (zero, one) = (weight(&mut net, None, ints(&[], &[0])), weight(&mut net, None, ints(&[], &[1])));
    let number = net.add_recurrence(l, zero).unwrap();
    let (id, number) = (number.id(), number.output(0).unwrap());
    let more = plain(&mut net, "count", "add", &[number, one]);
    net.set_input(id, 1, more).unwrap();
    let go = plain(&mut net, "go", "less", &[number, n]);
    net.add_trip_limit(l, go, TripLimitKind::While).unwrap();
    let value = net.add_recurrence(l, x).unwrap();
    let (id, value) = (value.id(), value.output(0).unwrap());
    let next = plain(&mut net, "next", "neg", &[value]);
    net.set_input(id, 1, next).unwrap();
    let rows = net.add_loop_output(l, value, LoopOutputKind::Concatenate, 1).unwrap();
    let rows = rows.set_exact_length().unwrap().output(0).unwrap();
    // [3, n] by [2, 5], inside of a conditional in a loop.
    let zero = weight(&mut net, None, Tensor::zeros(DType::F32, &[3, 5]).unwrap());
    let two = weight(&mut net, None, ints(&[], &[2]));
    let outer = counted(&mut net, "outer", two);
    let y = carry(&mut net, outer, zero, |net, y| {
        let of = conditional(net, c);
        let (rows, inner) = (inside(net, of, rows), inside(net, of, y));
        let product = plain(net, "product", "matmul", &[rows, w]);
        let more = plain(net, "sum", "add", &[inner, product]);
        net.add_if_output(of, more, y).unwrap().output(0).unwrap()
    });
    net.mark_output(y, "y").unwrap();
    let graph = net.lower().unwrap();
    for s in settings() {
        let run =
            |n: i64, c: bool| run_graph(&s, graph.clone(), &[ints(&[], &[n]), truth(c), floats(&[3], 0.5)]);
        let name = s.backend.name();
        assert!(run(2, true).is_ok(), "{name}: {:?}", run(2, true));
        assert!(run(7, false).is_ok(), "{name}: {:?}", run(7, false));
        let e = run(7, true).unwrap_err();
        assert!(["product", "7", "2"].iter().all(|w| e.contains(w)), "{name}: {e}");
    }
}

/// y ← tanh(y·w + b) and a stack of it, so many times.
fn recurrent() -> Network {
    let mut net = Network::new("recurrent");
    let n = input(&mut net, "n", DType::I64, &[]);
    let x = input(&mut net, "x", DType::F32, &[1, 64]);
    let (w, b) =
        (weight(&mut net, None, floats(&[64, 64], 0.03)), weight(&mut net, None, floats(&[1, 64], 0.05)));
    let l = counted(&mut net, "loop", n);
    let y = carry(&mut net, l, x, |net, y| {
        let product = plain(net, "product", "matmul", &[y, w]);
        let sum = plain(net, "sum", "add", &[product, b]);
        plain(net, "squashed", "tanh", &[sum])
    });
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn a_loop_of_a_thousand_trips_allocates_and_waits_as_one_of_ten_does() {
    for backend in all() {
        let (_, engine) =
            built(&recurrent(), &backend, BuildConfig { max_tactics: 1, ..BuildConfig::default() });
        let mut context = engine.create_context().unwrap();
        let mut run = |n: i64| {
            let given = [
                ("n", Tensor::from_elems(DType::I64, &[], &Elems::I(vec![n])).unwrap()),
                ("x", floats(&[1, 64], 0.1)),
            ];
            context.run(&given).unwrap();
            let before = context.counters().backend;
            let start = std::time::Instant::now();
            context.run(&given).unwrap();
            let (after, took) = (context.counters().backend, start.elapsed());
            eprintln!("{}: {n} iterations in {:.2} ms", backend.name(), took.as_secs_f64() * 1e3);
            [
                after.allocations - before.allocations,
                after.compilations - before.compilations,
                after.pipelines - before.pipelines,
                after.host_syncs - before.host_syncs,
            ]
        };
        let (ten, thousand) = (run(10), run(1000));
        assert_eq!(ten, thousand, "{}", backend.name());
        assert_eq!(thousand[..3], [0, 0, 0], "{}", backend.name());
        assert!(thousand[3] <= 1, "{}: the count is read once", backend.name());
    }
}
