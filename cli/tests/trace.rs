//! Traces of runs and builds, read by Perfetto's own message classes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, data, digits, kiln, lenet, ok};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Tables of a trace by Perfetto's classes, which `scripts/setup.sh` installs; none where that was not done.
fn read(path: &str) -> Option<Value> {
    let root = data("..").join("..");
    let library: PathBuf = root.join(".cache/perfetto");
    if !library.exists() {
        assert!(std::env::var_os("KILN_REQUIRE_PERFETTO").is_none(), "scripts/setup.sh installs perfetto");
        eprintln!("skipped: scripts/setup.sh installs what reads traces");
        return None;
    }
    let done = Command::new("python3")
        .arg(root.join("tests/perfetto/check.py"))
        .arg(path)
        .env("PYTHONPATH", library)
        .output()
        .unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(done.status.success(), "{}", text(&done.stderr));
    Some(serde_json::from_slice(&done.stdout).unwrap())
}

fn slices<'a>(trace: &'a Value, track: &str) -> Vec<&'a Value> {
    trace["slices"].as_array().unwrap().iter().filter(|s| s["track"] == track).collect()
}

const SHORT: [&str; 6] = ["--warm-up", "0", "--iterations", "7", "--duration", "0"];

#[test]
fn a_trace_of_runs_has_host_device_layers_counters_and_arrows() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    // The braces stand for the engine's path without its extension.
    ok(&[&["bench", engine.as_str(), "--trace", "{}.pftrace"][..], &SHORT].concat());
    let Some(trace) = read(&f.name("lenet.pftrace")) else { return };
    let host = slices(&trace, "context 0: host");
    assert_eq!(host.iter().filter(|s| s["name"] == "enqueue").count(), 17);
    assert_eq!(host.iter().filter(|s| s["name"] == "copy outputs").count(), 17);
    let device = slices(&trace, "context 0: cpu");
    let runs: Vec<&&Value> = device.iter().filter(|s| s["depth"] == 0).collect();
    assert_eq!((runs.len(), trace["arrows"].as_u64()), (17, Some(17)));
    // Seven measured runs without layers, then ten with all of them and what is known of each.
    let names = ok(&["inspect", &engine, "--json"]).json()["layer_names"].as_array().unwrap().len();
    let layers: Vec<&&Value> = device.iter().filter(|s| s["depth"] == 1).collect();
    assert_eq!(layers.len(), 10 * names);
    let conv = layers.iter().find(|l| l["name"] == "/conv1/Conv + /Relu").unwrap();
    let notes = &conv["notes"];
    assert_eq!((notes["tactic"].is_string(), notes["operators"].as_str()), (true, Some("conv + relu")));
    assert!(
        notes["inputs"].as_str().unwrap().contains("f32") && notes["bytes"].as_u64() > Some(0),
        "{notes}"
    );
    let width = conv["end"].as_f64().unwrap() - conv["begin"].as_f64().unwrap();
    assert!(width > 0.0 && width <= notes["measured_ns"].as_f64().unwrap() + 1.0, "{conv}");
    let flying = trace["counters"]["runs in flight"].as_array().unwrap();
    assert_eq!((flying.len(), flying.iter().map(|v| v.as_i64().unwrap()).max()), (34, Some(1)));
    assert!(trace["counters"]["memory of contexts"][0].as_i64() > Some(0));
}

#[test]
fn contexts_that_run_at_once_have_tracks_of_their_own() {
    let f = Folder::new();
    let (engine, path) = (lenet(&f, &[]), f.name("many.pftrace"));
    ok(&[&["bench", engine.as_str(), "--trace", &path, "--contexts", "3"][..], &SHORT].concat());
    let Some(trace) = read(&path) else { return };
    for i in 0..3 {
        let runs =
            slices(&trace, &format!("context {i}: host")).iter().filter(|s| s["name"] == "enqueue").count();
        assert_eq!(runs, if i == 0 { 17 } else { 7 }, "context {i}");
    }
}

#[test]
fn bodies_of_control_flow_are_inside_of_their_step() {
    let f = Folder::new();
    let (model, path) =
        (data("control_flow/nested_loops.onnx").display().to_string(), f.name("loop.pftrace"));
    let arrays = data("control_flow/nested_loops.npz").display().to_string();
    let inputs = ["rows", "cols", "step"].map(|name| format!("{name}={arrays}:3x4/in/{name}"));
    let mut given: Vec<&str> = inputs.iter().flat_map(|i| ["--input", i.as_str()]).collect();
    given.extend(["--trace", path.as_str()]);
    ok(&[&["bench", model.as_str(), "--backend", "cpu"][..], &given, &SHORT].concat());
    let Some(trace) = read(&path) else { return };
    let device = slices(&trace, "context 0: cpu");
    let inside = device.iter().filter(|s| s["name"] == "Loop(total) / Mul(rc)");
    assert!(inside.clone().count() == 10 && inside.clone().all(|s| s["depth"] == 2), "no body");
    assert!(inside.clone().any(|s| s["notes"]["runs"] == 3), "its runs are not counted");
}

#[test]
fn a_trace_of_a_build_has_phases_passes_and_times_of_candidates() {
    let f = Folder::new();
    let path = f.name("build.pftrace");
    let model = digits("lenet_a.onnx");
    ok(&["build", &model, "-o", &f.name("e.kiln"), "--backend", "cpu", "--trace", &path]);
    let Some(trace) = read(&path) else { return };
    let phases = slices(&trace, "phases");
    let named =
        |start: &str| phases.iter().filter(|s| s["name"].as_str().unwrap().starts_with(start)).count();
    assert_eq!(named("building \""), 1);
    assert!(named("running passes") > 0 && named("fold-constants") == 1, "{} passes", named("fold"));
    let timed: Vec<&&Value> =
        phases.iter().filter(|s| s["name"].as_str().unwrap().starts_with("timing \"")).collect();
    assert!(!timed.is_empty());
    let with = timed.iter().find(|s| s["notes"]["candidates"].is_string()).unwrap();
    let notes = &with["notes"];
    let chosen = notes["chosen"].as_str().unwrap();
    assert!(notes["candidates"].as_str().unwrap().contains(&format!("{chosen}: ")), "{notes}");
    assert!(notes["chosen_ns"].as_f64() > Some(0.0) && notes["steps"].as_u64() > Some(0), "{notes}");
    let counted = trace["counters"]["kernels timed"].as_array().unwrap();
    assert!(counted.len() > timed.len() && counted.last().unwrap().as_i64() > Some(0), "{counted:?}");
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let r =
        kiln(&[&["bench", engine.as_str(), "--trace", &f.name("no/such/x.pftrace")][..], &SHORT].concat());
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("x.pftrace"), "{}", r.stderr);
    assert_eq!(kiln(&["bench", &engine, "--trace", ""]).code, 2);
}
