//! The op suite: one test for each backend, and the support matrix of the documentation.
//!
//! `KILN_OPS=add,conv` picks operators, `KILN_SAMPLE=9` one of nine of their problems, `KILN_TACTICS=tiled` tactics by a part of
//! their names.
//! `KILN_OP_SUITE=support` only asks what the backends offer. `KILN_POISON=1` also poisons memory outside of
//! the arena (scratch memory, values of unknown size). `KILN_BLESS=1` writes `docs/support.md`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_backend::compare::Latitude;
use kiln_backend_cpu::{Cpu, Options};
use kiln_ir::DType;
use kiln_tests::backends::{cuda, wgpu};
use kiln_tests::op_suite::{Mode, Subject, device_sizes, listed, matrix};
use kiln_tests::suite::Setting;
use std::sync::Arc;

/// The backends of the support matrix.
const BACKENDS: &[&str] = &["cpu", "wgpu", "cuda"];

#[test]
fn cpu_backend() {
    let backend = Arc::new(Cpu::with_options(Options { poison: true, ..Options::default() }));
    run("cpu", backend, Latitude::default());
}

#[test]
fn wgpu_backend() {
    wgpu().unwrap().into_iter().for_each(|b| run("wgpu", b, latitude("wgpu")));
}

#[test]
fn cuda_backend() {
    cuda().unwrap().into_iter().for_each(|b| run("cuda", b, latitude("cuda")));
}

/// Integers of 64 bits are refused where the device has none, never cut off.
#[test]
fn wgpu_without_optional_features_refuses() {
    let Some(backend) = wgpu().unwrap() else { return };
    let subject = Subject::new(backend, Mode::Support, Latitude::default()).unwrap();
    let table = subject.without(&["i64", "f16", "subgroup", "timestamps"]).run(None, 1);
    let (passed, refused, failed) = table.totals();
    assert!(passed > 0 && refused > 0 && failed == 0, "{table}");
    for (op, dtype, row) in table.rows().filter(|(_, t, _)| *t == DType::I64) {
        assert_eq!(row.passed, 0, "{op} {dtype}");
        assert!(row.refused.iter().all(|why| why.contains("64-bit")), "{op}: {:?}", row.refused);
    }
}

/// Freedom that a backend's devices have.
fn latitude(name: &str) -> Latitude {
    Latitude { flush: name == "wgpu", short_sums: name == "cuda" }
}

fn run(name: &str, backend: Arc<dyn Backend>, latitude: Latitude) {
    let mode = Mode::of_environment().unwrap();
    let pick = std::env::var("KILN_OPS").ok();
    let subject = Subject::new(backend, mode, latitude).unwrap();
    let every: usize = std::env::var("KILN_SAMPLE").map_or(1, |n| n.parse().unwrap());
    let table = subject.run(pick.as_deref(), every);
    let (passed, refused, failed) = table.totals();
    println!("{name}: {}\n{table}", subject.describe());
    let (expected, found) = (listed(name).unwrap(), table.refusals());
    let surprises: Vec<String> = found.difference(&expected).map(|r| r.to_string()).collect();
    let stale: Vec<String> = expected.difference(&found).map(|r| r.to_string()).collect();
    println!("{name}: {passed} problems pass, {refused} are refused, {failed} fail");
    assert!(passed > 0, "nothing ran");
    assert_eq!(failed, 0, "problems that do not agree with the oracle");
    let list = format!("tests/ops/expected-refusals/{name}.txt");
    assert!(surprises.is_empty(), "refusals that are not in {list}:\n{}", surprises.join("\n"));
    let whole = mode == Mode::Test && pick.is_none() && every == 1;
    assert!(!whole || stale.is_empty(), "{list} lists what is not refused any more:\n{}", stale.join("\n"));
}

/// An index out of range is the oracle's error on every backend, and the next run is right. `KILN_INDEX_SEED` draws others,
/// `KILN_INDEX_EVERY=1` takes every problem.
#[test]
fn indices_out_of_range_are_errors() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (seed, every) = (number("KILN_INDEX_SEED", 7), number("KILN_INDEX_EVERY", 5) as usize);
    println!("KILN_INDEX_SEED={seed}");
    for backend in kiln_tests::backends::all().unwrap() {
        let name = backend.name().to_owned();
        let found = Subject::new(backend, Mode::Test, Latitude::default()).unwrap().indices(seed, every);
        println!("{name}: {} runs refused, {} in range", found.refused, found.passed);
        assert!(found.failed.is_empty(), "{name}:\n{}", found.failed.join("\n"));
        assert!(found.refused > 50 && found.passed > 0, "{name}: {found:?}");
    }
}

