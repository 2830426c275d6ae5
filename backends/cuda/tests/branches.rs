//! Loops and conditionals that stay on the device: right, without a wait of the host, and how fast. Skipped without a
//! device, unless `KILN_REQUIRE_CUDA=1`.
//!
//! Speeds: `KILN_REQUIRE_CUDA=1 branches --ignored --nocapture speed`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/branches.rs"]
mod branches;
#[path = "common/slices.rs"]
mod slices;

use branches::{
    chain, counted, ending, ending_or_not, endless, gated, heavy, recurring, scalar, stacking, stopping,
    straight, truth,
};
use kiln_backend::{Backend, Context, Program, Shapes, Tactic, Target, flow};
use kiln_backend_cuda::{Cuda, copied_an_iteration};
use kiln_ir::{DType, Graph, Tensor};
use slices::{Inside, Over};
use std::sync::Arc;

type Run = (Box<dyn Context>, Arc<Program>, Arc<Shapes>);

fn device() -> Option<Target> {
    match Cuda.targets() {
        Ok(mut t) => Some(t.remove(0)),
        Err(e) => {
            assert!(std::env::var_os("KILN_REQUIRE_CUDA").is_none(), "{e}");
            println!("skipped: {e}");
            None
        }
    }
}

fn context(g: &Graph, inputs: &[Tensor]) -> Option<Run> {
    context_by(g, inputs, "")
}

/// With this tactic in bodies, where it is proposed.
fn context_by(g: &Graph, inputs: &[Tensor], wanted: &str) -> Option<Run> {
    Some(context_for(device()?, g, inputs, wanted))
}

fn context_for(target: Target, g: &Graph, inputs: &[Tensor], wanted: &str) -> Run {
    let mut program = Program::step_per_node(g.clone(), &Tactic::plain(""));
    program.choose(&Cuda, &target).unwrap();
    for body in program.steps.iter_mut().flat_map(|s| &mut s.bodies).filter(|_| !wanted.is_empty()) {
        for i in 0..body.steps.len() {
            let region = body.region(&body.steps[i]).unwrap();
            let all = Cuda.tactics(&region, &target).unwrap();
            let Some(tactic) = all.into_iter().find(|t| t.name == wanted) else { continue };
            body.steps[i].blob = Cuda.compile(&region, &tactic, &target).unwrap().into();
            body.steps[i].tactic = tactic;
        }
    }
    let program = Arc::new(program);
    let shapes = Arc::new(program.shapes(inputs).unwrap());
    let loaded = Cuda.open(&target).unwrap().load(program.clone()).unwrap();
    (loaded.context().unwrap(), program, shapes)
}

fn near(found: &Tensor, wanted: &Tensor) -> bool {
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-5 * (1.0 + b.abs());
    found.ty() == wanted.ty() && !found.to_f64().iter().zip(&wanted.to_f64()).any(far)
}

/// With loops that may come to so many commands when they are written out.
fn context_within(g: &Graph, inputs: &[Tensor], most: i64) -> Option<Run> {
    let target = Cuda.targets().ok()?.remove(0);
    let mut program = Program::step_per_node(g.clone(), &Tactic::plain(""));
    program.choose(&Cuda, &target).unwrap();
    for step in program.steps.iter_mut().filter(|s| !s.bodies.is_empty()) {
        step.tactic = Tactic::plain(flow::INTERPRETED).with(flow::UNROLLED, most);
    }
    let program = Arc::new(program);
    let shapes = Arc::new(program.shapes(inputs).unwrap());
    let loaded = Cuda.open(&target).unwrap().load(program.clone()).unwrap();
    Some((loaded.context().unwrap(), program, shapes))
}

/// Runs a graph several times; all is right, and the host never waits.
fn check(what: &str, g: &Graph, runs: &[Vec<Tensor>]) {
    // The oracle runs everywhere.
    let wanted: Vec<_> = runs.iter().map(|inputs| g.eval(inputs).unwrap()).collect();
    let Some(made) = context(g, &runs[0]) else { return };
    check_in(made, what, runs, &wanted);
}

