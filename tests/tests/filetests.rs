//! Passes and the forming of regions on graphs in text form, under `tests/filetests`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_tests::filetests::{check_file, files};

#[test]
fn every_file_gives_what_it_says() {
    let files = files();
    assert!(files.len() >= 6, "{files:?}");
    let results: Vec<Result<usize, String>> = files.iter().map(|f| check_file(f)).collect();
    let wrong: Vec<&String> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.iter().map(|w| w.as_str()).collect::<Vec<_>>().join("\n"));
    println!("{} cases in {} files", results.iter().flatten().sum::<usize>(), files.len());
}
