//! The choice of kernels by the command: timing caches that are edited, tactics that are recorded, replayed and forced.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Folder, kiln, lenet, ok};
use serde_json::Value;

/// The step of the second convolution of an engine that is built with these options.
fn conv(f: &Folder, more: &[&str]) -> Value {
    step(f, "/conv2/Conv", more)
}

/// The step of a layer of an engine that is built with these options.
fn step(f: &Folder, layer: &str, more: &[&str]) -> Value {
    let mut args = vec!["--json"];
    args.extend(more);
    let (model, engine) = (common::digits("lenet_a.onnx"), f.name("lenet.kiln"));
    let mut all = vec!["build", &model, "-o", &engine, "--backend", "cpu"];
    all.extend(args);
    let report = ok(&all).json();
    let layers = report["layers"].as_array().unwrap();
    layers.iter().find(|l| l["name"].as_str().unwrap().contains(layer)).unwrap().clone()
}

/// Candidates of a region, the winner first.
fn candidates(cache: &str, key: &str) -> Vec<Value> {
    ok(&["cache", "show", cache, "--key", key, "--json"]).json().as_array().unwrap().clone()
}

#[test]
fn entries_of_a_cache_are_pinned_and_edited() {
    let f = Folder::new();
    let cache = f.name("times.jsonl");
    conv(&f, &["--timing-cache", &cache]);
    let model = common::digits("lenet_a.onnx");
    let warm =
        ["build", &model, "-o", &f.name("e.kiln"), "--backend", "cpu", "--timing-cache", &cache, "--json"];
    let report = ok(&warm).json();
    let timed = report["layers"].as_array().unwrap().iter().find(|l| l["candidates"].as_u64() > Some(1));
    let first = timed.expect("a layer with several candidates").clone();
    let layer = first["name"].as_str().unwrap().to_owned();
    let conv = |f: &Folder, more: &[&str]| step(f, &layer, more);
    let (key, tactic) = (first["cache_key"].as_str().unwrap(), first["tactic"].as_str().unwrap());
    let all = candidates(&cache, &key[..12]);
    assert_eq!(all[0]["tactic"], tactic);
    let slower = all[1]["tactic"].as_str().unwrap();
    let shown = ok(&["cache", "pin", &cache, "--key", key, "--tactic", slower, "--json"]).json();
    assert!(shown[0]["tactic"] == slower && shown[0]["pinned"] == true, "{shown}");
    let locked = ["--timing-cache", &cache, "--locked"];
    assert_eq!(conv(&f, &locked)["tactic"], slower);
    // A build without the cache chooses by its own times; that with the cache adds none.
    let before = std::fs::read(&cache).unwrap();
    assert!(conv(&f, &["--no-timing-cache"])["cache_key"] != first["cache_key"]);
    assert_eq!(std::fs::read(&cache).unwrap(), before);
    ok(&["cache", "pin", &cache, "--key", key]);
    assert_eq!(conv(&f, &locked)["tactic"], tactic);
    ok(&["cache", "edit", &cache, "--key", key, "--tactic", slower, "--samples", "0.5,1,2"]);
    let edited = candidates(&cache, key);
    assert_eq!((&edited[0]["tactic"], &edited[0]["median_ns"]), (&slower.into(), &1.0.into()));
    assert_eq!(conv(&f, &locked)["tactic"], slower);
    ok(&["cache", "edit", &cache, "--key", key, "--tactic", slower, "--remove"]);
    assert!(candidates(&cache, key).iter().all(|c| c["tactic"] != slower));
    ok(&["cache", "edit", &cache, "--key", key, "--remove"]);
    for (args, wanted) in [
        (vec!["pin", &cache, "--key", key, "--tactic", tactic], "no key begins with"),
        (vec!["edit", &cache, "--key", "", "--tactic", tactic, "--samples", "1"], "keys begin with"),
    ] {
        let r = kiln(&[&["cache"], &args[..]].concat());
        assert!(r.code == 1 && r.stderr.contains(wanted), "{args:?}: {}", r.stderr);
        assert!(!r.stderr.contains("cannot access"), "the file is readable: {}", r.stderr);
    }
    assert_eq!(kiln(&["cache", "edit", &cache, "--key", key, "--tactic", tactic]).code, 2);
}

#[test]
fn merging_into_a_cache_waits_for_those_that_hold_it() {
    let f = Folder::new();
    let (cache, other) = (f.name("times.jsonl"), f.name("other.jsonl"));
    conv(&f, &["--timing-cache", &cache]);
    std::fs::copy(&cache, &other).unwrap();
    let held = kiln_files::lock(&f.path("times.jsonl"), std::time::Duration::ZERO, || ()).unwrap().unwrap();
    let mut child = std::process::Command::new(common::command())
        .args(["cache", "merge", &cache, &other, "-o", &cache])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "the merge did not wait for the lock");
    drop(held);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read(&cache).unwrap(), std::fs::read(&other).unwrap());
}

