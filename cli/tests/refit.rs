//! `kiln refit`: weights of an engine file.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Folder, digits, kiln, lenet, ok};

/// Logits of an engine for the first test images.
fn logits(f: &Folder, engine: &str) -> Vec<u8> {
    let saved = f.name("out.npz");
    ok(&["run", engine, "--random-inputs", "7", "--save-outputs", &saved]);
    std::fs::read(saved).unwrap()
}

#[test]
fn weights_come_from_archives_and_models_and_go_into_another_file() {
    let f = Folder::new();
    let build = |model: &str, name: &str| {
        let (model, engine) = (digits(model), f.name(name));
        ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", "--refit"]);
        engine
    };
    let (a, b) = (build("lenet_a.onnx", "a.kiln"), build("lenet_b.onnx", "b.kiln"));
    let refitted = f.name("refitted.kiln");
    for weights in ["lenet_b_weights.npz", "lenet_b.onnx"] {
        let j = ok(&["refit", &a, "--weights", &digits(weights), "-o", &refitted, "--json"]).json();
        assert_eq!((&j["replaced"], j["set"].as_array().unwrap().len()), (&8.into(), 8), "{weights}");
        assert_eq!(logits(&f, &refitted), logits(&f, &b), "{weights}");
    }
    let back = f.name("back.kiln");
    ok(&["refit", &refitted, "--weights", &digits("lenet_a_weights.npz"), "-o", &back]);
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&a).unwrap(), "A, B, A is another file");
    // A file without any of the names is refused, and nothing is written.
    let nothing = f.name("nothing.kiln");
    let r = kiln(&["refit", &a, "--weights", &b, "-o", &nothing]);
    assert!(
        r.code == 1 && r.stderr.contains("does not store its network") && !r.stderr.contains("portable"),
        "{}",
        r.stderr
    );
    let r = kiln(&["refit", &a, "--weights", &digits("digits_test.npz"), "-o", &nothing]);
    assert!(r.code == 1 && r.stderr.contains("none of its 3 tensors"), "{}", r.stderr);
    assert!(!f.path("nothing.kiln").exists());
    let r = kiln(&[
        "refit",
        &a,
        "--weights",
        &digits("lenet_b_weights.npz"),
        "-o",
        &digits("lenet_b_weights.npz"),
    ]);
    assert_eq!(r.code, 1, "{}", r.stderr);
}

