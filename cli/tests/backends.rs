//! Two backends under one command: a fallback is loud or forbidden, and a difference is an exit code.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod common;

use common::{Folder, digits, kiln, ok};
use std::path::Path;
use std::process::Command;

/// The backend in C99, which takes matrix products and additions only.
fn toy(folder: &Folder) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let library = folder.name("libkiln_backend_toy.so");
    let sources = ["backend.c", "kernels.c", "payload.c"];
    let compiled = Command::new("cc")
        .args(["-std=c99", "-O1", "-shared", "-fPIC", "-o", &library, "-I"])
        .arg(root.join("plugins/include"))
        .args(sources.map(|f| root.join("plugins/examples/toy_backend").join(f)))
        .arg("-lcbor")
        .output()
        .expect("cc starts; run scripts/setup.sh");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

#[test]
fn a_fallback_is_reported_with_its_reason() {
    let f = Folder::new();
    let (library, model, engine) = (toy(&f), digits("lenet_a.onnx"), f.name("e.kiln"));
    let args =
        ["build", &model, "-o", &engine, "--plugin", &library, "--backend", "toy", "--fallback", "cpu"];
    let j = ok(&[&args[..], &["--json"]].concat()).json();
    assert_eq!((&j["backend"], &j["fell_back"]["from"]), (&"cpu".into(), &"toy".into()));
    assert!(j["fell_back"]["reason"].as_str().unwrap().contains("conv"), "{}", j["fell_back"]);
    let told = ok(&args);
    let told = told.stdout + &told.stderr;
    assert!(told.contains("toy refuses the network"), "{told}");
}

#[test]
fn without_a_fallback_a_refusal_is_an_error() {
    let f = Folder::new();
    let (library, model, engine) = (toy(&f), digits("lenet_a.onnx"), f.name("e.kiln"));
    let args = ["build", &model, "-o", &engine, "--plugin", &library, "--backend", "toy"];
    for more in [&[][..], &["--strict"]] {
        let r = kiln(&[&args[..], more].concat());
        assert_eq!(r.code, 1, "{}", r.stdout);
        assert!(r.stderr.contains("conv") && r.stderr.contains("toy"), "{}", r.stderr);
        assert!(!Path::new(&engine).exists());
    }
    let both = kiln(&[&args[..], &["--strict", "--fallback", "cpu"]].concat());
    assert_eq!(both.code, 2, "{}", both.stderr);
}

/// Whether the library of the wgpu backend is in the folder of the command. The tests that need it run where it is, and must where the environment says so.
fn has_wgpu() -> bool {
    let j = ok(&["backends", "--json"]).json();
    let has = j["backends"].as_array().unwrap().iter().any(|b| b["name"] == "wgpu");
    assert!(has || std::env::var_os("KILN_REQUIRE_WGPU").is_none(), "wgpu is missing: {j}");
    has
}

#[test]
fn backends_agree_within_the_tolerance_and_differ_beyond_it() {
    if !has_wgpu() {
        return;
    }
    let model = digits("lenet_a.onnx");
    let args =
        ["compare", &model, "--backends", "reference,wgpu", "--per-layer", "--random-inputs", "1", "--json"];
    let j = ok(&args).json();
    assert_eq!((&j["agrees"], &j["first_layer_that_differs"]), (&true.into(), &serde_json::Value::Null));
    let exact = kiln(&[&args[..], &["--rtol", "0", "--atol", "0"]].concat());
    assert_eq!(exact.code, 1, "{}{}", exact.stdout, exact.stderr);
    let j = exact.json();
    assert_eq!(j["agrees"], false);
    let first = j["first_layer_that_differs"]["layer"].as_str().unwrap();
    assert!(exact.stderr.contains(first), "{}", exact.stderr);
}

/// A loop that ends when the data say so: wgpu has to read the condition.
#[test]
fn strict_builds_refuse_what_waits_for_the_host_and_others_list_it() {
    if !has_wgpu() {
        return;
    }
    let f = Folder::new();
    let model =
        format!("{}/../tests/data/control_flow/while_newton_bounded.onnx", env!("CARGO_MANIFEST_DIR"));
    let engine = f.name("e.kiln");
    let args = ["build", &model, "-o", &engine, "--backend", "wgpu", "--no-timing"];
    let strict = kiln(&[&args[..], &["--strict"]].concat());
    assert_eq!(strict.code, 1, "{}", strict.stdout);
    assert!(strict.stderr.contains("needs the host at layer"), "{}", strict.stderr);
    assert!(strict.stderr.contains("conditions"), "{}", strict.stderr);
    assert!(!Path::new(&engine).exists());
    let j = ok(&[&args[..], &["--json"]].concat()).json();
    let layers = j["host_layers"].as_array().unwrap();
    assert!(!layers.is_empty() && layers.iter().all(|l| l["why"] != "" && l["name"] != ""), "{j}");
    let reference = ["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", "--strict", "--json"];
    assert_eq!(ok(&reference).json()["host_layers"], serde_json::json!([]));
}

/// `--types` asks each backend about each operator and type; without it nobody is asked.
#[test]
fn types_are_told_by_operator() {
    let j = ok(&["backends", "--types", "--json"]).json();
    let of = |backend: &str| {
        let all = j["types"].as_array().unwrap().iter();
        all.clone().find(|t| t["backend"] == backend).unwrap_or_else(|| panic!("{j}"))["operators"].clone()
    };
    let (cpu, reference) = (of("cpu"), of("reference"));
    assert_eq!((&cpu["matmul"]["f32"], &reference["matmul"]["f32"]), (&"fast".into(), &"emulated".into()));
    assert_eq!((&cpu["matmul"]["f16"], &cpu["matmul"]["i8"]), (&"emulated".into(), &"fast".into()));
    assert_eq!(
        (&cpu["transpose"]["f16"], &cpu["matmul"]["bool"]),
        (&"fast".into(), &serde_json::Value::Null)
    );
    if has_wgpu() {
        assert_eq!(of("wgpu")["matmul"]["i8"], "fast");
    }
    assert!(ok(&["backends", "--json"]).json()["types"].is_null());
    let text = ok(&["backends", "--types"]).stdout;
    assert!(text.contains("element types of cpu on") && text.contains("matmul_codes"), "{text}");
}
