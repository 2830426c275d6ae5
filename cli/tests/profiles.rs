//! Several optimization profiles, pools of memory and optimization levels on the command line.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Folder, digits, kiln, ok};
use serde_json::json;

fn build(f: &Folder, more: &[&str]) -> Vec<String> {
    let all = ["build", &digits("lenet_a.onnx"), "-o", &f.name("e.kiln"), "--backend", "cpu", "--json"];
    all.into_iter().map(str::to_owned).chain(more.iter().map(|s| s.to_string())).collect()
}

fn run(args: &[String]) -> common::Ran {
    kiln(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn several_profiles_are_built_shown_and_chosen() {
    let f = Folder::new();
    let profiles =
        ["--opt-profile", "input:1x1x28x28", "--opt-profile", "input:2x1x28x28..4x1x28x28..8x1x28x28"];
    let r = run(&build(&f, &[&profiles[..], &["--no-timing"]].concat()));
    assert_eq!(r.code, 0, "{}", r.stderr);
    let engine = f.name("e.kiln");
    let j = ok(&["inspect", &engine, "--json"]).json();
    let shapes = |p: usize| j["profiles"][p]["shapes"]["input"].clone();
    assert_eq!(shapes(0)["max"], json!([1, 1, 28, 28]));
    assert_eq!(shapes(1), json!({"min": [2, 1, 28, 28], "opt": [4, 1, 28, 28], "max": [8, 1, 28, 28]}));
    let batch = |more: &[&str]| {
        let j = ok(&[&["run", &engine, "--json", "--random-inputs", "1"], more].concat()).json();
        j["outputs"][0]["shape"][0].clone()
    };
    // Without a profile the first one's usual shapes count, else those of the one that is asked for.
    assert_eq!((batch(&[]), batch(&["--use-profile", "1"])), (json!(1), json!(4)));
    assert_eq!(batch(&["--shapes", "input:7x1x28x28"]), json!(7));
    let outside =
        kiln(&["run", &engine, "--use-profile", "0", "--shapes", "input:2x1x28x28", "--random-inputs", "1"]);
    assert!(outside.code == 1 && outside.stderr.contains("outside profile 0"), "{}", outside.stderr);
    let none = kiln(&["run", &engine, "--use-profile", "2", "--random-inputs", "1"]);
    assert!(none.code == 1 && none.stderr.contains("there is no profile 2"), "{}", none.stderr);
    let bench =
        ["bench", &engine, "--use-profile", "1", "--iterations", "2", "--duration", "0", "--warm-up", "0"];
    ok(&bench);
    let late = kiln(&["run", &engine, "--opt-profile", "input:1x1x28x28"]);
    assert!(late.code == 1 && late.stderr.contains("--opt-profile says how to build"), "{}", late.stderr);
}

#[test]
fn a_model_runs_in_the_first_of_its_profiles() {
    let model = digits("lenet_a.onnx");
    let profiles = ["--opt-profile", "input:3x1x28x28..5x1x28x28", "--opt-profile", "input:1x1x28x28"];
    let j = ok(&[
        &["run", &model, "--backend", "cpu", "--no-timing", "--json", "--random-inputs", "1"],
        &profiles[..],
    ]
    .concat())
    .json();
    assert_eq!(j["outputs"][0]["shape"], json!([5, 10]));
}

#[test]
fn pools_are_checked_and_levels_decide_what_is_timed() {
    let f = Folder::new();
    let shape = ["--shapes", "input:2x1x28x28"];
    let r = run(&build(&f, &[&shape[..], &["--mem-pool-size", "tactic-dram:1K"]].concat()));
    assert!(
        r.code == 1 && r.stderr.contains("the pool \"tactic-dram\" is exhausted: it has 1024 bytes"),
        "{}",
        r.stderr
    );
    assert!(r.stderr.contains("layer \"/conv1/Conv"), "{}", r.stderr);
    let r = run(&build(&f, &[&shape[..], &["--mem-pool-size", "dla:1"]].concat()));
    assert!(r.code == 2 && r.stderr.contains("there are workspace, tactic-dram"), "{}", r.stderr);
    // A pool that the backend does not have is noted.
    let r = run(&build(
        &f,
        &[&shape[..], &["--mem-pool-size", "tactic-shared-memory:64K", "--no-timing"]].concat(),
    ));
    assert!(r.code == 0 && r.stderr.contains("has no pool \"tactic-shared-memory\""), "{}", r.stderr);
    let timed = |level: &str| {
        let r = run(&build(&f, &[&shape[..], &["--optimization-level", level]].concat()));
        r.json()["tactics_timed"].as_u64().unwrap()
    };
    let timed: Vec<u64> = ["0", "1", "2", "3", "5", "7"].into_iter().map(timed).collect();
    assert_eq!(timed[..2], [0, 0]);
    assert!(timed[2] > 0 && timed[2] <= timed[3] && timed[3] <= timed[4], "{timed:?}");
    assert_eq!(timed[4], timed[5], "levels above 5 are 5");
    let with = |more: &[&str]| {
        let cache = f.name("counted.jsonl");
        std::fs::remove_file(&cache).unwrap_or_default();
        let all = [&shape[..], &["--timing-cache", &cache], more].concat();
        let timed = run(&build(&f, &all)).json()["tactics_timed"].as_u64().unwrap();
        let shown = ok(&["cache", "show", &cache, "--json"]).json();
        let samples = |l: &serde_json::Value| l["samples_ns"].as_array().unwrap().len();
        (timed, shown.as_array().unwrap().iter().map(samples).max())
    };
    let (fewest, samples) = with(&["--max-tactics", "1", "--timing-samples", "2"]);
    assert!(fewest < timed[3] && samples == Some(2), "{fewest} of {timed:?}, {samples:?} samples");
    let r = run(&build(&f, &[&shape[..], &["--mem-pool-size", "workspace:1,workspace:2"]].concat()));
    assert!(r.code == 2 && r.stderr.contains("workspace is given twice"), "{}", r.stderr);
}
