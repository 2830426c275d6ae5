//! `kiln build`, `inspect` and `cache`.

mod common;

use common::{Folder, digits, kiln, lenet, ok};

#[test]
fn equal_builds_have_equal_bytes_cold_warm_and_locked() {
    let f = Folder::new();
    let cache = f.name("times.jsonl");
    let plain = std::fs::read(lenet(&f, &[])).unwrap();
    let cold = std::fs::read(lenet(&f, &["--timing-cache", &cache])).unwrap();
    let times = std::fs::read(&cache).unwrap();
    let warm = std::fs::read(lenet(&f, &["--timing-cache", &cache])).unwrap();
    let locked = std::fs::read(lenet(&f, &["--timing-cache", &cache, "--locked"])).unwrap();
    assert!(cold == warm && warm == locked, "the engine differs between cold, warm and locked builds");
    assert_eq!(std::fs::read(&cache).unwrap(), times, "a warm build changed the cache");
    assert_eq!(&plain[..8], b"KILNPLAN");
}

#[test]
fn the_report_says_which_kernel_runs_where() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let r = ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--no-fuse", "--no-search", "--json"]);
    assert_eq!(r.stderr.matches("taken as 1").count(), 1, "{}", r.stderr);
    assert!(r.stderr.contains("input:1x1x28x28"), "{}", r.stderr);
    let j = r.json();
    let layers = j["layers"].as_array().unwrap();
    // 2 convolutions, 3 ReLUs, 2 pools, 1 reshape, 2 products with a sum each.
    assert_eq!(layers.len(), 12);
    assert!(layers.iter().all(|l| l["backend"] == "cpu" && l["tactic"].is_string()));
    assert_eq!(j["bytes"].as_u64().unwrap(), std::fs::metadata(&engine).unwrap().len());
    let fused = ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--json"]).json();
    assert!(fused["layers"].as_array().unwrap().len() < 12);
}

#[test]
fn inspect_tells_inputs_profiles_compatibility_and_layers() {
    let f = Folder::new();
    let engine = lenet(&f, &["--refit"]);
    let j = ok(&["inspect", &engine, "--layers", "--verify-recipes", "--json"]).json();
    assert_eq!(j["io"][0]["dims"], serde_json::json!([-1, 1, 28, 28]));
    assert_eq!(j["io"][1]["name"], "logits");
    assert_eq!(j["profiles"][0]["shapes"]["input"]["max"], serde_json::json!([16, 1, 28, 28]));
    assert_eq!(j["profiles"][0]["shapes"]["input"]["opt"], serde_json::json!([16, 1, 28, 28]));
    assert_eq!(j["compatibility"][0]["runs"], true);
    assert_eq!(j["target"]["backend"], "cpu");
    assert!(j["layers"]["Layers"][0]["TacticName"].is_string());
    assert_eq!(j["recipes"]["different"], serde_json::json!([]));
    let text = ok(&["inspect", &engine]).stdout;
    for wanted in ["logits", "[batch,1,28,28]", "runs here", "16, 1, 28, 28"] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
}

#[test]
fn recipes_of_folded_batch_norms_hold() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a_bn.onnx"), f.name("bn.kiln"));
    ok(&["build", &model, "-o", &engine, "--backend", "cpu"]);
    let r = kiln(&["inspect", &engine, "--verify-recipes"]);
    assert!(r.code == 1 && r.stderr.contains("build it with --refit"), "{}", r.stderr);
    ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--refit"]);
    let j = ok(&["inspect", &engine, "--verify-recipes", "--json"]).json();
    // Weight and bias of two convolutions at the least.
    assert!(j["recipes"]["same"].as_u64().unwrap() >= 4, "{}", j["recipes"]);
}

#[test]
fn verbosity_hides_layers() {
    let f = Folder::new();
    let names = |v: &str| {
        let engine = lenet(&f, &["--verbosity", v]);
        let j = ok(&["inspect", &engine, "--json"]).json();
        let names = j["layer_names"].as_array().unwrap();
        names.iter().map(|n| n.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("none")[0], "0");
    assert!(names("names").iter().any(|n| n.contains("/conv1/Conv")));
}

#[test]
fn a_damaged_engine_is_refused_with_its_cause() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let mut bytes = std::fs::read(&engine).unwrap();
    let at = bytes.len() / 2;
    bytes.truncate(at);
    std::fs::write(&engine, &bytes).unwrap();
    let r = kiln(&["inspect", &engine]);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("cut off"), "{}", r.stderr);
}

