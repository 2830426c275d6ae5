//! Random programs of nested loops and conditionals give what the definition of lazy sequences says, on every backend.
//!
//! `KILN_LAZY_SECONDS=900` lets them go on from seed `KILN_LAZY_SEED` for as long; that seed alone runs without.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_ir::{DType, Elems, Tensor};
use kiln_tests::backends;
use kiln_tests::lazy::coverage::{self, Pair};
use kiln_tests::lazy::families::FAMILIES;
use kiln_tests::lazy::{Spec, programs::program, text};
use kiln_tests::suite::{Setting, run_graph};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Allowed difference of results, by the narrowest float that values went through.
fn tolerance(narrowest: f64) -> impl Fn(f64, f64) -> bool {
    move |found, wanted| {
        let both_nan = found.is_nan() && wanted.is_nan();
        found == wanted || both_nan || (found - wanted).abs() <= narrowest * wanted.abs().max(1.0)
    }
}

fn same(found: &Tensor, wanted: &Tensor) -> Result<(), String> {
    if found.ty() != wanted.ty() {
        return Err(format!("is {}, wants {}", found.ty(), wanted.ty()));
    }
    let near = tolerance(match wanted.dtype() {
        DType::F32 => 1e-4,
        DType::F16 => 0.02,
        DType::BF16 => 0.1,
        _ => 0.3,
    });
    let off = match (found.elems(), wanted.elems()) {
        (Elems::F(a), Elems::F(b)) => a.iter().zip(&b).position(|(&x, &y)| !near(x, y)),
        (a, b) if a == b => None,
        _ => Some(0),
    };
    off.map_or(Ok(()), |i| {
        Err(format!("element {i} of {}: found {:?}, wants {:?}", wanted.ty(), found.elems(), wanted.elems()))
    })
}

fn all_same(found: &[Tensor], wanted: &[Tensor]) -> Result<(), String> {
    assert_eq!(found.len(), wanted.len());
    let mut pairs = found.iter().zip(wanted).enumerate();
    pairs.try_for_each(|(i, (f, w))| same(f, w).map_err(|e| format!("output {i}: {e}")))
}

/// Runs one program by the definition, by the oracle on the lowered graph, and on backends.
fn one(seed: u64, pairs: &[Pair], settings: &[Setting]) -> Result<BTreeSet<Pair>, String> {
    let sample = program(seed, pairs).map_err(|e| format!("the program cannot be written: {e}"))?;
    let shown = |e: String| match std::env::var_os("KILN_LAZY_SEED") {
        Some(_) => format!("{e}\n{}", text(&sample.network)),
        None => e,
    };
    let wanted = Spec::new(&sample.network, &sample.inputs)?
        .run()
        .map_err(|e| shown(format!("by definition: {e}")))?;
    let graph = sample.network.lower().map_err(|e| shown(format!("lowering: {e}")))?;
    let oracle = graph.eval(&sample.inputs).map_err(|e| format!("oracle: {e}"))?;
    all_same(&oracle, &wanted).map_err(|e| shown(format!("oracle: {e}\n{}", graph.to_text())))?;
    let covered = coverage::of(&graph);
    for s in settings {
        let s = Setting { fold: seed.is_multiple_of(2), ..s.clone() };
        let name = s.backend.name();
        let found = run_graph(&s, graph.clone(), &sample.inputs).map_err(|e| format!("{name}: {e}"));
        found
            .and_then(|f| all_same(&f, &wanted).map_err(|e| format!("{name}: {e}")))
            .map_err(|e| format!("{e}\n{}", graph.to_text()))?;
    }
    Ok(covered)
}

fn seconds() -> Option<Duration> {
    std::env::var("KILN_LAZY_SECONDS").ok()?.parse().ok().map(Duration::from_secs)
}

/// Goes through seeds; in the time given by the environment, or these.
fn go(settings: Vec<Setting>, seeds: Range<u64>, least: f64) {
    let work = move || {
        let pairs = coverage::all();
        let asked: Option<u64> = std::env::var("KILN_LAZY_SEED").ok().and_then(|s| s.parse().ok());
        let (start, budget) = (Instant::now(), seconds());
        let first = asked.unwrap_or(seeds.start);
        let end = if asked.is_some() { first + 1 } else { seeds.end };
        let mut covered = BTreeSet::new();
        let mut wrong = Vec::new();
        let mut seed = first;
        while budget.map_or(seed < end, |b| start.elapsed() < b) {
            match one(seed, &pairs, &settings) {
                Ok(more) => covered.extend(more),
                Err(e) => {
                    eprintln!("seed {seed}: {e}");
                    wrong.push(seed);
                }
            }
            seed += 1;
        }
        let lacking: Vec<_> = pairs.iter().filter(|p| !covered.contains(p)).collect();
        let share = 1.0 - lacking.len() as f64 / pairs.len() as f64;
        eprintln!(
            "seeds {first}..{seed} in {:.1} s: {} of {} (family, construct, type) covered, {:.1} %",
            start.elapsed().as_secs_f64(),
            pairs.len() - lacking.len(),
            pairs.len(),
            100.0 * share
        );
        for (family, place, dtype) in lacking {
            eprintln!("  not covered: {} {place:?} {dtype}", FAMILIES[*family].name);
        }
        assert!(wrong.is_empty(), "{} of {} programs fail: {wrong:?}", wrong.len(), seed - first);
        assert!(asked.is_some() || share >= least, "only {:.1} % covered", 100.0 * share);
    };
    // The definition goes down recurrences by recursion.
    std::thread::Builder::new().stack_size(256 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn programs_mean_what_the_definition_says() {
    go(vec![Setting::of(backends::cpu(), true).unwrap()], 0..240, 0.9);
}

#[test]
fn programs_mean_what_the_definition_says_on_wgpu() {
    let Some(wgpu) = backends::wgpu().unwrap() else { return };
    go(vec![Setting::of(wgpu, true).unwrap()], 0..102, 0.85);
}

#[test]
fn programs_mean_what_the_definition_says_on_cuda() {
    let Some(cuda) = backends::cuda().unwrap() else { return };
    go(vec![Setting::of(cuda, true).unwrap()], 0..102, 0.85);
}
