//! `kiln run`, `bench`, `compare` and `backends`.

mod common;

use common::{Folder, digits, kiln, lenet, ok};
use kiln_npz::{Array, Compression, NpyType, read_npz, write_npz};
use std::collections::BTreeMap;

/// The first `n` test images, labels and the logits that onnxruntime gave for them, as three archives.
fn first(f: &Folder, n: u64) -> (String, String, String) {
    let cut = |file: &str, array: &str, to: &str, name: &str| {
        let all = read_npz(digits(file)).expect("test data");
        let a = &all[array];
        let bytes = (a.data.len() as u64 / a.shape[0] * n) as usize;
        let shape = [&[n], &a.shape[1..]].concat();
        let part = Array::new(a.dtype, shape, a.data[..bytes].to_vec()).expect("as many bytes as the shape");
        let path = f.name(to);
        write_npz(&path, &BTreeMap::from([(name.to_owned(), part)]), Compression::Stored)
            .expect("the folder is writable");
        path
    };
    (
        cut("digits_test.npz", "images", "in.npz", "input"),
        cut("digits_test.npz", "labels", "labels.npz", "labels"),
        cut("logits_lenet_a.npz", "logits", "wanted.npz", "logits"),
    )
}

#[test]
fn an_engine_gives_the_logits_of_another_runtime_and_the_labels() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let (inputs, labels, wanted) = first(&f, 4);
    let out = f.name("out.npz");
    let labels = format!("{labels}:labels");
    let r = ok(&[
        "run",
        &engine,
        "--inputs",
        &inputs,
        "--expect",
        &wanted,
        "--accuracy",
        &labels,
        "--save-outputs",
        &out,
        "--json",
    ]);
    let j = r.json();
    assert_eq!(j["outputs"][0]["shape"], serde_json::json!([4, 10]));
    assert_eq!(j["expected"][0]["agrees"], true);
    assert_eq!(j["accuracy"]["correct"], 4);
    let saved = read_npz(&out).unwrap();
    let wanted = read_npz(&wanted).unwrap()["logits"].to_f32().unwrap();
    let found = saved["logits"].to_f32().unwrap();
    assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?}");
}

#[test]
fn engines_of_halves_take_the_same_files() {
    let f = Folder::new();
    let engine = lenet(&f, &["--io-type", "f16"]);
    let (inputs, labels, _) = first(&f, 4);
    let (labels, out) = (format!("{labels}:labels"), f.name("out.npz"));
    let args = ["run", &engine, "--inputs", &inputs, "--accuracy", &labels, "--save-outputs", &out, "--json"];
    let r = ok(&args);
    assert_eq!(r.json()["accuracy"]["correct"], 4);
    assert!(r.stderr.contains("the engine takes f16: rounded"), "{}", r.stderr);
    assert_eq!(read_npz(&out).unwrap()["logits"].dtype, NpyType::F16);
}

#[test]
fn a_model_takes_its_shapes_from_the_inputs_and_selects_arrays() {
    let f = Folder::new();
    let (inputs, _, wanted) = first(&f, 2);
    let input = format!("input={inputs}:input");
    let r = ok(&["run", &digits("lenet_a.onnx"), "--backend", "cpu", "--input", &input, "--expect", &wanted]);
    assert!(r.stdout.contains("2x10") && r.stdout.contains("agrees"), "{}", r.stdout);
    assert!(!r.stderr.contains("taken as 1"), "{}", r.stderr);
}

#[test]
fn outputs_that_differ_exit_with_1() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let (inputs, _, wanted) = first(&f, 2);
    let mut arrays = read_npz(&wanted).unwrap();
    let logits = arrays.get_mut("logits").unwrap();
    let mut v = logits.to_f32().unwrap();
    v[3] += 1.0;
    *logits = Array::from_f32(&[2, 10], &v).unwrap();
    write_npz(&wanted, &arrays, Compression::Stored).unwrap();
    let args = ["run", &engine, "--inputs", &inputs, "--expect", &wanted];
    let r = kiln(&args);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("1 of 1 outputs are not as expected"), "{}", r.stderr);
    assert!(r.stdout.contains("element 3 is"), "{}", r.stdout);
    ok(&[&args[..], &["--atol", "2"]].concat());
}

