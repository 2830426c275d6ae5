//! Real models are read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::data;
use kiln_onnx::{DataType, Dim, Graph, Model, TensorData};

fn models_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(models_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "onnx") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_stored_legal_model_is_read() {
    let models = models_below(&data(""));
    assert!(models.len() > 30);
    for path in models.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "illegal")) {
        Model::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[test]
fn a_classifier_reads_as_written() {
    let model = Model::open(data("digits/lenet_a.onnx")).unwrap();
    assert_eq!(model.opsets.version("ai.onnx"), Some(17));
    let graph = &model.graph;
    let ends: Vec<_> = graph.inputs.iter().chain(&graph.outputs).map(|info| info.name.as_str()).collect();
    assert_eq!(ends, ["input", "logits"]);
    let image = &graph.inputs[0].ty;
    assert_eq!(image.dtype(), Some(DataType::Float));
    let sizes = [Dim::Named("batch".into()), Dim::Fixed(1), Dim::Fixed(28), Dim::Fixed(28)];
    assert_eq!(image.dims().unwrap(), sizes);
    assert_eq!(graph.initializers["conv2.weight"].dims, [50, 20, 5, 5]);
    let conv = graph.nodes.iter().find(|node| node.op == "Conv").unwrap();
    assert_eq!(conv.require_input(1, "W").unwrap(), "conv1.weight");
    assert_eq!(conv.attr::<&[i64]>("kernel_shape").unwrap(), Some(&[5, 5][..]));
    assert_eq!(conv.attr_or("group", 1i64).unwrap(), 1);
    assert!(conv.attr::<f32>("group").is_err() || conv.attr::<i64>("group").unwrap().is_none());
}

#[test]
fn bodies_list_what_they_capture() {
    let model = Model::open(data("control_flow/loop_invariant_capture.onnx")).unwrap();
    let body = model.graph.nodes.iter().find(|node| node.op == "Loop").unwrap();
    let body = body.require_attr::<&Arc<Graph>>("body").unwrap();
    assert!(!body.captures.is_empty() && model.graph.captures.is_empty());
    let model = Model::open(data("control_flow/nested_loops.onnx")).unwrap();
    let depth = |graph: &Graph| graph.nodes.iter().flat_map(|node| node.graphs()).count();
    assert!(model.graph.nodes.iter().flat_map(|node| node.graphs()).any(|graph| depth(graph) > 0));
}

#[test]
fn weights_are_not_copied() {
    let bytes = bytes::Bytes::from(std::fs::read(data("digits/lenet_a.onnx")).unwrap());
    let range = bytes.as_ptr_range();
    let file = kiln_onnx::ModelFile::from_bytes(bytes, None).unwrap();
    let model = Model::check(&file).unwrap();
    assert!(range.contains(&model.graph.initializers["fc1.weight"].bytes.as_ptr()));
}

/// The models and tensors of the ONNX backend suite that are in scope, where `scripts/setup.sh` has put them.
#[test]
fn the_onnx_suite_is_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut failures = Vec::new();
    for (version, cases) in [("1.19.1", 1388), ("1.23.2", 1616)] {
        let suite = root.join(format!(".cache/onnx-suite-{version}"));
        if !suite.is_dir() {
            println!("skipped: no ONNX suite {version} in .cache; run scripts/setup.sh");
            return;
        }
        let scope = std::fs::read_to_string(root.join(format!("tests/onnx/scope-{version}.txt"))).unwrap();
        assert_eq!(scope.lines().count(), cases);
        for case in scope.lines() {
            if let Err(error) = read_case(&suite.join(case)) {
                failures.push(format!("{version} {case}: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

fn read_case(folder: &Path) -> Result<(), kiln_onnx::OnnxError> {
    Model::open(folder.join("model.onnx"))?;
    for set in
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for tensor in std::fs::read_dir(set).unwrap() {
            TensorData::open(tensor.unwrap().path())?;
        }
    }
    Ok(())
}

#[test]
fn a_branch_that_returns_an_outer_value_is_refused() {
    let error = Model::open(data("control_flow/illegal/if_else_without_node.onnx")).unwrap_err();
    assert!(matches!(error, kiln_onnx::OnnxError::UndefinedOutput { .. }), "{error}");
}
