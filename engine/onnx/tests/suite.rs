//! The ONNX backend suite: import, lower, evaluate on the oracle, compare.
//!
//! The suite is stored in `.cache/` of the repository, where `scripts/setup.sh` puts it; without it the test
//! is skipped. Every case runs twice: with the sizes that its model declares, and with sizes unknown until
//! the run. Cases that are known to fail are listed with their reason in `suite/expected_failures*.txt`. A
//! case of a list that passes fails the test too, so that the lists only shrink. `KILN_SUITE=substring` runs
//! the cases that match and prints each error in full; `KILN_SUITE_BLESS=1` writes the lists anew.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a test that reports")]

#[path = "suite/case.rs"]
mod case;
#[path = "suite/compare.rs"]
mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Cases on the list keep their reason, new ones get their error.
fn bless(list: &Path, results: &BTreeMap<String, case::Outcome>) {
    let old = lines(list);
    let mut text = String::from("# Cases of the suite that fail, each with its reason.\n");
    for (name, outcome) in results {
        if let Some(error) = &outcome.error {
            let known = old.iter().find(|line| line.split_once(": ").is_some_and(|(case, _)| case == name));
            let error: String = error.chars().take(160).collect();
            text += known.unwrap_or(&format!("{name}: {error}"));
            text.push('\n');
        }
    }
    std::fs::write(list, text).unwrap();
}

/// The cases known to fail: lines `case: reason`.
fn expected_failures(list: &Path) -> BTreeSet<String> {
    lines(list).iter().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

#[test]
fn cases_in_scope_agree_with_the_suite() {
    check(false, "expected_failures.txt");
}

#[test]
fn cases_agree_when_sizes_are_unknown_until_the_run() {
    check(true, "expected_failures_open.txt");
}

fn check(open: bool, list: &str) {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(list);
    let suite = root().join(".cache/onnx-suite-1.23.2");
    if !suite.join("node").is_dir() {
        println!("skipped: {} is missing; run scripts/setup.sh", suite.display());
        return;
    }
    let only = std::env::var("KILN_SUITE").ok();
    let cases = lines(&root().join("tests/onnx/scope-1.23.2.txt"));
    // Whole networks are too much for the oracle; they run in the suite of every backend.
    let cases = cases.into_iter().filter(|c| !c.starts_with("real/"));
    let cases: Vec<_> = cases.filter(|c| only.as_ref().is_none_or(|only| c.contains(only))).collect();
    let results: BTreeMap<_, _> =
        cases.iter().map(|c| (c.clone(), case::run(&suite.join(c), open))).collect();
    report(&results, only.is_some());
    if only.is_none() && std::env::var_os("KILN_SUITE_BLESS").is_some() {
        bless(&list, &results);
    }
    let expected = expected_failures(&list);
    let failed: BTreeSet<_> =
        results.iter().filter(|(_, r)| r.error.is_some()).map(|(c, _)| c.clone()).collect();
    let news: Vec<_> = failed.difference(&expected).collect();
    assert!(news.is_empty(), "cases that fail and are not expected to: {news:#?}");
    let stale: Vec<_> = expected.iter().filter(|c| cases.contains(c) && !failed.contains(*c)).collect();
    assert!(stale.is_empty(), "cases that pass now, to take off {}: {stale:#?}", list.display());
}

/// Passes and failures by operator, the first error of each.
fn report(results: &BTreeMap<String, case::Outcome>, full: bool) {
    let mut by_op: BTreeMap<&str, (usize, Vec<(&str, &str)>)> = BTreeMap::new();
    for (name, outcome) in results {
        let entry = by_op.entry(&outcome.op).or_default();
        match &outcome.error {
            None => entry.0 += 1,
            Some(error) => entry.1.push((name, error)),
        }
    }
    for (op, (passed, failed)) in by_op.iter().filter(|(_, (_, failed))| !failed.is_empty()) {
        println!("{op}: {passed} pass, {} fail", failed.len());
        for (name, error) in &failed[..if full { failed.len() } else { 1 }] {
            let error: String = error.chars().take(if full { 4000 } else { 300 }).collect();
            println!("    {name}: {error}");
        }
    }
    let passed = results.values().filter(|outcome| outcome.error.is_none()).count();
    println!("{passed} of {} cases pass", results.len());
}