#[test]
fn missing_and_wrong_inputs_are_explained() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let fails = |args: &[&str], wanted: &str| {
        let r = kiln(&[&["run", engine.as_str()], args].concat());
        assert_eq!(r.code, 1, "{args:?}");
        assert!(r.stderr.contains(wanted), "{args:?}: {}", r.stderr);
        assert!(r.stdout.is_empty(), "{}", r.stdout);
    };
    fails(&[], "no data for \"input\" (f32[batch,1,28,28])");
    fails(&["--input", "image=x.npy"], "there is no input \"image\"; there is input");
    fails(&["--input", "input=absent.npy"], "No such file");
    fails(&["--random-inputs", "1", "--shapes", "input:17x1x28x28"], "outside profile 0");
    fails(&["--random-inputs", "1", "--shapes", "x:1"], "it has input");
    fails(&["--random-inputs", "1", "--fp16"], "--fp16 says how to build");
    fails(&["--random-inputs", "1", "--backend", "wgpu"], "built for the backend \"cpu\"");
    let double = f.name("f8.npz");
    let array = Array::new(NpyType::F64, vec![1], vec![0; 8]).unwrap();
    write_npz(&double, &BTreeMap::from([("input".to_owned(), array)]), Compression::Stored).unwrap();
    fails(&["--inputs", &double], "array \"input\" is f8[1]: wanted f32[batch,1,28,28], as the input is");
}

#[test]
fn random_inputs_depend_on_the_seed_only() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let run = |seed: &str| {
        let r = ok(&["run", &engine, "--random-inputs", seed, "--shapes", "input:1x1x28x28", "--json"]);
        r.json()["outputs"].clone()
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    let model = digits("lenet_a.onnx");
    for args in [
        &["build"][..],
        &["nothing"],
        &["run", &model, "--shapes", "input=1x2"],
        &["build", &model, "-o", "x", "--strict", "--fallback", "cpu"],
        &["build", &model, "-o", "x", "--locked"],
        &["build", &model, "-o", "x", "--fp16", "--strongly-typed"],
        &["compare", &model, "--backends", "cpu"],
        &["run", &model, "--input", "input=archive.npz"],
    ] {
        let r = kiln(args);
        assert_eq!(r.code, 2, "{args:?}: {}", r.stderr);
        assert!(r.stderr.contains("--help"), "{args:?}: {}", r.stderr);
    }
    for command in ["build", "run", "bench", "inspect", "compare", "backends", "cache"] {
        assert!(ok(&["help", command]).stdout.contains("Usage: kiln"));
    }
}

#[test]
fn bad_models_and_backends_exit_with_1_and_name_the_cause() {
    let f = Folder::new();
    let text = f.name("model.onnx");
    std::fs::write(&text, "this is no model, only text that is long enough to be read as one").unwrap();
    let r = kiln(&["build", &text, "-o", &f.name("x.kiln"), "--backend", "cpu"]);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("cannot import") && r.stderr.contains("not an ONNX file"), "{}", r.stderr);
    let r = kiln(&[
        "build",
        &digits("lenet_a.onnx"),
        "-o",
        &f.name("x.kiln"),
        "--backend",
        "tpu",
        "--plugins",
        "off",
    ]);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("there is no backend \"tpu\" here, only cpu, reference"), "{}", r.stderr);
    assert!(!f.path("x.kiln").exists());
}

#[test]
fn bench_counts_and_orders_its_percentiles() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let j = ok(&[
        "bench",
        &engine,
        "--warm-up",
        "1",
        "--iterations",
        "3",
        "--duration",
        "0",
        "--shapes",
        "input:1x1x28x28",
        "--json",
    ])
    .json();
    assert_eq!((&j["runs"], &j["after_warm_up"]["runs"]), (&3.into(), &3.into()));
    for counter in ["allocations", "compilations", "pipelines", "host_syncs", "shape_inferences"] {
        assert_eq!(j["after_warm_up"][counter], 0, "{counter}");
    }
    let p = |k: &str| j["latency_ns"][k].as_f64().unwrap();
    assert!(p("min") > 0.0 && p("p50") <= p("p90") && p("p90") <= p("p99") && p("p99") <= p("max"));
    assert!(!j["layers"].as_array().unwrap().is_empty());
    assert_eq!(j["host_layers"], serde_json::json!([]), "the reference tells that it waits for nobody");
}