fn check_in((mut cx, _, shapes): Run, what: &str, runs: &[Vec<Tensor>], wanted: &[Vec<Tensor>]) {
    let twice = runs.iter().zip(wanted).chain(runs.iter().zip(wanted));
    for (i, (inputs, wanted)) in twice.enumerate() {
        cx.enqueue(inputs, &shapes).unwrap_or_else(|e| panic!("{what}, run {i}: {e}"));
        let found = cx.outputs().unwrap_or_else(|e| panic!("{what}, run {i}: {e}"));
        for (k, (f, w)) in found.iter().zip(wanted).enumerate() {
            assert!(near(f, w), "{what}, run {i}, output {k}: {:?} for {:?}", f.elems(), w.elems());
        }
    }
    let c = cx.counters();
    // A loop without iterations is one launch, and no graph.
    assert!(c.host_syncs == 0 && c.pipelines <= 1, "{what}: {c:?}");
}

#[test]
fn trips_and_branches_are_decided_on_the_device() {
    let (g, first) = gated(true);
    let with = |limit: f32, c: bool| {
        let mut inputs = first.clone();
        (inputs[2], inputs[4]) = (scalar(limit), truth(c));
        inputs
    };
    // Zero iterations, one, many; both branches.
    check("gated", &g, &[with(4.5, true), with(0.0, false), with(1.0, true), with(333.0, false)]);
}

#[test]
fn several_trips_at_a_time_end_where_they_should() {
    for kernels in [1, 3, 8, 30] {
        let (g, first) = endless(kernels, 0.0);
        let runs = [0.0, 1.0, 2.0, 7.0, 8.0, 9.0, 100.0].map(|iterations| {
            let mut inputs = first.clone();
            inputs[2] = scalar(iterations);
            inputs
        });
        check(&format!("{kernels} kernels"), &g, &runs);
    }
}

#[test]
fn conditions_of_all_types_are_asked() {
    use DType::{BF16, F16, F32, I8, I32, I64};
    for t in [F32, F16, BF16, I8, I32, I64] {
        let runs: Vec<_> = [(3.0, 100.0), (100.0, 3.0), (-5.0, 7.0), (7.0, -5.0), (-4.0, -4.0), (90.0, 41.0)]
            .map(|(limit, stop)| stopping(t, limit, stop))
            .to_vec();
        let inputs: Vec<_> = runs.iter().map(|r| r.1.clone()).collect();
        check(&format!("{t}"), &runs[0].0, &inputs);
    }
}

#[test]
fn counted_loops_stack_and_swap() {
    let short = [(0, None), (1, None), (3, Some(5)), (40, None), (39, Some(64)), (0, Some(2))];
    let long = [(301, None), (399, Some(500)), (400, None)];
    for (iterations, length) in short.into_iter().chain(long) {
        let (g, inputs) = stacking(iterations, length, false);
        check(&format!("{iterations} iterations, length {length:?}"), &g, &[inputs]);
    }
}

/// Written out and as a node: both are right, and the limit is obeyed. Prints microseconds of a run.
#[test]
fn counted_loops_run_written_out_and_as_nodes() {
    for iterations in [8, 64, 300, 2000] {
        for kernels in [1, 4, 8] {
            let (g, inputs) = counted(iterations, kernels);
            let wanted = [g.eval(&inputs).unwrap()];
            let mut taken = Vec::new();
            for most in [0, 320, i64::MAX] {
                let Some((mut cx, program, shapes)) = context_within(&g, &inputs, most) else { return };
                taken.push(median(cx.as_mut(), &inputs, &shapes));
                let what = format!("{iterations} iterations of {kernels}, up to {most}");
                check_in((cx, program, shapes), &what, &[inputs.clone()], &wanted);
            }
            println!(
                "{iterations} iterations of {kernels} kernels: {taken:.1?} us as a node, up to 320 commands, written out"
            );
        }
    }
}

/// Times of graphs of many commands on the host: milliseconds of the first runs, and of one that is known.
#[test]
#[ignore = "a measurement"]
fn costs() {
    for iterations in [40, 128, 510] {
        let (g, inputs) = counted(iterations, 8);
        for most in [0, i64::MAX] {
            let Some((mut cx, _, shapes)) = context_within(&g, &inputs, most) else { return };
            let mut runs = Vec::new();
            for _ in 0..6 {
                let start = std::time::Instant::now();
                cx.enqueue(&inputs, &shapes).unwrap();
                let enqueued = start.elapsed().as_secs_f64() * 1e3;
                cx.outputs().unwrap();
                runs.push((enqueued, start.elapsed().as_secs_f64() * 1e3));
            }
            println!(
                "{iterations} iterations of 8 kernels, up to {most}: {runs:.2?} ms until enqueued, until done"
            );
        }
    }
}

