//! The in-scope cases of the ONNX backend test suite on every backend, with constant folding and without.
//!
//! The newest release runs first. Of the older one those cases follow whose files are different.
//! A failure that is not listed in `tests/onnx/expected-failures/` fails the test, and so does a listed case that
//! passes. `KILN_CASE=text` runs only the cases whose name contains the text, and prints what they say.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_tests::backends::{cuda, reference, wgpu};
use kiln_tests::suite::{Setting, Suite, run_case};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn outcomes(s: &Setting, suite: Suite, only: Option<&str>) -> (usize, BTreeMap<String, Result<(), String>>) {
    let folder = suite.folder();
    assert!(folder.is_dir(), "{} is missing: run scripts/setup.sh", folder.display());
    assert_eq!(suite.cases().len(), suite.in_scope, "the list of cases is complete");
    let cases = if suite == Suite::NEWEST { suite.cases() } else { suite.cases_unlike(&Suite::NEWEST) };
    let chosen = cases.iter().filter(|c| only.is_none_or(|o| c.contains(o)));
    let outcomes = chosen.map(|case| {
        let run = catch_unwind(AssertUnwindSafe(|| run_case(s, &folder.join(case))));
        let outcome = run.unwrap_or_else(|p| {
            let text = p.downcast_ref::<String>().cloned();
            Err(format!(
                "panicked: {}",
                text.or(p.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
            ))
        });
        (case.clone(), outcome)
    });
    (cases.len(), outcomes.collect())
}

fn check(name: &str, backend: Arc<dyn Backend>, fold: bool) {
    let setting = Setting::of(backend, fold).unwrap();
    let only = std::env::var("KILN_CASE").ok();
    let mut wrong = Vec::new();
    for suite in [Suite::NEWEST, Suite::OLDER] {
        let (cases, outcomes) = outcomes(&setting, suite, only.as_deref());
        let expected = suite.expected_failures(name);
        for (case, outcome) in &outcomes {
            match (outcome, expected.get(case)) {
                (Err(e), None) => wrong.push(format!("{} {case}: fails: {e}", suite.version)),
                (Ok(()), Some(reason)) => {
                    wrong.push(format!("{} {case}: passes, but is listed as: {reason}", suite.version));
                }
                _ => {}
            }
            if only.is_some() {
                println!("{} {case}: {outcome:?}", suite.version);
            }
        }
        let unknown: Vec<_> =
            expected.keys().filter(|c| only.is_none() && !outcomes.contains_key(*c)).collect();
        assert!(
            unknown.is_empty(),
            "listed as expected failures, but no cases of {}: {unknown:?}",
            suite.version
        );
        let passed = outcomes.values().filter(|o| o.is_ok()).count();
        println!(
            "{name}, suite {}, folding {}: {passed} of {} pass, {} expected failures{}",
            suite.version,
            if fold { "on" } else { "off" },
            outcomes.len(),
            expected.len(),
            if cases < suite.in_scope { " (cases unlike the newest suite's)" } else { "" }
        );
    }
    assert!(wrong.is_empty(), "{} unexpected outcomes:\n{}", wrong.len(), wrong.join("\n"));
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