#[test]
fn the_reference_agrees_with_itself_layer_by_layer() {
    let model = digits("lenet_a.onnx");
    let j =
        ok(&["compare", &model, "--backends", "cpu,cpu", "--per-layer", "--random-inputs", "1", "--json"])
            .json();
    assert_eq!(j["agrees"], true);
    assert_eq!(j["layers"].as_array().unwrap().len(), 12);
    assert_eq!(j["not_observed"], serde_json::json!([]));
}

#[test]
fn backends_lists_the_reference_and_refusals() {
    let f = Folder::new();
    let fake = f.name("libkiln_backend_fake.so");
    std::fs::write(&fake, "no library").unwrap();
    let j = ok(&["backends", "--plugin", &fake, "--json"]).json();
    let names: Vec<&str> =
        j["backends"].as_array().unwrap().iter().filter_map(|b| b["name"].as_str()).collect();
    assert!(names.contains(&"cpu"), "{names:?}");
    let plugins = j["plugins"].as_array().unwrap();
    let found =
        plugins.iter().find(|p| p["path"].as_str().unwrap().ends_with("libkiln_backend_fake.so")).unwrap();
    assert!(found["refused"].is_string(), "{found}");
    let off = ok(&["backends", "--plugins", "off"]).stdout;
    assert!(off.contains("linked in") && !off.contains("fake"), "{off}");
}

/// A loop of so many iterations that it never ends: the model and its inputs.
fn endless(f: &Folder) -> Vec<String> {
    let model =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/control_flow/loop_swap.onnx");
    let array =
        |t, shape: &[u64], bytes: &[u8]| Array::new(t, shape.to_vec(), bytes.to_vec()).expect("an array");
    let inputs = BTreeMap::from([
        ("a".to_owned(), array(NpyType::F32, &[2], &[0; 8])),
        ("b".to_owned(), array(NpyType::F32, &[2], &[0; 8])),
        ("trips".to_owned(), array(NpyType::I64, &[], &i64::MAX.to_le_bytes())),
    ]);
    let path = f.name("endless.npz");
    write_npz(&path, &inputs, Compression::Stored).expect("a folder of the test");
    let model = model.display().to_string();
    ["run", &model, "--backend", "cpu", "--inputs", &path].map(str::to_owned).to_vec()
}

