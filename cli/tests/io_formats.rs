//! Types and formats of inputs and outputs, and direct I/O, on the command line.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Folder, digits, kiln, ok};

fn build<'a>(engine: &'a str, model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["build", model, "-o", engine, "--backend", "cpu", "--no-timing"], more].concat()
}

#[test]
fn inputs_and_outputs_get_types_and_formats_in_their_order() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let more = ["--input-io-formats", "fp16:hwc8", "--output-io-formats", "fp16:chw"];
    ok(&build(&engine, &model, &more));
    let io = ok(&["inspect", &engine, "--check", "--json"]).json()["io"].clone();
    assert_eq!((&io[0]["type"], &io[0]["format"]), (&"f16".into(), &"hwc8".into()), "{io}");
    assert_eq!(io[0]["format_description"], "Channel major FP16 format where channel % 8 == 0");
    assert_eq!((&io[1]["type"], &io[1]["format"]), (&"f16".into(), &"linear".into()), "{io}");
    let text = ok(&["inspect", &engine]).stdout;
    assert!(text.contains("hwc8"), "{text}");
    // The inspector names the format of the first layer's input.
    let layers = ok(&["inspect", &engine, "--layers", "--json"]).json()["layers"]["Layers"].clone();
    let first = &layers[0]["Inputs"][0];
    assert_eq!(first["Format/Datatype"], "Channel major FP16 format where channel % 8 == 0", "{layers}");
    assert_eq!(first["Dimensions"], serde_json::json!([-1, 1, 28, 28]));
    // Linear arrays go in and out.
    ok(&["run", &engine, "--random-inputs", "3"]);
    let codes = ["run", &model, "--backend", "cpu", "--no-timing", "--random-inputs", "3"];
    let r = kiln(&[&codes[..], &["--input-io-formats", "int8:chw32"]].concat());
    assert!(r.code == 1 && r.stderr.contains("range"), "{}", r.stderr);
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    let refused = |more: &[&str], code: i32, text: &str| {
        let r = kiln(&build(&engine, &model, more));
        assert!(r.code == code && r.stderr.contains(text), "{more:?}: {} {}", r.code, r.stderr);
    };
    refused(&["--input-io-formats", "fp32:hwc8"], 1, "f16, bf16");
    refused(&["--input-io-formats", "fp32:chw,fp32:chw"], 1, "2 entries for 1 tensors (input)");
    refused(&["--output-io-formats", "fp32:hwc"], 1, "wants 3 dimensions or more, found 2");
    refused(&["--input-io-formats", "fp32:nhwc"], 2, "is not a format");
    refused(&["--input-io-formats", "int8:dla_hwc4"], 2, "DLA");
    refused(&["--input-io-formats", "hwc"], 2, "TYPE:FORMAT");
    // An engine is built already.
    ok(&build(&engine, &model, &[]));
    let r = kiln(&["run", &engine, "--random-inputs", "1", "--direct-io"]);
    assert!(r.code == 1 && r.stderr.contains("--direct-io"), "{}", r.stderr);
    let r = kiln(&["run", &engine, "--random-inputs", "1", "--input-io-formats", "fp16:chw"]);
    assert!(r.code == 1 && r.stderr.contains("--input-io-formats"), "{}", r.stderr);
}

#[test]
fn direct_io_refuses_reformats_and_names_them() {
    let f = Folder::new();
    let (model, engine) = (digits("lenet_a.onnx"), f.name("e.kiln"));
    ok(&build(&engine, &model, &["--direct-io"]));
    let r = kiln(&build(&engine, &model, &["--direct-io", "--input-io-formats", "fp16:chw32", "--no-fuse"]));
    assert_eq!(r.code, 1, "{}", r.stdout);
    for part in ["direct I/O", "\"input\"", "Thirty-two wide", "/conv1/Conv", "slice"] {
        assert!(r.stderr.contains(part), "{part}: {}", r.stderr);
    }
    // Without the option it is built.
    ok(&build(&engine, &model, &["--input-io-formats", "fp16:chw32", "--no-fuse"]));
}