#[test]
fn recorded_tactics_are_replayed_to_the_same_bytes() {
    let f = Folder::new();
    let record = f.name("tactics.jsonl");
    let built = std::fs::read(lenet(&f, &["--record-tactics", &record])).unwrap();
    let report = |f: &Folder, more: &[&str]| lenet(f, &[&["--replay-tactics", &record], more].concat());
    assert!(std::fs::read(report(&f, &[])).unwrap() == built, "a replay has other bytes");
    // A replay takes over how much the recorded build tried.
    for effort in [
        "--optimization-level=0",
        "--optimization-level=2",
        "--optimization-level=5",
        "--max-tactics=1",
        "--no-search",
        "--no-timing-cache",
        "--mem-pool-size=workspace:1",
    ] {
        let built = std::fs::read(lenet(&f, &["--record-tactics", &record, effort])).unwrap();
        assert!(std::fs::read(report(&f, &[])).unwrap() == built, "{effort}: a replay has other bytes");
    }
    let again = f.name("again.jsonl");
    report(&f, &["--record-tactics", &again]);
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&record).unwrap(), "a replay is recorded alike");
    let model = common::digits("lenet_a_bn.onnx");
    let r =
        kiln(&["build", &model, "-o", &f.name("bn.kiln"), "--backend", "cpu", "--replay-tactics", &model]);
    assert!(r.code == 1 && r.stderr.contains("not the header of recorded tactics"), "{}", r.stderr);
    let r =
        kiln(&["build", &model, "-o", &f.name("bn.kiln"), "--backend", "cpu", "--record-tactics", &model]);
    assert_eq!(r.code, 1, "a model is no place for a record: {}", r.stderr);
    assert!(!f.path("bn.kiln").exists(), "the place of the record is looked at before the build");
    let own = f.name("own.kiln");
    let r = kiln(&["build", &model, "-o", &own, "--backend", "cpu", "--record-tactics", &own]);
    assert!(
        r.code == 1 && r.stderr.contains("cannot be the engine and its recorded tactics"),
        "{}",
        r.stderr
    );
    assert!(std::fs::metadata(&model).unwrap().len() > 100_000);
}

/// Times that a device took decide alike where it is not: the backend is there, and no driver.
#[test]
fn times_of_a_device_are_replayed_without_it() {
    let f = Folder::new();
    let (model, engine, again, record) =
        (common::digits("lenet_a.onnx"), f.name("e.kiln"), f.name("again.kiln"), f.name("tactics.jsonl"));
    let shape = ["--shapes", "input:1x1x28x28"];
    let build =
        ["build", &model, "-o", &engine, "--backend", "wgpu", "--max-tactics", "2", "--timing-samples", "1"];
    let r = kiln(&[&build[..], &shape, &["--record-tactics", &record, "--json"]].concat());
    if r.code != 0 && std::env::var_os("KILN_REQUIRE_WGPU").is_none() {
        return eprintln!("skipped: {}", r.stderr);
    }
    assert!(r.json()["tactics_timed"].as_u64() > Some(2), "{}{}", r.stdout, r.stderr);
    let elsewhere = |args: &[&str]| {
        let mut command = std::process::Command::new(common::command());
        for drivers in ["VK_ICD_FILENAMES", "VK_DRIVER_FILES"] {
            command.env(drivers, "/nonexistent");
        }
        command.args(args).env_remove("KILN_PLUGIN_PATH").output().unwrap()
    };
    let refused = elsewhere(&[&build[..], &shape].concat());
    assert_eq!(refused.status.code(), Some(1), "a device is there");
    let replay = ["build", &model, "-o", &again, "--target", &engine, "--replay-tactics", &record];
    let done = elsewhere(&[&replay[..], &shape].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(std::fs::read(&again).unwrap() == std::fs::read(&engine).unwrap(), "a replay has other bytes");
}

#[test]
fn tactics_are_forced_and_forbidden_by_layer() {
    let f = Folder::new();
    let own = conv(&f, &["--no-timing"])["tactic"].as_str().unwrap().to_owned();
    let other = conv(&f, &["--no-timing", "--tactics", &format!("/conv2/Conv=!{own}")]);
    let other = other["tactic"].as_str().unwrap();
    assert_ne!(own, other);
    let rules = format!("/conv2/Conv={other},/conv1/Conv=!nothing");
    let forced = conv(&f, &["--no-timing", "--tactics", &rules]);
    assert_eq!((forced["tactic"].as_str().unwrap(), forced["candidates"].as_u64()), (other, Some(1)));
    assert!(forced["inputs"][0]["strides"].is_array() && forced["deterministic"] == true, "{forced}");
    let model = common::digits("lenet_a.onnx");
    let r = kiln(&["build", &model, "-o", &f.name("e.kiln"), "--backend", "cpu", "--tactics", "*=nothing"]);
    assert!(r.code == 1 && r.stderr.contains("forces nothing"), "{}", r.stderr);
    assert_eq!(kiln(&["build", &model, "-o", &f.name("e.kiln"), "--tactics", "conv"]).code, 2);
    conv(&f, &["--no-timing", "--deterministic"]);
    let lost =
        ["build", &model, "-o", &f.name("e.kiln"), "--backend", "cpu", "--tactics", "conv9=fast,*=!none"];
    let r = ok(&lost);
    assert!(r.stderr.contains("\"conv9=fast\"") && !r.stderr.contains("\"*="), "{}", r.stderr);
}