const CACHE_A: &str = concat!(
    "{\"kiln_timing_cache\":1}\n",
    "{\"key\":\"k1\",\"region\":\"matmul\",\"target\":\"t\",\"device\":\"d\",\"driver\":\"v\",\"candidates\":",
    "{\"slow\":{\"source_hash\":\"\",\"samples\":[30.0,31.0,32.0]},\"fast\":{\"source_hash\":\"\",\"samples\":[10.0,11.0,12.0]}}}\n",
);
const CACHE_B: &str = concat!(
    "{\"kiln_timing_cache\":1}\n",
    "{\"key\":\"k2\",\"region\":\"conv\",\"target\":\"t\",\"device\":\"d\",\"driver\":\"v\",\"candidates\":",
    "{\"only\":{\"source_hash\":\"\",\"samples\":[5.0]}}}\n",
);

#[test]
fn caches_are_shown_merged_in_any_order_and_exported() {
    let f = Folder::new();
    let (a, b, ab, ba) = (f.name("a"), f.name("b"), f.name("ab"), f.name("ba"));
    std::fs::write(&a, CACHE_A).unwrap();
    std::fs::write(&b, CACHE_B).unwrap();
    ok(&["cache", "merge", &a, &b, "-o", &ab]);
    ok(&["cache", "merge", &b, &a, "-o", &ba]);
    assert_eq!(std::fs::read(&ab).unwrap(), std::fs::read(&ba).unwrap());
    let shown = ok(&["cache", "show", &ab]).stdout;
    assert!(shown.find("fast").unwrap() < shown.find("slow").unwrap(), "{shown}");
    let lines: Vec<serde_json::Value> = ok(&["cache", "export", &ab])
        .stdout
        .lines()
        .map(|l| serde_json::from_str(l).expect("each line is JSON"))
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (&lines[0]["tactic"], &lines[0]["rank"], &lines[0]["median_ns"]),
        (&"fast".into(), &0.into(), &11.0.into())
    );
    std::fs::write(&a, "no cache").unwrap();
    let r = kiln(&["cache", "show", &a]);
    assert!(r.code == 1 && r.stderr.contains("is not a timing cache"), "{}", r.stderr);
}

/// A model of the test data: constants, and a layer of `n`² products of them.
fn folding(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/folding").join(name);
    path.display().to_string()
}

#[test]
fn folding_spends_what_the_budget_allows() {
    let f = Folder::new();
    let (model, engine) = (folding("einsum.onnx"), f.name("e.kiln"));
    let build = |more: &[&str]| {
        let args = ["build", &model, "-o", &engine, "--backend", "cpu", "--json"];
        ok(&[&args[..], more].concat()).json()
    };
    for (more, stays) in
        [(&[][..], false), (&["--fold-budget", "16512"], false), (&["--fold-budget", "9999"], true)]
    {
        let report = build(more);
        let notes = report["notes"].as_array().unwrap();
        let said = notes.iter().any(|n| n.as_str().unwrap().contains("\"wide\" (einsum)"));
        assert_eq!(said, stays, "{more:?}: {notes:?}");
    }
    assert_eq!(kiln(&["build", &model, "-o", &engine, "--fold-budget", "-1"]).code, 2);
    assert_eq!(kiln(&["build", &model, "-o", &engine, "--no-fold", "--fold-budget", "1"]).code, 2);
    let r = kiln(&["run", &engine, "--fold-budget", "1"]);
    assert!(r.code == 1 && r.stderr.contains("--fold-budget"), "{}", r.stderr);
}

/// The oracle is deep in one layer when the signal comes.
#[cfg(unix)]
#[test]
fn signals_end_folding() {
    let f = Folder::new();
    let (model, engine) = (folding("large.onnx"), f.name("e.kiln"));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["build", &model, "-o", &engine, "--backend", "cpu", "--fold-budget", "1000000000000000"])
        .env_remove("KILN_PLUGIN_PATH")
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "the build ended by itself");
    let sent = std::process::Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(sent.unwrap().success());
    let start = std::time::Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
    assert!(!f.path("e.kiln").exists());
}