/// Stacked outputs, element inputs and nested loops, with other limits than the usual one.
#[test]
fn limits_of_other_loops_are_obeyed() {
    for (iterations, length, nested) in
        [(40, Some(64), false), (399, Some(500), false), (9, None, true), (60, Some(61), true)]
    {
        let (g, inputs) = stacking(iterations, length, nested);
        let wanted = [g.eval(&inputs).unwrap()];
        for most in [0, 50, 4096] {
            let Some(made) = context_within(&g, &inputs, most) else { return };
            check_in(
                made,
                &format!("{iterations} iterations, nested: {nested}, up to {most}"),
                &[inputs.clone()],
                &wanted,
            );
        }
    }
}

/// The number of iterations that the host knows bounds stacked outputs; the device reports how many were
/// made.
#[test]
fn conditions_end_what_is_stacked() {
    for most in [9, 0, 1, 40, 333] {
        let g = ending(most, 0.0).0;
        let runs = [5.0, 0.0, 40.0, 1.0, 500.0, 9.0].map(|limit| ending(most, limit).1);
        check(&format!("{most} iterations at most"), &g, &runs);
    }
}

/// The branch decides whether there are iterations.
#[test]
fn conditions_end_what_is_stacked_in_a_branch() {
    let runs = [(5.0, true), (5.0, false), (0.0, true), (20.0, true), (0.0, false), (3.0, true)];
    let runs = runs.map(|(limit, c)| ending_or_not(9, limit, c).1);
    check("a loop in a branch", &ending_or_not(9, 0.0, true).0, &runs);
}

/// The host walks loops of so many iterations that there is no memory for all.
#[test]
fn a_bound_that_is_too_large_is_not_allocated() {
    let (g, inputs) = ending(i64::MAX, 6.0);
    let Some((mut cx, _, shapes)) = context(&g, &inputs) else { return };
    for _ in 0..2 {
        cx.enqueue(&inputs, &shapes).unwrap();
        let (found, wanted) = (cx.outputs().unwrap(), g.eval(&inputs).unwrap());
        assert!(found.iter().zip(&wanted).all(|(f, w)| near(f, w)), "{found:?}");
    }
}

/// Kernels whose blocks wait for each other, in the body of a node.
#[test]
fn recurrences_over_the_whole_device_run_in_bodies() {
    let (g, first) = recurring(1024, 5.0);
    let Some(made) = context_by(&g, &first, "recurrent.grid128") else { return };
    let inside = made.1.steps.iter().flat_map(|s| &s.bodies).flat_map(|b| &b.steps);
    assert!(inside.clone().any(|s| s.tactic.name == "recurrent.grid128"));
    let runs = [5.0, 0.0, 2.0].map(|iterations| recurring(1024, iterations).1);
    let wanted = runs.each_ref().map(|inputs| g.eval(inputs).unwrap());
    check_in(made, "recurring", &runs, &wanted);
}

#[test]
fn loops_nest() {
    for (iterations, length) in [(2, None), (40, Some(41)), (333, Some(340))] {
        let (g, inputs) = stacking(iterations, length, true);
        check(&format!("{iterations} iterations inside, length {length:?}"), &g, &[inputs]);
    }
}

/// Runs a loop over slices, all of whose iterations copy so many times the bytes of one of them, and so many
/// further bytes.
fn copying(over: Over, times: u64, further: u64) {
    let (g, first) = over.graph();
    check(&format!("{over:?}"), &g, &[first, over.given(1), over.given(2)]);
    if device().is_none() {
        return;
    }
    assert_eq!(copied_an_iteration(), times * over.bytes() + further, "{over:?}");
}

/// Loops of more iterations than are unrolled, and loops that a condition ends.
fn both_ways(inside: Inside, n: i64) -> [Over; 4] {
    let counted = Over::new(inside, 330, n);
    let ended = |limit| Over { limit: Some(limit), ..Over::new(inside, 21, n) };
    [counted, ended(21), ended(6), ended(0)]
}

#[test]
fn slices_are_read_and_written_where_they_lie() {
    for inside in [Inside::Pointwise, Inside::Product, Inside::Rows] {
        both_ways(inside, 32).into_iter().for_each(|over| copying(over, 0, 0));
    }
    copying(Over { length: Some(400), ..Over::new(Inside::Pointwise, 330, 32) }, 0, 0);
    // Several rounds of several iterations, and one iteration.
    for limit in [1, 8, 9] {
        copying(Over { limit: Some(limit), ..Over::new(Inside::Pointwise, 30, 256) }, 0, 0);
    }
}