#[test]
fn a_run_ends_at_its_limit() {
    let f = Folder::new();
    let mut args = endless(&f);
    args.extend(["--timeout", "0.3"].map(str::to_owned));
    let r = kiln(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(r.code, 1, "{}", r.stderr);
    assert!(r.stderr.contains("at its limit of 300ms at layer \""), "{}", r.stderr);
    assert_eq!(kiln(&["run", "x", "--timeout", "0"]).code, 2);
}

#[cfg(unix)]
#[test]
fn signals_end_a_run() {
    let f = Folder::new();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(endless(&f))
            .env_remove("KILN_PLUGIN_PATH")
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
        let sent =
            std::process::Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn debug_tensors_are_stored_by_name() {
    let f = Folder::new();
    let model = digits("lenet_a.onnx");
    let shape = ["--backend", "cpu", "--no-timing", "--shapes", "input:2x1x28x28"];
    let engine = f.name("debug.kiln");
    let layer = "/conv1/Conv";
    ok(&[&["build", &model, "-o", &engine, "--mark-debug", layer], &shape[..]].concat());
    let (marked, all) = (f.name("marked.npz"), f.name("all.npz"));
    ok(&["run", &engine, "--random-inputs", "1", "--save-debug-tensors", &marked]);
    let marked = read_npz(&marked).unwrap();
    assert_eq!(marked.keys().collect::<Vec<_>>(), [layer]);
    assert_eq!(marked[layer].shape[0], 2);
    ok(&["run", &engine, "--random-inputs", "1", "--save-all-debug-tensors", &all]);
    let all = read_npz(&all).unwrap();
    assert!(all.len() > 2 && all[layer] == marked[layer], "{:?}", all.keys());
    // Names that do not exist, engines without marks, builds that are over.
    let wrong = kiln(&[&["build", &model, "-o", &engine, "--mark-debug", "nothing"], &shape[..]].concat());
    assert!(wrong.code == 1 && wrong.stderr.contains("\"nothing\""), "{}", wrong.stderr);
    let late = kiln(&["run", &engine, "--mark-debug", layer]);
    assert!(late.code == 1 && late.stderr.contains("--mark-debug says how to build"), "{}", late.stderr);
    let plain = lenet(&f, &[]);
    let none = kiln(&["run", &plain, "--random-inputs", "1", "--save-debug-tensors", &f.name("none.npz")]);
    assert!(none.code == 1 && none.stderr.contains("no tensor is marked"), "{}", none.stderr);
}

#[test]
fn the_shipped_engine_is_compared_by_the_tensors_between_its_kernels() {
    let f = Folder::new();
    let model = digits("lenet_a.onnx");
    let shape = ["--shapes", "input:2x1x28x28"];
    let engine = f.name("shipped.kiln");
    ok(&[&["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing"], &shape[..]].concat());
    let compare =
        ["compare", &model, "--backends", "reference,cpu", "--per-layer", "--json", "--random-inputs", "1"];
    for more in [&["--engine", &engine][..], &["--shipped"][..]] {
        let j = ok(&[&compare[..], more, &shape[..]].concat()).json();
        let layers = j["layers"].as_array().unwrap();
        assert!(j["agrees"] == true && layers.len() >= 2, "{j}");
        // Kernels of several layers: it is not the unfused build.
        assert!(layers.iter().any(|l| l["layer"].as_str().unwrap().contains(" + ")), "{j}");
    }
    let other = kiln(&[
        "compare",
        &model,
        "--backends",
        "cpu,reference",
        "--engine",
        &engine,
        "--random-inputs",
        "1",
    ]);
    assert!(
        other.code == 1 && other.stderr.contains("was built for the backend \"cpu\""),
        "{}",
        other.stderr
    );
    // An engine of other weights differs, at its first layer.
    let changed = f.name("changed.kiln");
    let b = digits("lenet_b.onnx");
    ok(&[&["build", &b, "-o", &changed, "--backend", "cpu", "--no-timing"], &shape[..]].concat());
    let r = kiln(&[&compare[..], &["--engine", &changed], &shape[..]].concat());
    assert!(r.code == 1 && r.stderr.contains("the first layer that differs is \"/conv1"), "{}", r.stderr);
    let r = kiln(&[&compare[..], &["--engine", &changed, "--bisect"], &shape[..]].concat());
    assert!(
        r.code == 1 && r.stderr.contains("give the options that the engine was built with"),
        "{}",
        r.stderr
    );
    // An engine that rounds is built again with its tactics, and cut.
    let (half, narrow) = (f.name("half.kiln"), ["--fp16", "--narrowing", "everywhere"]);
    let build = ["build", &model, "-o", &half, "--backend", "cpu", "--no-timing"];
    ok(&[&build[..], &narrow[..], &shape[..]].concat());
    let exact = ["--engine", &half, "--bisect", "--rtol", "0", "--atol", "0"];
    let r = kiln(&[&compare[..], &exact[..], &narrow[..], &shape[..]].concat());
    assert!(r.code == 1 && r.stderr.contains("of the kernel \"/conv1/Conv"), "{}", r.stderr);
}

#[test]
fn sums_of_one_operand_alone_want_no_memory_for_all_products() {
    // 2^36 products of two vectors of 2^18 ones, none of which is stored.
    let f = Folder::new();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/folding/large.onnx");
    let saved = f.name("out.npz");
    ok(&["run", model, "--backend", "cpu", "--save-outputs", &saved]);
    let arrays = read_npz(&saved).expect("outputs");
    let sum = kiln::arrays::tensor("y", arrays.into_values().next().expect("an output")).expect("a tensor");
    assert_eq!(sum.to_f64(), [(1u64 << 36) as f64]);
}