/// Operators run on inputs whose size only the device knows. `KILN_SIZES_EVERY=1` takes every problem, from
/// `KILN_SIZES_FIRST` on.
#[test]
fn sizes_that_only_the_device_knows() {
    let number = |name: &str, default: usize| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (first, every) = (number("KILN_SIZES_FIRST", 0), number("KILN_SIZES_EVERY", 1 << 20));
    for backend in kiln_tests::backends::all().unwrap() {
        let name = backend.name().to_owned();
        let found = device_sizes(&Setting::of(backend, true).unwrap(), first, every);
        println!("{name}: {} pass, refused: {:?}", found.passed, found.refused);
        assert!(found.failed.is_empty(), "{name}:\n{}", found.failed.join("\n"));
        assert!(found.passed > 80, "{name}: {}", found.passed);
    }
}

/// Operators read their inputs through slices and transposes in front of them, where a backend has kernels that do.
/// `KILN_VIEWS_EVERY=1` takes every problem, `KILN_OPS` picks operators.
#[test]
fn inputs_behind_moves() {
    let every: usize = std::env::var("KILN_VIEWS_EVERY").map_or(9, |n| n.parse().unwrap());
    let pick = std::env::var("KILN_OPS").ok();
    for backend in kiln_tests::backends::all().unwrap() {
        let name = backend.name().to_owned();
        let latitude = latitude(&name);
        let found = Subject::new(backend, Mode::Test, latitude).unwrap().views(pick.as_deref(), every);
        println!("{name}: passed {:?}, refused {:?}", found.passed, found.refused);
        assert!(found.failed.is_empty(), "{name}:\n{}", found.failed.join("\n"));
        for op in ["matmul", "reduce", "softmax"] {
            let runs = found.passed.keys().any(|t| pick.is_some() || name == "cpu" || t.starts_with(op));
            assert!(runs, "{name} runs no {op} behind moves");
        }
    }
}

/// Operators store their results as parts of larger tensors, where a backend has kernels that do. `KILN_PARTS_EVERY=1` takes every
/// problem, `KILN_OPS` picks operators.
#[test]
fn results_as_parts() {
    let every: usize = std::env::var("KILN_PARTS_EVERY").map_or(17, |n| n.parse().unwrap());
    let pick = std::env::var("KILN_OPS").ok();
    for backend in kiln_tests::backends::all().unwrap() {
        let name = backend.name().to_owned();
        let latitude = latitude(&name);
        let found = Subject::new(backend, Mode::Test, latitude).unwrap().parts(pick.as_deref(), every);
        println!("{name}: passed {:?}, refused {:?}", found.passed, found.refused);
        assert!(found.failed.is_empty(), "{name}:\n{}", found.failed.join("\n"));
        for op in ["matmul", "conv", "reduce", "pointwise"] {
            let runs = found.passed.keys().any(|t| pick.is_some() || name == "cpu" || t.starts_with(op));
            assert!(runs, "{name} stores no result of {op} as a part");
        }
    }
}

/// Regions whose rows are reduced to a second output, on random shapes. `KILN_SIDE_SEED` draws others, `KILN_SIDE_CASES` says how
/// many.
#[test]
fn side_results() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (seed, cases) = (number("KILN_SIDE_SEED", 11), number("KILN_SIDE_CASES", 60) as usize);
    println!("KILN_SIDE_SEED={seed}");
    for backend in kiln_tests::backends::all().unwrap() {
        let name = backend.name().to_owned();
        let latitude = latitude(&name);
        let found = Subject::new(backend, Mode::Test, latitude).unwrap().side_results(seed, cases);
        println!("{name}: passed {:?}, refused {:?}", found.passed, found.refused);
        assert!(found.failed.is_empty(), "{name}:\n{}", found.failed.join("\n"));
        for tactic in ["matmul.naive", "matmul.tiled", "pointwise"] {
            let all = found.passed.iter().filter(|(name, _)| name.starts_with(tactic));
            let runs = all.map(|(_, n)| n).sum::<usize>();
            assert!(runs * 10 > cases || name == "cpu", "{name}: {runs} runs of {tactic}");
        }
    }
}

#[test]
fn support_matrix() {
    let text = matrix(BACKENDS).unwrap();
    kiln_tests::bless::check("docs/support.md", &text).unwrap();
}
