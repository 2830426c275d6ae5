//! The in-scope cases of the ONNX backend test suite on every backend, with constant folding and without.
//!
//! The newest release runs first. Of the older one those cases follow whose files are different.
//! A failure that is not listed in `tests/onnx/expected-failures/` fails the test, and so does a listed case that
//! passes. Builds are strict, so that no case passes by what the host computes or decides during a run; those that need the host
//! are listed in `tests/onnx/host/`, and must be refused by a strict build. `KILN_CASE=text` runs only the cases whose name
//! contains the text, and prints what they say. `KILN_ONNX_PART=3` runs one of three cases on the slow backends, drawn
//! by `KILN_ONNX_SEED` (1).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_tests::backends::{cpu, cuda, reference, wgpu};
use kiln_tests::suite::{Setting, Suite, host_cases, host_cases_file, run_case};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Outcome of a case.
enum Outcome {
    /// Right results, and no run waited for the host, but to read sizes.
    Passes,
    /// A strict build refuses it for this reason; any other build of it is right.
    NeedsHost(String),
    /// Wrong results, or a refusal.
    Fails(String),
}

/// Builds and runs a case strictly, and, where a strict build refuses it for what it needs the host for, as any build.
fn outcome(s: &Setting, folder: &Path) -> Outcome {
    let run = |strict: bool| {
        let run = catch_unwind(AssertUnwindSafe(|| run_case(&Setting { strict, ..s.clone() }, folder)));
        run.unwrap_or_else(|p| {
            let text = p.downcast_ref::<String>().cloned();
            let text = text.or(p.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        })
    };
    match run(true) {
        Ok(()) => Outcome::Passes,
        Err(e) => match host_reason(&e) {
            None => Outcome::Fails(e),
            Some(why) => run(false).map_or_else(Outcome::Fails, |()| Outcome::NeedsHost(why)),
        },
    }
}

/// Reason in a strict build's refusal for the first layer that needs the host.
fn host_reason(error: &str) -> Option<String> {
    let (_, layers) = error.split_once("needs the host at layer \"")?;
    let (_, why) = layers.split_once("\": ")?;
    Some(why.split(" (").next().unwrap_or(why).to_owned())
}

/// Whether a case is in the part that is run, one of so many.
fn is_drawn(case: &str, parts: u64, seed: u64) -> bool {
    let hash = blake3::hash(format!("{seed} {case}").as_bytes());
    let number = hash.as_bytes().first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    number.is_multiple_of(parts.max(1))
}

fn number(variable: &str) -> u64 {
    std::env::var(variable).ok().and_then(|v| v.parse().ok()).unwrap_or(1)
}

fn check(name: &str, backend: Arc<dyn Backend>, fold: bool) {
    let setting = Setting::of(backend, fold).unwrap();
    let only = std::env::var("KILN_CASE").ok();
    let slow = ["reference", "wgpu"].contains(&name) && only.is_none();
    let (parts, seed) = (if slow { number("KILN_ONNX_PART") } else { 1 }, number("KILN_ONNX_SEED"));
    let drawn = |case: &str| parts <= 1 || is_drawn(case, parts, seed);
    let listed = host_cases(name);
    let (mut wrong, mut host) = (Vec::new(), BTreeMap::new());
    for suite in [Suite::NEWEST, Suite::OLDER] {
        let folder = suite.folder();
        assert!(folder.is_dir(), "{} is missing: run scripts/setup.sh", folder.display());
        assert_eq!(suite.cases().len(), suite.in_scope, "the list of cases is complete");
        let cases = if suite == Suite::NEWEST { suite.cases() } else { suite.cases_unlike(&Suite::NEWEST) };
        let expected = suite.expected_failures(name);
        let unknown: Vec<_> = expected.keys().filter(|c| !cases.contains(c)).collect();
        assert!(unknown.is_empty(), "listed as failures, but no cases of {}: {unknown:?}", suite.version);
        let (mut strictly, mut by_host) = (0, 0);
        let asked = |c: &&String| only.as_ref().is_none_or(|o| c.contains(o.as_str())) && drawn(c);
        for case in cases.iter().filter(asked) {
            let outcome = outcome(&setting, &folder.join(case));
            let text = match (&outcome, expected.get(case), listed.get(case)) {
                (Outcome::Fails(e), None, _) => Some(format!("fails: {e}")),
                (Outcome::Passes | Outcome::NeedsHost(_), Some(reason), _) => {
                    Some(format!("passes, but is listed as: {reason}"))
                }
                (Outcome::NeedsHost(why), _, None) => Some(format!("needs the host: {why}")),
                // Folding may leave nothing that needs the host.
                (Outcome::Passes, _, Some(_)) if !fold => Some("needs no host, but is listed as if".into()),
                _ => None,
            };
            wrong.extend(text.map(|t| format!("{} {case}: {t}", suite.version)));
            match outcome {
                Outcome::Passes => strictly += 1,
                Outcome::NeedsHost(why) => {
                    by_host += 1;
                    host.insert(case.clone(), why);
                }
                Outcome::Fails(e) if only.is_some() => println!("{} {case}: {e}", suite.version),
                Outcome::Fails(_) => {}
            }
        }
        println!(
            "{name}, suite {}, folding {}: {strictly} of {} pass without the host, {by_host} with it, {} expected failures{}",
            suite.version,
            if fold { "on" } else { "off" },
            cases.iter().filter(asked).count(),
            expected.len(),
            if cases.len() < suite.in_scope { " (cases unlike the newest suite's)" } else { "" }
        );
    }
    if std::env::var_os("KILN_BLESS").is_some() && !fold && only.is_none() && parts <= 1 {
        let head = format!(
            "# Cases in which {name} needs the host during a run, and what for. `KILN_BLESS=1` writes this file.\n"
        );
        let lines = host.iter().map(|(case, why)| format!("{case}: {why}\n"));
        std::fs::write(host_cases_file(name), head + &lines.collect::<String>()).unwrap();
    }
    assert!(wrong.is_empty(), "{} unexpected outcomes:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn parts_are_drawn_by_the_seed() {
    let cases = Suite::NEWEST.cases();
    let drawn = |parts, seed| cases.iter().filter(|c| is_drawn(c, parts, seed)).collect::<Vec<_>>();
    assert_eq!(drawn(1, 1).len(), cases.len());
    let (one, other) = (drawn(3, 1), drawn(3, 2));
    assert_ne!(one, other);
    let share = 3 * one.len();
    assert!(share > cases.len() * 3 / 4 && share < cases.len() * 5 / 4, "{} of {}", one.len(), cases.len());
}

#[test]
fn cpu_with_folding() {
    check("cpu", cpu(), true);
}

#[test]
fn cpu_without_folding() {
    check("cpu", cpu(), false);
}

#[test]
fn reference_with_folding() {
    check("reference", reference(), true);
}

#[test]
fn reference_without_folding() {
    check("reference", reference(), false);
}

#[test]
fn wgpu_with_folding() {
    wgpu().unwrap().into_iter().for_each(|b| check("wgpu", b, true));
}

#[test]
fn wgpu_without_folding() {
    wgpu().unwrap().into_iter().for_each(|b| check("wgpu", b, false));
}

#[test]
fn cuda_with_folding() {
    cuda().unwrap().into_iter().for_each(|b| check("cuda", b, true));
}

#[test]
fn cuda_without_folding() {
    cuda().unwrap().into_iter().for_each(|b| check("cuda", b, false));
}