/// Slices that are handed on, go to several places, or are used by control flow.
#[test]
fn slices_are_copied_where_they_must_be() {
    both_ways(Inside::HandedOn, 32).into_iter().for_each(|over| copying(over, 2, 0));
    // There is one iteration at a time, behind which a carried number is copied.
    both_ways(Inside::Chosen, 32).into_iter().for_each(|over| copying(over, 2, 4));
    both_ways(Inside::Carried, 32).into_iter().for_each(|over| copying(over, 1, 0));
    // Rows that are no multiples of 16 bytes, and elements that lie in pieces.
    copying(Over::new(Inside::Pointwise, 330, 3), 4, 0);
    copying(Over { last: true, ..Over::new(Inside::Pointwise, 330, 8) }, 4, 0);
}

fn median(cx: &mut dyn Context, inputs: &[Tensor], shapes: &Arc<Shapes>) -> f64 {
    for _ in 0..3 {
        cx.enqueue(inputs, shapes).unwrap();
        cx.outputs().unwrap();
    }
    let mut all = cx.time_runs(11).unwrap();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2] / 1e3
}

/// Microseconds of a run.
fn time(g: &Graph, inputs: &[Tensor]) -> Option<f64> {
    let (mut cx, _, shapes) = context(g, inputs)?;
    Some(median(cx.as_mut(), inputs, &shapes))
}

/// Times of an iteration over slices of these sizes, read and written in place, and copied.
#[test]
#[ignore = "a measurement"]
fn speed_of_slices() {
    let Some(target) = device() else { return };
    let mut without = target.clone();
    without.features.retain(|f| f != flow::SLICES);
    for (inside, n) in [4, 16, 64, 128, 256, 512, 1024]
        .into_iter()
        .flat_map(|n| [Inside::Pointwise, Inside::Product].map(|inside| (inside, n)))
    {
        let of = |target: &Target| {
            let iterations = 64;
            let over = |limit| Over { limit: Some(limit), ..Over::new(inside, iterations, n) };
            let (g, inputs) = over(iterations).graph();
            let (mut cx, _, shapes) = context_for(target.clone(), &g, &inputs, "");
            let full = median(cx.as_mut(), &inputs, &shapes);
            let none = median(cx.as_mut(), &over(0).given(0), &shapes);
            ((full - none) / iterations as f64, copied_an_iteration())
        };
        let ((in_place, copied), (before, all)) = (of(&target), of(&without));
        println!(
            "{inside:?}, slices of {} bytes: {in_place:.3} us an iteration with {copied} bytes copied, {before:.3} with {all}",
            4 * n * n
        );
    }
}

/// Times of an iteration of a loop beside the kernels that it has to launch anyway; lines that
/// `benches/gpu/loops.py` reads.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let (iterations, links) = (1000, 400);
    let (g, inputs) = chain(links);
    let Some(chained) = time(&g, &inputs) else { return };
    let (g, inputs) = chain(2);
    let kernel = (chained - time(&g, &inputs).unwrap()) / (links - 2) as f64;
    println!("kernel: {kernel:.3} us");
    for kernels in [1, 4, 8] {
        let (g, mut inputs) = endless(kernels, iterations as f32);
        let (mut cx, _, shapes) = context(&g, &inputs).unwrap();
        let full = median(cx.as_mut(), &inputs, &shapes);
        inputs[2] = scalar(0.0);
        let none = median(cx.as_mut(), &inputs, &shapes);
        let iteration = (full - none) / f64::from(iterations);
        let beside = iteration - kernels as f64 * kernel;
        println!(
            "while, {kernels} kernels: {iteration:.3} us an iteration, {beside:.3} us beside its kernels, {none:.2} us without iterations"
        );
    }
    let (layers, n) = (10, 1 << 22);
    let [heavy_alone, light_alone] = [("tanh", layers), ("neg", 1)].map(|(op, layers)| {
        let (g, inputs) = straight(op, n, layers);
        time(&g, &inputs).unwrap()
    });
    let (g, inputs) = heavy(layers, n, true);
    let (mut cx, _, shapes) = context(&g, &inputs).unwrap();
    let taken = median(cx.as_mut(), &inputs, &shapes);
    let not = median(cx.as_mut(), &heavy(layers, n, false).1, &shapes);
    let beside = (taken + not - heavy_alone - light_alone) / 2.0;
    println!(
        "conditional: heavy {taken:.1} us ({heavy_alone:.1} alone), light {not:.1} us ({light_alone:.1} alone), \
         {beside:.2} us beside them on average"
    );
}
