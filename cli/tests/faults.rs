//! `kiln check` and `kiln debug`: faults are found where they were put.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, command, data, digits, kiln, ok};
use kiln_onnx::proto::*;
use kiln_tests::mutants::models::encoded;
use prost::Message;
use serde_json::Value;
use std::process::Command;

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::dimension::Value;
    let dim =
        |d: &i64| tensor_shape_proto::Dimension { value: Some(Value::DimValue(*d)), ..Default::default() };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: 1, shape: Some(shape) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

/// A model of nodes `operator name inputs output`, from x to the last output.
fn model(nodes: &[(&str, &str, &[&str], &str)]) -> Vec<u8> {
    let node = |(op, name, input, output): &(&str, &str, &[&str], &str)| NodeProto {
        op_type: (*op).into(),
        name: (*name).into(),
        input: input.iter().map(|i| (*i).to_owned()).collect(),
        output: vec![(*output).into()],
        ..Default::default()
    };
    let graph = GraphProto {
        name: "g".into(),
        node: nodes.iter().map(node).collect(),
        input: vec![value("x", &[2, 8])],
        output: vec![ValueInfoProto { name: nodes.last().unwrap().3.into(), ..Default::default() }],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 17 };
    encoded(&ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(graph),
        ..Default::default()
    })
}

