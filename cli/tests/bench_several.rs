//! `kiln bench` of several engines in one process.

mod common;

use common::{Folder, command, kiln, lenet, ok};
use kiln_npz::{Array, Compression, NpyType, write_npz};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};

#[test]
fn bench_measures_several_engines_each_with_files_of_its_own() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let (first, second) = (f.name("first.kiln"), f.name("second.kiln"));
    std::fs::copy(&engine, &first).unwrap();
    std::fs::copy(&engine, &second).unwrap();
    let inputs = |name: &str, value: u8| {
        let bytes: Vec<u8> =
            (0..784_u32).flat_map(|i| (f32::from(value) * (i % 7) as f32).to_le_bytes()).collect();
        let array = Array::new(NpyType::F32, vec![1, 1, 28, 28], bytes).unwrap();
        write_npz(f.name(name), &BTreeMap::from([("input".to_owned(), array)]), Compression::Stored).unwrap();
    };
    inputs("first.in.npz", 1);
    inputs("second.in.npz", 2);
    let missing = f.name("missing.kiln");
    let r = kiln(&[
        "bench",
        &first,
        &missing,
        &second,
        "--inputs",
        "{}.in.npz",
        "--save-outputs",
        "{}.out.npz",
        "--warm-up",
        "1",
        "--iterations",
        "1",
        "--duration",
        "0",
        "--json",
    ]);
    assert_eq!(r.code, 1, "{}", r.stderr);
    assert!(r.stderr.contains("1 of 3 could not be measured"), "{}", r.stderr);
    let rows: Vec<serde_json::Value> = r.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let paths: Vec<&str> = rows.iter().filter_map(|r| r["path"].as_str()).collect();
    assert_eq!(paths, [&first, &missing, &second]);
    assert!(rows[1]["error"].as_str().unwrap().contains("missing.kiln"), "{}", rows[1]);
    assert!(rows[0]["latency_ns"]["p50"].as_f64().unwrap() > 0.0);
    let own = |of: &str| std::fs::read(f.name(&format!("{of}.out.npz"))).unwrap();
    assert_ne!(own("first"), own("second"));
    for of in ["first", "second"] {
        let (given, wanted) = (f.name(&format!("{of}.in.npz")), f.name(&format!("{of}.out.npz")));
        ok(&["run", &engine, "--inputs", &given, "--expect", &wanted]);
    }
}

#[test]
fn bench_reads_paths_as_they_come() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let mut child = Command::new(command())
        .args(["bench", "-", "--warm-up", "1", "--iterations", "1", "--duration", "0", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut paths = child.stdin.take().unwrap();
    for _ in 0..2 {
        writeln!(paths, "{engine}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let row: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(row["path"], engine.as_str());
    }
    drop(paths);
    assert!(child.wait().unwrap().success());
}

#[test]
fn layers_have_the_work_that_their_shapes_tell() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let limits = ["--warm-up", "1", "--iterations", "1", "--duration", "0", "--shapes", "input:1x1x28x28"];
    let ran = |more: &[&str]| ok(&[&["bench", engine.as_str()][..], &limits, more].concat());
    let j = ran(&["--json", "--ceilings", "0.5,2"]).json();
    let layers = j["layers"].as_array().unwrap();
    let known: Vec<&serde_json::Value> = layers.iter().filter(|l| l["bytes"].is_u64()).collect();
    assert!(!known.is_empty(), "{j}");
    for l in known {
        let n = |k: &str| l[k].as_f64().unwrap();
        let tera = |k: &str| n(k) / n("median_ns") / 1e3;
        assert!((tera("bytes") / n("terabytes_per_s") - 1.0).abs() < 1e-9 && n("bytes") > 0.0, "{l}");
        let share = 100.0 * (tera("bytes") / 0.5).max(tera("operations") / 2.0);
        assert!((share / n("roofline_percent") - 1.0).abs() < 1e-9, "{l}");
    }
    assert!(j["layers"].as_array().unwrap().iter().any(|l| l["operations"].as_u64() > Some(0)), "{j}");
    assert!(ran(&["--json"]).json()["layers"][0]["roofline_percent"].is_null());
    let shown = ran(&["--profile"]).stdout;
    assert!(shown.contains("TFLOP/s") && !shown.contains("of roofline"), "{shown}");
    assert!(ran(&["--profile", "--ceilings", "0.5,2"]).stdout.contains("of roofline"));
    let bad = [&["bench", engine.as_str(), "--ceilings", "4,0"][..], &limits].concat();
    assert_eq!(kiln(&bad).code, 2);
}
