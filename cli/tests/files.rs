//! Files in hostile conditions: full disks, wrong paths, signals, locks, hostile names.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;
mod hostile;

use common::{Folder, command, digits, kiln, number, ok};
use kiln_ir::problem::Rng;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The arguments of a timed build of LeNet.
fn build(engine: &str, cache: &str) -> Vec<String> {
    let model = digits("lenet_a.onnx");
    ["build", &model, "-o", engine, "--backend", "cpu", "--timing-cache", cache].map(str::to_owned).into()
}

fn run(args: &[String]) -> common::Ran {
    kiln(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Number of whole lines of a cache beside its header.
fn regions(cache: &str) -> usize {
    let Ok(bytes) = std::fs::read(cache) else { return 0 };
    bytes.iter().filter(|&&b| b == b'\n').count().saturating_sub(1)
}

/// Runs the command where no file can grow beyond so many blocks of 512 bytes, as on a full disk.
fn on_a_full_disk(blocks: u32, args: &[&str]) -> (i32, String) {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let out = Command::new("sh").args(["-c", &script]).arg(command()).args(args).output().unwrap();
    (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn only(folder: &Folder, names: &[&str]) {
    let mut found: Vec<String> = std::fs::read_dir(folder.path("."))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, names);
}

#[test]
fn outputs_never_replace_devices_or_what_is_read() {
    let f = Folder::new();
    let model = f.name("m.onnx");
    std::fs::copy(digits("lenet_a.onnx"), &model).unwrap();
    let before = std::fs::read(&model).unwrap();
    for (output, why) in [
        (model.as_str(), "not an engine"),
        ("/dev/null", "a device"),
        (&f.name("no/folder/e.kiln"), "folder does not exist"),
        (&f.name("."), "a folder"),
    ] {
        // The weights are damaged: the build would fail, later and otherwise.
        let r = kiln(&["build", &model, "-o", output, "--backend", "cpu", "--locked", "--timing-cache", "x"]);
        assert!(r.code == 1 && r.stderr.contains(why), "{output}: {}", r.stderr);
        assert!(!r.stderr.contains("locked"), "found before the build: {}", r.stderr);
    }
    assert_eq!(std::fs::read(&model).unwrap(), before);
    only(&f, &["m.onnx"]);
    ok(&["build", &model, "-o", &f.name("e.kiln"), "--backend", "cpu", "--no-timing"]);
    let r = kiln(&["run", &f.name("e.kiln"), "--random-inputs", "1", "--save-outputs", &model]);
    assert!(r.code == 1 && r.stderr.contains("not an archive"), "{}", r.stderr);
    assert_eq!(std::fs::read(&model).unwrap(), before);
}

#[test]
fn a_full_disk_leaves_the_old_files() {
    let f = Folder::new();
    let (engine, cache, merged, outputs) = (f.name("e.kiln"), f.name("c"), f.name("m"), f.name("o.npz"));
    assert_eq!(run(&build(&engine, &cache)).code, 0);
    ok(&["cache", "merge", &cache, "-o", &merged]);
    ok(&["run", &engine, "--random-inputs", "1", "--save-outputs", &outputs]);
    let all = [&engine, &merged, &outputs];
    let before: Vec<Vec<u8>> = all.iter().map(|p| std::fs::read(p).unwrap()).collect();
    let (code, text) = on_a_full_disk(1, &["cache", "merge", &cache, "-o", &merged]);
    assert!(code == 1 && text.contains("too large"), "{text}");
    let (code, text) =
        on_a_full_disk(0, &["run", &engine, "--random-inputs", "2", "--save-outputs", &outputs]);
    assert!(code == 1 && text.contains("too large"), "{text}");
    let args = build(&engine, &cache);
    let (code, text) = on_a_full_disk(9, &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(code == 1 && text.contains("too large"), "{text}");
    let after: Vec<Vec<u8>> = all.iter().map(|p| std::fs::read(p).unwrap()).collect();
    assert!(before == after, "an old file was lost");
    only(&f, &["c", "c.device.lock", "c.lock", "e.kiln", "m", "m.lock", "o.npz"]);
}

#[test]
fn caches_that_cannot_be_used_cost_no_engine() {
    let f = Folder::new();
    let (engine, cache) = (f.name("e.kiln"), f.name("c"));
    for (text, warns) in [("", false), ("{\"kiln_timing_cache\":1}\n{\"key\":\"k", true), ("no cache", true)]
    {
        std::fs::write(&cache, text).unwrap();
        let r = run(&build(&engine, &cache));
        assert!(r.code == 0 && r.stderr.contains("timing cache") == warns, "{text:?}: {}", r.stderr);
        std::fs::remove_file(&engine).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&cache).unwrap(), "no cache", "a file of another kind stays");
    for path in [f.name("no/folder/c"), f.name("."), "/dev/null".into()] {
        let r = run(&build(&engine, &path));
        assert!(r.code == 0 && r.stderr.contains("not saved"), "{path}: {}", r.stderr);
        std::fs::remove_file(&engine).unwrap();
    }
}

#[test]
fn a_lock_that_another_process_holds_is_waited_for_and_then_passed() {
    let f = Folder::new();
    let (engine, cache) = (f.name("e.kiln"), f.name("c"));
    let held = kiln_files::lock(f.path("c").as_path(), Duration::ZERO, || ()).unwrap();
    let start = Instant::now();
    let r = run(&build(&engine, &cache));
    assert!(r.code == 0 && r.stderr.contains("waiting for another process"), "{}", r.stderr);
    assert!(r.stderr.contains("which the next build merges"), "{}", r.stderr);
    assert!(start.elapsed() < Duration::from_secs(60));
    drop(held);
    let j = serde_json::from_str::<serde_json::Value>(
        &run(&[build(&engine, &cache), vec!["--json".into()]].concat()).stdout,
    );
    assert_eq!(j.unwrap()["tactics_timed"], 0, "the times were not lost");
    only(&f, &["c", "c.device.lock", "c.lock", "e.kiln"]);
}

/// Times are saved as they are taken: what a killed build had timed, the next one does not time again. Every other signal
/// comes after a number of saved times, the others at any moment of the build. `KILN_SIGNALS` (8) and `KILN_SIGNALS_SEED` (1)
/// set how many there are and which.
#[test]
fn signals_lose_no_time_and_no_old_file() {
    let f = Folder::new();
    let (engine, cache) = (f.name("e.kiln"), f.name("c"));
    let start = Instant::now();
    assert_eq!(run(&build(&engine, &cache)).code, 0);
    let (whole, all) = (start.elapsed(), regions(&cache));
    let old = std::fs::read(&engine).unwrap();
    assert!(all >= 3, "{all} regions");
    let (moments, seed) = (number("KILN_SIGNALS").unwrap_or(8), number("KILN_SIGNALS_SEED").unwrap_or(1));
    let mut stopped = 0;
    for i in seed..seed + moments {
        let mut rng = Rng::new(i);
        let (name, code) = [("INT", 130), ("TERM", 143), ("KILL", -1)][i as usize % 3];
        std::fs::remove_file(&cache).unwrap_or_default();
        std::fs::write(&engine, &old).unwrap();
        let mut child = Command::new(command())
            .args(build(&engine, &cache))
            .env_remove("KILN_PLUGIN_PATH")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let wanted = 1 + i as usize % all.saturating_sub(2).max(1);
        let moment = Instant::now() + whole.mul_f64(rng.float(0.0, 1.1));
        let early = || if i % 2 == 0 { regions(&cache) < wanted } else { Instant::now() < moment };
        while early() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let kept = regions(&cache);
        Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        if status.code() != Some(0) {
            stopped += 1;
            // A signal that comes before the handler is installed ends the process by itself.
            let found = status.code().or(status.signal().map(|s| if s == 9 { -1 } else { 128 + s }));
            assert_eq!(found, Some(code), "seed {i}, {name}");
        }
        // The old engine or, where the signal came behind the last step, the new one.
        if std::fs::read(&engine).unwrap() != old {
            let r = kiln(&["run", &engine, "--random-inputs", "1"]);
            assert_eq!(r.code, 0, "seed {i}, {name}: no engine is left: {}", r.stderr);
        }
        let left = if kept > 0 { saved(&cache) } else { 0 };
        assert!(left >= kept, "seed {i}, {name}: {left} of {kept} regions");
    }
    println!("{moments} moments, {stopped} builds stopped");
    assert!(stopped > 0, "no signal came in time");
    assert_eq!(run(&build(&engine, &cache)).code, 0);
    only(&f, &["c", "c.device.lock", "c.lock", "e.kiln"]);
}

/// The exit code of a command that is interrupted once `begun`, and how long it took from then on.
fn interrupted(args: &[&str], begun: impl Fn() -> bool) -> (Option<i32>, Duration) {
    let mut command = Command::new(command());
    let quiet = command.args(args).env_remove("KILN_PLUGIN_PATH").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().unwrap();
    while !begun() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    (child.wait().unwrap().code(), start.elapsed())
}

#[test]
fn signals_end_refits_and_comparisons() {
    let f = Folder::new();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/topologies/resnet50.onnx");
    let (engine, new) = (f.name("e.kiln"), f.name("new.kiln"));
    ok(&["build", model, "-o", &engine, "--backend", "cpu", "--no-timing", "--no-search", "--refit"]);
    // The place of the new engine is reserved before the old one is read.
    let begun = || std::fs::read_dir(f.path("")).unwrap().count() > 1;
    assert_eq!(interrupted(&["refit", &engine, "--weights", model, "-o", &new], begun).0, Some(130));
    only(&f, &["e.kiln"]);
    // Products of 2^30 terms, which the oracle computes for a minute each.
    let text = "graph \"slow\" { input %x: f32[1024,1024] %a = matmul(%x, %x) %b = matmul(%a, %x) %c = matmul(%b, %x) output %c }";
    std::fs::write(f.path("slow.txt"), text).unwrap();
    let args = ["compare", &f.name("slow.txt"), "--backends", "reference,cpu", "--random-inputs", "1"];
    let moment = Instant::now() + Duration::from_secs(2);
    let (code, took) = interrupted(&args, || Instant::now() > moment);
    assert!(code == Some(130) && took < Duration::from_secs(10), "{code:?} after {took:?}");
}

/// Number of regions that the command finds in a cache.
fn saved(cache: &str) -> usize {
    let shown = ok(&["cache", "show", cache, "--json"]).json();
    let keys: std::collections::BTreeSet<&str> =
        shown.as_array().unwrap().iter().filter_map(|l| l["key"].as_str()).collect();
    keys.len()
}

#[test]
fn pipes_do_not_block() {
    let f = Folder::new();
    let (engine, pipe) = (f.name("e.kiln"), f.name("pipe"));
    ok(&["build", &digits("lenet_a.onnx"), "-o", &engine, "--backend", "cpu", "--no-timing"]);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for args in [
        &["run", &pipe, "--random-inputs", "1"][..],
        &["build", &pipe, "-o", &f.name("n.kiln"), "--backend", "cpu"],
        &["inspect", &pipe],
        &["cache", "show", &pipe],
        &["run", &engine, "--inputs", &pipe],
        &["run", &engine, "--input", &format!("input={pipe}")],
        &["run", &engine, "--random-inputs", "1", "--expect", &pipe],
    ] {
        let r = kiln(args);
        assert!(r.code == 1 && r.stderr.contains("a pipe"), "{args:?}: {}", r.stderr);
    }
}

/// An archive that would inflate to 64 MiB beside the input, or in its place.
#[test]
fn archives_inflate_only_what_fits() {
    let f = Folder::new();
    let (engine, inputs) = (f.name("e.kiln"), f.name("i.npz"));
    ok(&["build", &digits("lenet_a.onnx"), "-o", &engine, "--backend", "cpu", "--no-timing"]);
    let zeros = kiln_npz::Array::new(kiln_npz::NpyType::U8, vec![64 << 20], vec![0; 64 << 20]).unwrap();
    let image = kiln_npz::Array::from_f32(&[1, 1, 28, 28], &[0.5; 784]).unwrap();
    let write = |arrays: &[(&str, &kiln_npz::Array)]| {
        let all = arrays.iter().map(|(n, a)| ((*n).to_owned(), (*a).clone())).collect();
        kiln_npz::write_npz(&inputs, &all, kiln_npz::Compression::Deflated).unwrap();
    };
    let limited = ["run", &engine, "--inputs", &inputs, "--memory-limit", "16M"];
    write(&[("a\u{1b}[2J", &zeros), ("input", &image)]);
    let r = ok(&limited);
    assert!(r.stderr.contains("a\\u{1b}[2J; not used") && !r.stderr.contains('\u{1b}'), "{}", r.stderr);
    write(&[("input", &zeros)]);
    let r = kiln(&limited);
    assert!(r.code == 1 && r.stderr.contains("input"), "{}", r.stderr);
}

#[test]
fn the_memory_limit_is_obeyed() {
    let f = Folder::new();
    let model = digits("lenet_a.onnx");
    let mut args = vec!["run", &model, "--backend", "cpu", "--no-timing", "--random-inputs", "1"];
    args.extend(["--shapes", "input:20000x1x28x28"]);
    for limit in ["8K", "64M", "400M"] {
        let r = kiln(&[&args[..], &["--memory-limit", limit]].concat());
        assert_eq!(r.code, 1, "{limit}: {}", r.stderr);
        assert!(r.stderr.contains("limit") || r.stderr.contains("at most"), "{limit}: {}", r.stderr);
    }
    let r = kiln(&["inspect", &f.name("none"), "--memory-limit", "much"]);
    assert!(r.code == 2 && r.stderr.contains("512M"), "{}", r.stderr);
}

/// If the system makes no threads, work is done on the only one.
#[test]
fn no_threads_are_no_failure() {
    let f = Folder::new();
    let engine = f.name("e.kiln");
    ok(&["build", &digits("lenet_a.onnx"), "-o", &engine, "--backend", "cpu", "--no-timing"]);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(f.path("."), open).unwrap();
    // Limits of processes hold for other users than root; only root can become one.
    let limited = |args: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid", "54321", "--clear-groups", "prlimit", "--nproc=1"])
            .arg(command())
            .args(args)
            .env_remove("KILN_PLUGIN_PATH")
            .output()
    };
    match limited(&["--version"]) {
        Ok(r) if r.status.success() => {}
        _ => return println!("skipped: wants setpriv, prlimit and to be root"),
    }
    let model = digits("lenet_a.onnx");
    for args in [
        &["run", &engine, "--random-inputs", "1"][..],
        &["run", &model, "--backend", "cpu", "--random-inputs", "1"],
    ] {
        let r = limited(args).unwrap();
        let text = String::from_utf8_lossy(&r.stderr);
        assert!(r.status.success() && !text.contains("panicked"), "{args:?}: {text}");
    }
}