fn list(v: &Value) -> Vec<String> {
    v.as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_check_names_every_refused_node_at_once() {
    let f = Folder::new();
    let path = f.name("bad.onnx");
    let nodes: &[(&str, &str, &[&str], &str)] =
        &[("Exp", "good", &["x"], "a"), ("NoSuch", "first", &["a"], "b"), ("Neither", "second", &["a"], "c")];
    std::fs::write(&path, model(nodes)).unwrap();
    let r = kiln(&["check", &path, "--json"]);
    assert_eq!(r.code, 1, "{}", r.stderr);
    let v: Value = serde_json::from_str(&r.stdout).unwrap();
    let entries = v["linting_entries"].as_array().unwrap();
    let nodes: Vec<_> = entries.iter().flat_map(|e| list(&e["nodes"])).collect();
    assert!(nodes.contains(&"first".to_owned()) && nodes.contains(&"second".to_owned()), "{v}");
    for e in entries {
        assert_eq!((e["level"].as_str(), e["source"].as_str()), (Some("exception"), Some("importer")), "{e}");
        assert!(e["message"].as_str().unwrap().len() > 10, "{e}");
    }
    assert_eq!(list(&v["summary"]["failing"]), ["first", "second"]);
}

#[test]
fn a_check_tells_which_backend_runs_which_layer() {
    let r = ok(&["check", &digits("lenet_a.onnx"), "--backends", "cpu,reference", "--json"]).json();
    assert_eq!(list(&r["backends"]), ["cpu", "reference"]);
    let layers = r["layers"].as_array().unwrap();
    let conv = layers.iter().find(|l| l["layer"] == "/conv1/Conv").unwrap();
    assert_eq!(
        (conv["operators"].as_str(), list(&conv["backends"])),
        (Some("conv"), vec!["cpu".into(), "reference".into()])
    );
    assert!(
        list(&r["summary"]["passing"]).contains(&"/Relu".to_owned())
            && r["summary"]["failing"] == serde_json::json!([])
    );
    let text = ok(&["check", &digits("lenet_a.onnx"), "--backends", "cpu", "--layers"]).stdout;
    assert!(text.contains("backends that run it") && text.contains("runs on cpu"), "{text}");
    assert_eq!(kiln(&["check", &digits("lenet_a.onnx"), "--backends", "none"]).code, 1);
    // Shapes reach the backends' answer.
    assert_eq!(
        kiln(&["check", &digits("lenet_a.onnx"), "--backends", "cpu", "--shapes", "input:1x1x2x2"]).code,
        1
    );
}

/// Runs `kiln debug reduce` in a folder; the check greps for bytes of the artifact.
fn reduce(f: &Folder, model: &str, more: &[&str]) -> Value {
    let args = [&["debug", "reduce", model, "-o", "out.onnx", "--json"][..], more].concat();
    let done = Command::new(command()).args(args).current_dir(f.path("")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(!f.path("kiln_debug.onnx").exists());
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn a_model_is_reduced_to_the_node_that_fails() {
    let f = Folder::new();
    let lenet = digits("lenet_a.onnx");
    let check = [
        "--check",
        "sh",
        "-c",
        "! grep -qa /conv2/Conv_output_0 kiln_debug.onnx || ! grep -qa MaxPool kiln_debug.onnx",
    ];
    for mode in ["bisect", "linear"] {
        let v = reduce(&f, &lenet, &[&["--mode", mode][..], &["--min-good", "good.onnx"], &check].concat());
        // A part that has both: the second convolution with the pool in front of it, or the one behind it.
        let nodes = list(&v["nodes"]);
        assert!(nodes.len() <= 3 && nodes.contains(&"/conv2/Conv".to_owned()), "{mode}: {nodes:?}");
        assert!(f.path("good.onnx").exists() && v["checks"].as_u64() > Some(1), "{v}");
    }
    // The part is a model of its own, with inputs of the right types and the weights that it needs.
    let part = ModelProto::decode(&*std::fs::read(f.path("out.onnx")).unwrap()).unwrap().graph.unwrap();
    assert!(part.input.iter().all(|i| i.r#type.is_some()) && part.initializer.len() <= 2, "{:?}", part.input);
    ok(&["run", &f.name("out.onnx"), "--backend", "cpu", "--random-inputs", "1"]);
    // Outputs alone, or inputs alone.
    let by = ["--check", "! grep -qa /conv2/Conv kiln_debug.onnx"];
    let v = reduce(&f, &lenet, &[&["--no-reduce-inputs"][..], &by].concat());
    assert_eq!((list(&v["nodes"]).len(), v["checks"].as_u64()), (4, Some(4)), "{v}");
    let v = reduce(&f, &lenet, &[&["--no-reduce-inputs", "--mode", "linear"][..], &by].concat());
    assert_eq!((list(&v["nodes"]).len(), v["checks"].as_u64()), (4, Some(5)), "{v}");
    let v = reduce(&f, &lenet, &[&["--no-reduce-outputs"][..], &by].concat());
    // The name that the check looks for stays as that of an input.
    assert_eq!(list(&v["nodes"]).len(), 6, "{v}");
    // Bodies of control flow keep what they read from outside.
    let loops = data("control_flow/loop_invariant_capture.onnx").display().to_string();
    let v = reduce(&f, &loops, &["--check", "! grep -qa Loop kiln_debug.onnx"]);
    assert_eq!(list(&v["nodes"]).len(), 1, "{v}");
    let r = kiln(&[
        "debug",
        "reduce",
        &lenet,
        "-o",
        &f.name("x.onnx"),
        "--artifact",
        &f.name("a.onnx"),
        "--check",
        "true",
    ]);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("nothing to reduce") && !r.stderr.contains("said"), "{}", r.stderr);
    let artifact = f.name("a.onnx");
    let shown =
        ["debug", "reduce", &lenet, "-o", &f.name("x.onnx"), "--artifact", &artifact, "--show-output"];
    assert!(kiln(&[&shown[..], &["--check", "echo said"]].concat()).stderr.contains("said"));
}

#[test]
fn a_fault_of_the_importer_is_reduced_as_well() {
    let f = Folder::new();
    let nodes: &[(&str, &str, &[&str], &str)] = &[
        ("Exp", "e", &["x"], "a"),
        ("Abs", "b", &["a"], "b"),
        ("NoSuch", "fault", &["b"], "c"),
        ("Neg", "n", &["c"], "d"),
    ];
    std::fs::write(f.path("bad.onnx"), model(nodes)).unwrap();
    let kiln = command().display().to_string();
    let v = reduce(
        &f,
        "bad.onnx",
        &["--fail-code", "1", "--check", &kiln, "check", "kiln_debug.onnx", "--backends", "cpu"],
    );
    assert_eq!(list(&v["nodes"]), ["fault"]);
}

#[test]
fn the_layers_that_need_to_be_wide_are_found() {
    let f = Folder::new();
    // The exponential of a large number has no place in f16; what is in front of it and behind it has.
    let nodes: &[(&str, &str, &[&str], &str)] = &[
        ("Sigmoid", "s", &["x"], "a"),
        ("Add", "grow", &["a", "twelve"], "b"),
        ("Exp", "wide", &["b"], "c"),
        ("Log", "back", &["c"], "d"),
        ("Tanh", "end", &["d"], "e"),
    ];
    let mut m = ModelProto::decode(&*model(nodes)).unwrap();
    let twelve = TensorProto {
        name: "twelve".into(),
        data_type: 1,
        float_data: vec![12.0],
        dims: vec![1],
        ..Default::default()
    };
    m.graph.as_mut().unwrap().initializer.push(twelve);
    m.graph.as_mut().unwrap().node.pop();
    m.graph.as_mut().unwrap().output[0].name = "d".into();
    std::fs::write(f.path("m.onnx"), encoded(&m)).unwrap();
    let path = f.name("m.onnx");
    let run = |more: &[&str]| {
        let args = [&["debug", "precision", &path, "--rtol", "0.01", "--atol", "0.01", "--json"][..], more];
        kiln(&args.concat())
    };
    let r = run(&[]);
    assert_eq!(r.code, 0, "{}", r.stderr);
    let v: Value = serde_json::from_str(&r.stdout).unwrap();
    let kept = list(&v["keep"]);
    assert!(kept.contains(&"wide".to_owned()) && kept.len() <= 2, "{v}");
    let first = &v["layers"][0];
    assert!(
        first["layer"] == "wide"
            && first["keep"] == true
            && first["added"].is_null() | first["added"].is_number(),
        "{v}"
    );
    // The layers that it names are enough in a build.
    let precisions = v["layer_precisions"].as_str().unwrap();
    let wanted = f.name("wanted.npz");
    ok(&["run", &f.name("m.onnx"), "--backend", "cpu", "--random-inputs", "0", "--save-outputs", &wanted]);
    let narrow = [
        "--fp16",
        "--narrowing",
        "everywhere",
        "--random-inputs",
        "0",
        "--expect",
        &wanted,
        "--rtol",
        "0.01",
        "--atol",
        "0.01",
    ];
    let narrow = [&["run", &path, "--backend", "cpu"][..], &narrow].concat();
    assert_eq!(kiln(&narrow).code, 1);
    ok(&[&narrow[..], &["--layer-precisions", precisions, "--precision-constraints", "obey"]].concat());
    // Nothing has to stay wide where the tolerance is wide, or where the check is always good.
    let easy =
        ok(&["debug", "precision", &digits("lenet_a.onnx"), "--rtol", "0.1", "--atol", "0.1", "--json"])
            .json();
    assert_eq!(easy["keep"], serde_json::json!([]));
    let first = |narrow: &str| {
        let args = [
            "debug",
            "precision",
            &digits("lenet_a.onnx"),
            "--narrow",
            narrow,
            "--rtol",
            "1",
            "--atol",
            "1",
            "--json",
        ];
        let v = ok(&args).json();
        let conv = v["layers"].as_array().unwrap().iter().find(|l| l["layer"] == "/conv1/Conv").unwrap();
        conv["error"].as_f64().unwrap()
    };
    let (half, brain) = (first("fp16"), first("bf16"));
    assert!(half > 0.0 && brain > 3.0 * half, "{half} {brain}");
    assert_eq!(run(&["--backend", "none"]).code, 1);
    let checked = run(&["--artifact", &f.name("a.kiln"), "--check", "true"]);
    assert_eq!(serde_json::from_str::<Value>(&checked.stdout).unwrap()["keep"], serde_json::json!([]));
    let never = run(&["--artifact", &f.name("a.kiln"), "--check", "false"]);
    assert!(never.code == 1 && never.stderr.contains("even with all"), "{}", never.stderr);
}