/// Backends of the command that have a device here. An emulated GPU is one of the cuda backend.
fn with_devices() -> Vec<String> {
    let all = ok(&["backends", "--json"]).json();
    let usable = |b: &&serde_json::Value| b["devices"].as_array().is_some_and(|t| !t.is_empty());
    let names = all["backends"].as_array().unwrap().iter().filter(usable).filter_map(|b| b["name"].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn engines_are_refitted_on_their_devices() {
    let f = Folder::new();
    let found = with_devices();
    assert!(found.iter().any(|b| b == "cpu"), "{found:?}");
    assert!(
        std::env::var_os("KILN_REQUIRE_WGPU").is_none() || found.iter().any(|b| b == "wgpu"),
        "{found:?}"
    );
    for backend in found {
        let build = |model: &str, name: &str| {
            let (model, engine) = (digits(model), f.name(&format!("{backend}-{name}")));
            ok(&["build", &model, "-o", &engine, "--backend", &backend, "--no-timing", "--refit"]);
            engine
        };
        let (a, b) = (build("lenet_a.onnx", "a.kiln"), build("lenet_b.onnx", "b.kiln"));
        let weights = digits("lenet_b_weights.npz");
        let (there, here) = (f.name("there.kiln"), f.name("here.kiln"));
        let refit = |to: &str, more: &[&str]| {
            kiln(&[&["refit", &a, "--weights", &weights, "-o", to, "--json"], more].concat())
        };
        let alone = refit(&here, &[]).json();
        assert!(alone["replaced"] == 8 && alone["on_device"].is_null(), "{backend}: {alone}");
        let r = refit(&there, &["--on-device"]);
        assert_eq!(r.code, 0, "{backend}: {}", r.stderr);
        let j = r.json();
        assert_eq!((&j["on_device"]["backend"], &j["replaced"]), (&backend.as_str().into(), &8.into()));
        assert!(j["on_device"]["loaded_ms"].as_f64().unwrap() > 0.0, "{backend}: {j}");
        assert!(std::fs::read(&there).unwrap() == std::fs::read(&here).unwrap(), "{backend}: other bytes");
        assert_eq!(logits(&f, &there), logits(&f, &b), "{backend}");
        // A device that is not there is an error, and nothing is written.
        let nothing = f.name("nothing.kiln");
        let r = refit(&nothing, &["--on-device", "--device", "77"]);
        assert!(r.code == 1 && r.stderr.contains("77"), "{backend}: {}", r.stderr);
        assert_eq!(refit(&nothing, &["--device", "0"]).code, 2, "{backend}");
        assert!(!f.path("nothing.kiln").exists());
    }
    // Stripped engines are filled on their device as well.
    let (model, stripped, whole) = (digits("lenet_a_bn.onnx"), f.name("stripped.kiln"), f.name("whole.kiln"));
    ok(&["build", &model, "-o", &stripped, "--backend", "cpu", "--no-timing", "--strip-weights"]);
    ok(&["build", &model, "-o", &whole, "--backend", "cpu", "--no-timing", "--refit=identical"]);
    let filled = f.name("filled.kiln");
    let text = ok(&["refit", &stripped, "--weights", &model, "-o", &filled, "--on-device"]).stdout;
    assert!(text.contains("refitted on cpu") && text.contains("loaded"), "{text}");
    assert!(std::fs::read(&filled).unwrap() == std::fs::read(&whole).unwrap(), "filled is not whole");
}

#[test]
fn lists_have_names_types_layers_and_roles() {
    let f = Folder::new();
    let engine = lenet(&f, &["--refit", "--no-timing"]);
    let j = ok(&["refit", &engine, "--list", "--json"]).json();
    let first = j.as_array().unwrap().iter().find(|w| w["name"] == "conv1.weight").unwrap();
    assert_eq!(first["shape"], serde_json::json!([20, 1, 5, 5]));
    assert_eq!(first["uses"], serde_json::json!([{"layer": "/conv1/Conv", "role": "kernel"}]));
    assert!(first["fixed"].is_null() && first["missing"] == false);
    let text = ok(&["refit", &engine, "--list"]).stdout;
    assert!(text.contains("/conv2/Conv (bias)"), "{text}");
}

#[test]
fn dynamic_ranges_are_listed_and_set() {
    let f = Folder::new();
    let data = f.name("data.npz");
    let mut arrays = kiln_npz::read_npz(std::path::Path::new(&digits("digits_calib.npz"))).unwrap();
    let images = [("input".to_owned(), arrays.remove("images").unwrap())];
    kiln_npz::write_npz(&data, &images.into(), kiln_npz::Compression::Deflated).unwrap();
    let narrow = ["--no-timing", "--refit", "--int8", "--narrowing", "everywhere", "--calibrate", &data];
    let engine = lenet(&f, &narrow);
    let listed = |engine: &str| -> Vec<(String, f64, f64)> {
        let all = ok(&["refit", engine, "--list", "--json"]).json();
        let ranges = all.as_array().unwrap().iter().filter_map(|r| {
            Some((r["range_of"].as_str()?.to_owned(), r["least"].as_f64()?, r["greatest"].as_f64()?))
        });
        ranges.collect()
    };
    let before = listed(&engine);
    assert!(before.len() >= 3, "{before:?}");
    let (tensor, least, greatest) = &before[0];
    let set = |least: f64, greatest: f64, to: &str| {
        let range = format!("{tensor}:{least}:{greatest}");
        ok(&["refit", &engine, "--dynamic-range", &range, "-o", to]);
    };
    let (same, other) = (f.name("same.kiln"), f.name("other.kiln"));
    set(*least, *greatest, &same);
    assert!(std::fs::read(&same).unwrap() == std::fs::read(&engine).unwrap(), "equal ranges change nothing");
    set(least / 4.0, greatest / 4.0, &other);
    assert_eq!(listed(&other)[0], (tensor.clone(), least / 4.0, greatest / 4.0));
    assert_eq!(listed(&other)[1..], before[1..]);
    assert_ne!(logits(&f, &other), logits(&f, &engine));
    let text = ok(&["refit", &engine, "--list"]).stdout;
    assert!(text.contains("greatest") && text.contains(tensor.as_str()), "{text}");
    for (range, code) in [("nothing:0:1", 1), ("x", 2), ("x:1", 2), (":0:1", 2), ("x:0:inf", 2)] {
        let r = kiln(&["refit", &engine, "--dynamic-range", range, "-o", &other]);
        assert_eq!(r.code, code, "{range}: {}", r.stderr);
    }
}

#[test]
fn engines_without_refit_are_smaller_and_refused() {
    let f = Folder::new();
    let engine = lenet(&f, &["--no-timing"]);
    assert_eq!(ok(&["inspect", &engine, "--json"]).json()["refittable"], false);
    let r = kiln(&["refit", &engine, "--list"]);
    assert!(r.code == 1 && r.stderr.contains("without refit"), "{}", r.stderr);
    let only = lenet(&f, &["--no-timing", "--refit-weights", "conv1.weight,conv1.bias"]);
    let j = ok(&["refit", &only, "--list", "--json"]).json();
    let names: Vec<&str> = j.as_array().unwrap().iter().filter_map(|w| w["name"].as_str()).collect();
    assert_eq!(names, ["conv1.bias", "conv1.weight"]);
}

#[test]
fn stripped_engines_are_filled() {
    let f = Folder::new();
    let model = digits("lenet_a_bn.onnx");
    let built = |name: &str, option: &str| {
        let engine = f.name(name);
        ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", option]);
        engine
    };
    let (whole, stripped) =
        (built("whole.kiln", "--refit=identical"), built("stripped.kiln", "--strip-weights"));
    let size = |p: &str| std::fs::metadata(p).unwrap().len();
    assert!(size(&stripped) * 4 < size(&whole), "{} of {} bytes", size(&stripped), size(&whole));
    let j = ok(&["inspect", &stripped, "--json"]).json();
    assert!(j["refit_identical"] == true && j["absent_weights"].as_array().unwrap().len() >= 16);
    let r = kiln(&["run", &stripped, "--random-inputs", "1"]);
    assert!(r.code == 1 && r.stderr.contains("stripped"), "{}", r.stderr);
    let filled = f.name("filled.kiln");
    let r = kiln(&["refit", &stripped, "--weights", &digits("lenet_b_bn_weights.npz"), "-o", &filled]);
    assert!(r.code == 1 && r.stderr.contains("identical weights only"), "{}", r.stderr);
    ok(&["refit", &stripped, "--weights", &model, "-o", &filled]);
    assert!(std::fs::read(&filled).unwrap() == std::fs::read(&whole).unwrap(), "filled is not whole");
}

#[test]
fn engines_run_with_external_weights_and_budgets() {
    let f = Folder::new();
    let model = digits("lenet_a_bn.onnx");
    let stripped = f.name("stripped.kiln");
    ok(&["build", &model, "-o", &stripped, "--backend", "cpu", "--no-timing", "--strip-weights"]);
    let whole = f.name("whole.kiln");
    ok(&["build", &model, "-o", &whole, "--backend", "cpu", "--no-timing", "--refit=identical"]);
    let saved = f.name("out.npz");
    let weights = ["--external-weights", &model];
    let run = |engine: &str, more: &[&str]| {
        kiln(&[&["run", engine, "--random-inputs", "7", "--save-outputs", &saved], more].concat())
    };
    let filled = run(&stripped, &weights);
    assert_eq!(filled.code, 0, "{}", filled.stderr);
    assert_eq!(std::fs::read(&saved).unwrap(), logits(&f, &whole));
    let r = run(&stripped, &["--external-weights", &digits("lenet_b_bn_weights.npz")]);
    assert!(r.code == 1 && r.stderr.contains("identical weights only"), "{}", r.stderr);
    // Weights of this backend are in host memory: it refuses to stream them.
    let r = run(&whole, &["--weight-budget", "64K"]);
    assert!(r.code == 1 && r.stderr.contains("does not stream weights"), "{}", r.stderr);
    assert_eq!(run(&whole, &["--weight-budget", "much"]).code, 2);
}
