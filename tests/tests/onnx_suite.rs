//! The in-scope cases of the ONNX backend test suite on every backend, with constant folding and without.
//!
//! A failure that is not listed in `tests/onnx/expected-failures/` fails the test, and so does a listed case that
//! passes. `KILN_CASE=text` runs only the cases whose name contains the text, and prints what they say.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_tests::backends::{cuda, reference, wgpu};
use kiln_tests::suite::{self, Setting, run_case};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn outcomes(s: &Setting, only: Option<&str>) -> BTreeMap<String, Result<(), String>> {
    let cases = suite::cases();
    assert_eq!(cases.len(), 1388, "the list of cases is complete");
    let folder = suite::folder();
    assert!(folder.is_dir(), "{} is missing: run scripts/setup.sh", folder.display());
    let chosen = cases.into_iter().filter(|c| only.is_none_or(|o| c.contains(o)));
    chosen
        .map(|case| {
            let run = catch_unwind(AssertUnwindSafe(|| run_case(s, &folder.join(&case))));
            let outcome = run.unwrap_or_else(|p| {
                let text = p.downcast_ref::<String>().cloned();
                Err(format!(
                    "panicked: {}",
                    text.or(p.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
                ))
            });
            (case, outcome)
        })
        .collect()
}

fn check(name: &str, backend: Arc<dyn Backend>, fold: bool) {
    let setting = Setting::of(backend, fold).unwrap();
    let only = std::env::var("KILN_CASE").ok();
    let outcomes = outcomes(&setting, only.as_deref());
    let expected = suite::expected_failures(name);
    let mut wrong = Vec::new();
    for (case, outcome) in &outcomes {
        match (outcome, expected.get(case)) {
            (Err(e), None) => wrong.push(format!("{case}: fails: {e}")),
            (Ok(()), Some(reason)) => wrong.push(format!("{case}: passes, but is listed as: {reason}")),
            _ => {}
        }
        if only.is_some() {
            println!("{case}: {outcome:?}");
        }
    }
    let passed = outcomes.values().filter(|o| o.is_ok()).count();
    println!(
        "{name}, folding {}: {passed} of {} pass, {} expected failures",
        if fold { "on" } else { "off" },
        outcomes.len(),
        expected.len()
    );
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
