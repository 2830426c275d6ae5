//! `kiln inspect`: keys of convolutions, sources of derived weights, and the header alone.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Folder, digits, kiln, lenet, ok};
use serde_json::{Value, json};

/// The first layer of an engine that has this text in a field.
fn layer_by(engine: &str, field: &str, text: &str) -> Value {
    let j = ok(&["inspect", engine, "--layers", "--json"]).json();
    let layers = j["layers"]["Layers"].as_array().unwrap();
    layers.iter().find(|l| l[field].as_str().unwrap().contains(text)).unwrap().clone()
}

fn layer(engine: &str, name: &str) -> Value {
    layer_by(engine, "Name", name)
}

/// Parameters of the convolution among the operators of a layer.
fn conv(layer: &Value) -> Value {
    let all = layer["Parameters"].as_array().unwrap();
    all.iter().find(|p| p["ParameterType"] == "conv").unwrap().clone()
}

#[test]
fn convolutions_have_the_keys_of_tensorrt_as_numbers() {
    let f = Folder::new();
    let engine = lenet(&f, &["--no-timing", "--no-search"]);
    let p = conv(&layer(&engine, "/conv1/Conv"));
    assert_eq!((&p["Kernel"], &p["OutMaps"], &p["Groups"]), (&json!([5, 5]), &json!(20), &json!(1)), "{p}");
    assert_eq!((&p["PrePadding"], &p["PostPadding"]), (&json!([0, 0]), &json!([0, 0])));
    assert_eq!((&p["Stride"], &p["Dilation"]), (&json!([1, 1]), &json!([1, 1])));
    assert_eq!(
        (&p["HasBias"], &p["HasReLU"], &p["Activation"]),
        (&json!(true), &json!(true), &json!("relu"))
    );
    assert_eq!(p["Weights"], json!({"Type": "f32", "Count": 500}));
    assert_eq!((&p["Bias"]["Count"], &p["AllowSparse"]), (&json!(20), &json!(false)));
    let alone = conv(&layer(&lenet(&f, &["--no-timing", "--no-search", "--no-fuse"]), "/conv1/Conv"));
    assert_eq!((&alone["HasReLU"], &alone["Activation"]), (&json!(false), &json!("none")));
}

#[test]
fn derived_weights_name_what_they_are_made_of() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a_bn.onnx"), f.name("bn.kiln"));
    ok(&["build", &model, "-o", &engine, "--backend", "cpu", "--no-timing", "--refit"]);
    let conv = layer_by(&engine, "LayerType", "conv");
    let weights = conv["Weights"].as_array().unwrap();
    let sources: Vec<&str> =
        weights.iter().filter_map(|w| w["Sources"].as_array()).flatten().filter_map(Value::as_str).collect();
    assert!(sources.contains(&"bn1.weight") && sources.contains(&"conv1.weight"), "{weights:?}");
}

#[test]
fn the_header_alone_says_whether_an_engine_runs_here() {
    let f = Folder::new();
    let engine = lenet(&f, &["--no-timing"]);
    let j = ok(&["inspect", &engine, "--check", "--json"]).json();
    assert_eq!((&j["compatibility"][0]["runs"], &j["io"][1]["name"]), (&json!(true), &json!("logits")));
    assert!(j["layer_names"].is_null() && j["weights_bytes"].is_null(), "more than the header was read");
    // The check reads the header alone: the bytes behind it may be damaged.
    let mut bytes = std::fs::read(&engine).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&engine, &bytes).unwrap();
    ok(&["inspect", &engine, "--check"]);
    assert_eq!(kiln(&["inspect", &engine]).code, 1);
    // An engine of a backend that is not here.
    let stored = common::data("stored/4/cuda/dense.kiln").display().to_string();
    let r = kiln(&["inspect", &stored, "--check", "--plugins", "off"]);
    assert!(r.code == 1 && r.stderr.contains("cuda"), "{}", r.stderr);
}

#[test]
fn layers_are_shown_at_the_shapes_that_are_asked_for() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let dims = |more: &[&str]| {
        let j = ok(&[&["inspect", &engine, "--layers", "--json"], more].concat()).json();
        let layers = j["layers"]["Layers"].as_array().unwrap().clone();
        layers.last().unwrap()["Outputs"][0]["Dimensions"].clone()
    };
    assert_eq!(dims(&[]), serde_json::json!([-1, 10]));
    assert_eq!(dims(&["--shapes", "input:3x1x28x28"]), serde_json::json!([3, 10]));
    for (shapes, text) in [
        ("input:999x1x28x28", "none of the 1 profiles"),
        ("input:3x1x28", "the profile gives it 3 dimensions"),
        ("nothing:3", "\"nothing\" is no input"),
    ] {
        let r = kiln(&["inspect", &engine, "--layers", "--shapes", shapes]);
        assert!(r.code == 1 && r.stderr.contains(text), "{shapes}: {}", r.stderr);
    }
    // Shapes are for layers, whether these are asked for or not.
    let j = ok(&["inspect", &engine, "--shapes", "input:3x1x28x28", "--json"]).json();
    let last = j["layers"]["Layers"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["Outputs"][0]["Dimensions"], serde_json::json!([3, 10]));
    assert_eq!(kiln(&["inspect", &engine, "--check", "--shapes", "input:3x1x28x28"]).code, 2);
}