#[test]
fn types_are_asked_of_layers_by_name() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let build = |more: &[&str]| {
        let args = ["build", &model, "-o", &engine, "--backend", "cpu", "--no-search", "--no-timing"];
        kiln(&[&args[..], more].concat())
    };
    // In quotes: a fingerprint may have the same letters.
    let types = || ok(&["inspect", &engine, "--layers", "--json"]).stdout.to_lowercase();
    assert!(build(&[]).code == 0 && !types().contains("\"f16\""), "{}", types());
    let done = build(&["--layer-precisions", "*:fp16", "--precision-constraints", "obey"]);
    assert!(done.code == 0 && types().contains("\"f16\""), "{}\n{}", done.stderr, types());
    // A wish without permission is noted, by name.
    let done = build(&["--layer-precisions", "*conv*:bf16", "--precision-constraints", "prefer"]);
    assert!(done.code == 0 && !types().contains("\"bf16\""), "{}", types());
    assert!(done.stderr.contains("does not permit bf16"), "{}", done.stderr);
    let done = build(&["--layer-output-types", "*conv*:bf16", "--bf16"]);
    assert!(done.code == 0 && types().contains("\"bf16\""), "{}\n{}", done.stderr, types());
    for (given, wanted) in [("nowhere:fp16", "no layer of this name"), ("*:int8", "range of tensor")] {
        let done = build(&["--layer-precisions", given, "--precision-constraints", "obey"]);
        assert!(done.code == 1 && done.stderr.contains(wanted), "{given}: {}", done.stderr);
    }
    assert_eq!(build(&["--layer-precisions", "x:f17"]).code, 2);
    let done = build(&["--fp16", "--narrowing", "everywhere"]);
    assert!(done.code == 0 && types().contains("\"f16\""), "{}", types());
}

/// `--int8` takes ranges that are measured on arrays, or from a table in TensorRT's format.
#[test]
fn ranges_are_calibrated_or_read() {
    let f = Folder::new();
    let (model, engine, table) = (digits("lenet_a.onnx"), f.name("e.kiln"), f.name("table.txt"));
    let data = f.name("data.npz");
    let mut arrays = kiln_npz::read_npz(std::path::Path::new(&digits("digits_calib.npz"))).unwrap();
    let images = [("input".to_owned(), arrays.remove("images").unwrap())];
    kiln_npz::write_npz(&data, &images.into(), kiln_npz::Compression::Deflated).unwrap();
    let build = |more: &[&str]| {
        let args = ["build", &model, "-o", &engine, "--backend", "reference", "--no-timing", "--shapes"];
        kiln(&[&args[..], &["input:20x1x28x28"], more].concat())
    };
    let integers = || ok(&["inspect", &engine, "--layers", "--json"]).stdout.contains("quantize");
    let measure = ["--int8", "--narrowing", "everywhere", "--calibration-cache", &table];
    let made = build(&[&measure[..], &["--calibrate", &data, "--calibrator", "minmax"]].concat());
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stderr.contains("calibrated") && integers(), "{}", made.stderr);
    let first = std::fs::read(&engine).unwrap();
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(text.starts_with("TRT-") && text.contains("MinMaxCalibration\n") && text.contains("\ninput: "));
    let read = build(&measure);
    assert_eq!(read.code, 0, "{}", read.stderr);
    assert!(std::fs::read(&engine).unwrap() == first, "the table gives another engine");
    // The ranges of the table give steps of 8-bit floats as well.
    let floats = ["--fp8", "--narrowing", "everywhere", "--calibration-cache", &table];
    let of_floats = build(&floats);
    let layers = ok(&["inspect", &engine, "--layers", "--json"]).stdout;
    assert!(of_floats.code == 0 && layers.contains("f8e4m3"), "{}", of_floats.stderr);
    assert!(of_floats.stderr.contains("products of f8e4m3 are computed in f32"), "{}", of_floats.stderr);
    // Entropy is another rule, which cuts something off.
    let other = build(&[&measure[..], &["--calibrate", &data]].concat());
    assert_eq!(other.code, 0, "{}", other.stderr);
    assert_ne!(std::fs::read_to_string(&table).unwrap(), text);
    std::fs::write(&table, "TRT-1-X\ninput zz\n").unwrap();
    let wrong = build(&measure);
    assert!(wrong.code == 1 && wrong.stderr.contains("line 2"), "{}", wrong.stderr);
    // Without ranges nothing is quantized, and a note says why.
    let none = build(&["--int8", "--narrowing", "everywhere"]);
    assert!(none.code == 0 && !integers(), "{}", none.stderr);
    assert!(none.stderr.contains("nothing is known of the range"), "{}", none.stderr);
    assert_eq!(build(&["--calibration-cache", &table]).code, 2);
}

