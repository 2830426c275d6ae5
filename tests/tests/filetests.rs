//! Passes and the forming of regions on graphs in text form, under `tests/filetests`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_tests::backends::{cpu, wgpu};
use kiln_tests::filetests::{build_and_run, cases, check_file, files};
use std::sync::Arc;

#[test]
fn every_file_gives_what_it_says() {
    let files = files();
    assert!(files.len() >= 6, "{files:?}");
    let results: Vec<Result<usize, String>> = files.iter().map(|f| check_file(f)).collect();
    let wrong: Vec<&String> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.iter().map(|w| w.as_str()).collect::<Vec<_>>().join("\n"));
    println!("{} cases in {} files", results.iter().flatten().sum::<usize>(), files.len());
}

/// Whole builds of all graphs, on a backend, against the oracle.
fn builds(backend: &Arc<dyn Backend>) -> usize {
    let (mut wrong, mut ran) = (Vec::new(), 0);
    for file in files() {
        for mut case in cases(&file).unwrap().into_iter().filter(|c| !c.expected.starts_with("error: ")) {
            case.settings.sizes.truncate(1);
            match build_and_run(&case, backend, case.settings.tolerance.max(1e-4)) {
                Ok(()) => ran += 1,
                Err(e) => wrong.push(format!("{file}: {}: {e}", case.title)),
            }
        }
    }
    assert!(wrong.is_empty(), "{ran} graphs are right, but on {}\n{}", backend.name(), wrong.join("\n"));
    ran
}

#[test]
fn every_graph_is_built_for_cpu() {
    assert!(builds(&cpu()) >= 80);
}

#[test]
fn every_graph_is_built_for_wgpu() {
    for b in wgpu().unwrap().iter() {
        assert!(builds(b) >= 80);
    }
}
