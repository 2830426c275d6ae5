//! `kiln debug accuracy`: errors of layers in narrow types, and the layers that keep f32.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod common;

use common::{Folder, calibration_images, digits, kiln, ok};
use serde_json::Value;

fn report(more: &[&str]) -> Value {
    let model = digits("lenet_a.onnx");
    let args = ["debug", "accuracy", &model, "--shapes", "input:4x1x28x28", "--json"];
    ok(&[&args[..], more].concat()).json()
}

fn types(report: &Value) -> Vec<String> {
    report["layers"].as_array().unwrap().iter().map(|l| l["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn layers_in_narrow_types_have_errors_and_others_have_reasons() {
    let wide = report(&[]);
    assert!(types(&wide).iter().all(|t| t == "f32"), "{wide}");
    assert!(wide["outputs"][0]["error"].as_f64().unwrap() < 1e-5, "{wide}");
    let halves = report(&["--fp16", "--narrowing", "everywhere"]);
    let narrow: Vec<&Value> =
        halves["layers"].as_array().unwrap().iter().filter(|l| l["type"] == "f16").collect();
    assert!(!narrow.is_empty() && narrow.iter().all(|l| l["keeps_f32_because"].is_null()), "{halves}");
    let errors: Vec<f64> = narrow.iter().filter_map(|l| l["error"].as_f64()).collect();
    assert!(errors.iter().any(|e| *e > 1e-5) && errors.iter().all(|e| *e < 1e-2), "{halves}");
}

#[test]
fn calibrated_layers_run_on_codes_and_those_without_ranges_say_so() {
    let f = Folder::new();
    let data = calibration_images(&f);
    let codes =
        report(&["--int8", "--narrowing", "everywhere", "--calibrate", &data, "--calibrator", "minmax"]);
    assert!(types(&codes).iter().any(|t| t == "i8"), "{codes}");
    assert!(codes["outputs"][0]["error"].as_f64().unwrap() > 1e-4, "{codes}");
    let none = report(&["--int8", "--narrowing", "everywhere"]);
    assert!(types(&none).iter().all(|t| t == "f32"), "{none}");
    let whys: Vec<&str> =
        none["layers"].as_array().unwrap().iter().filter_map(|l| l["keeps_f32_because"].as_str()).collect();
    assert_eq!(whys.len(), types(&none).len());
    assert!(whys.iter().any(|why| why.contains("range")), "{whys:?}");
    assert_eq!(kiln(&["debug", "accuracy", "no.onnx"]).code, 1);
}

/// Times decide, and both types take nearly equally long: one of several choices leaves a layer in f32.
#[test]
fn layers_that_are_faster_in_f32_say_so() {
    let says_so = || {
        let halves = report(&["--backend", "reference", "--fp16"]);
        let layers = halves["layers"].as_array().unwrap();
        let whys: Vec<&str> = layers.iter().filter_map(|l| l["keeps_f32_because"].as_str()).collect();
        assert_eq!(halves["layers_in_f32"].as_u64().unwrap() as usize, whys.len(), "{halves}");
        whys.iter().any(|why| why.contains("f16 is not faster"))
    };
    assert!((0..10).any(|_| says_so()));
}

#[test]
fn a_build_reports_the_accuracy_of_its_engine() {
    let f = Folder::new();
    let (model, data, engine) = (digits("lenet_a.onnx"), calibration_images(&f), f.name("e.kiln"));
    let args =
        ["build", &model, "-o", &engine, "--shapes", "input:4x1x28x28", "--int8", "--calibrate", &data];
    let args = [&args[..], &["--calibrator", "minmax", "--narrowing", "everywhere", "--accuracy", "--json"]]
        .concat();
    let report = ok(&args).json();
    let found = &report["accuracy"];
    assert!(types(found).iter().any(|t| t == "i8"), "{report}");
    let error = found["outputs"][0]["error"].as_f64().unwrap();
    assert!(error > 1e-4, "{report}");
    // Other inputs than the random ones have other errors.
    let mut images = kiln_npz::read_npz(&data).unwrap();
    let some = images.get_mut("input").unwrap();
    some.data.truncate(some.data.len() / some.shape[0] as usize * 4);
    some.shape[0] = 4;
    let four = f.name("four.npz");
    kiln_npz::write_npz(&four, &images, kiln_npz::Compression::Stored).unwrap();
    let archive = format!("--accuracy={four}");
    let given = ok(&[&args[..args.len() - 2], &[&archive, "--json"]].concat()).json();
    assert_ne!(given["accuracy"]["outputs"][0]["error"].as_f64().unwrap(), error, "{given}");
    let plain = ok(&["build", &model, "-o", &engine, "--json"]).json();
    assert!(plain["accuracy"].is_null());
}