/// `--sparsity` says what it prunes, and where the backend has no kernels for such weights.
#[test]
fn sparsity_is_reported() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let build = |more: &[&str]| {
        let r = kiln(
            &[&["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", "--json"], more].concat(),
        );
        assert_eq!(r.code, 0, "{}", r.stderr);
        let notes: Vec<String> = serde_json::from_value(r.json()["notes"].clone()).unwrap();
        let found: Vec<String> = notes.into_iter().filter(|n| n.contains("(Sparsity)")).collect();
        (found.join("\n"), std::fs::read(&engine).unwrap())
    };
    let (silent, plain) = build(&[]);
    assert_eq!(silent, "");
    let (unused, same) = build(&["--sparsity", "enable"]);
    assert!(unused.contains("not used") && same == plain, "{unused}");
    let (forced, other) = build(&["--sparsity", "force"]);
    assert!(forced.contains("pruned the weights of layer") && forced.contains("dense ones"), "{forced}");
    assert!(other != plain);
    // The first layer has one channel: nothing to prune along.
    assert!(!forced.contains("conv1"), "{forced}");
    assert_eq!(kiln(&["build", &model, "-o", &engine, "--sparsity", "always"]).code, 2);
}

#[test]
fn version_compatible_engines_say_so() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    for (more, said) in [(&[][..], false), (&["--version-compatible"][..], true)] {
        let args = ["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing"];
        ok(&[&args[..], more].concat());
        let found = ok(&["inspect", &engine, "--json"]).json()["version_compatible"].clone();
        assert_eq!(found, said, "{more:?}");
    }
    let text = ok(&["inspect", &engine]).stdout;
    assert!(text.contains("version-compatible"), "{text}");
}

#[test]
fn auxiliary_streams_are_limited_and_noted_where_there_are_none() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let build =
        |n| ["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", "--max-aux-streams", n];
    let r = ok(&build("2"));
    let said = r.stdout + &r.stderr;
    assert!(said.contains("the backend \"cpu\" runs layers one behind the other"), "{said}");
    let layers = ok(&["inspect", &engine, "--layers", "--json"]).json();
    assert_eq!(layers["layers"]["Layers"][0]["StreamId"], 0);
    let r = kiln(&build("16"));
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("16 auxiliary streams") && r.stderr.contains("15 at most"), "{}", r.stderr);
    // An engine is past its build.
    let r = kiln(&["run", &engine, "--max-aux-streams", "1"]);
    assert!(r.code != 0 && r.stderr.contains("--max-aux-streams"), "{}", r.stderr);
}

/// A portable engine is built again for another backend, with the outputs of a build of its model.
#[test]
fn portable_engines_are_built_again_and_others_refused() {
    let f = Folder::new();
    let model = digits("lenet_a.onnx");
    let built = |from: &str, name: &str, backend: &str, more: &[&str]| {
        let engine = f.name(name);
        kiln(&[&["build", from, "-o", &engine, "--backend", backend, "--no-timing"], more].concat())
    };
    let named = |name: &str| f.name(name);
    assert_eq!(built(&model, "cpu.kiln", "cpu", &["--portable"]).code, 0);
    assert_eq!(built(&model, "fixed.kiln", "cpu", &[]).code, 0);
    assert_eq!(built(&named("cpu.kiln"), "again.kiln", "reference", &[]).code, 0);
    assert_eq!(built(&model, "own.kiln", "reference", &[]).code, 0);
    assert_eq!(ok(&["inspect", &named("again.kiln"), "--json"]).json()["target"]["backend"], "reference");
    let outputs = |engine: &str| {
        let to = named("out.npz");
        ok(&["run", &named(engine), "--random-inputs", "7", "--save-outputs", &to]);
        std::fs::read(to).unwrap()
    };
    assert_eq!(outputs("again.kiln"), outputs("own.kiln"));
    let refused = built(&named("fixed.kiln"), "none.kiln", "reference", &[]);
    assert!(refused.code == 1 && refused.stderr.contains("build it from the model"), "{}", refused.stderr);
    assert!(!f.path("none.kiln").exists());
}

/// Devices are named by number or UUID; an engine runs on the one that is named.
#[test]
fn devices_are_chosen_by_number() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("x.kiln"));
    let build = |device: &str| {
        kiln(&["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", "--device", device])
    };
    for device in ["7", "GPU-0"] {
        let r = build(device);
        assert!(r.code == 1 && r.stderr.contains(&format!("no single device \"{device}\"")), "{}", r.stderr);
    }
    assert_eq!(build("0").code, 0);
    let run = |device: &str| kiln(&["run", &engine, "--random-inputs", "1", "--device", device]);
    assert_eq!(run("0").code, 0);
    let r = run("1");
    assert!(r.code == 1 && r.stderr.contains("there is 0:"), "{}", r.stderr);
}
