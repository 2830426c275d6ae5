//! Damaged and hostile files give their typed error, quickly and without taking memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use std::time::{Duration, Instant};

use common::*;
use kiln_onnx::error::{NodeFault, TensorFault};
use kiln_onnx::proto::*;
use kiln_onnx::{Model, ModelFile, OnnxError};
use prost::Message;

fn refused(bytes: Vec<u8>) -> OnnxError {
    let start = Instant::now();
    let result = ModelFile::from_bytes(bytes, None).and_then(|file| Model::check(&file));
    assert!(start.elapsed() < Duration::from_secs(2), "slow");
    result.expect_err("refused")
}

#[test]
fn every_truncation_is_refused() {
    let bytes = std::fs::read(data("digits/lenet_a_qdq.onnx")).unwrap();
    for end in (0..bytes.len()).step_by(97) {
        let error = refused(bytes[..end].to_vec());
        let expected = matches!(
            error,
            OnnxError::Truncated { .. } | OnnxError::NotOnnx { .. } | OnnxError::MissingGraph
        );
        assert!(expected, "{end}: {error}");
    }
}

#[test]
fn damage_anywhere_gives_an_error_or_a_model() {
    let bytes = std::fs::read(data("control_flow/if_inside_loop.onnx")).unwrap();
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let _ = ModelFile::from_bytes(damaged, None).and_then(|file| Model::check(&file));
        }
    }
}

#[test]
fn other_files_are_named_as_such() {
    let others: [&[u8]; 6] = [
        b"",
        b"PK\x03\x04archive",
        b"hello, world, this is text",
        b"<html><body>404 not found</body></html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'",
    ];
    for bytes in others {
        let error = refused(bytes.to_vec());
        assert!(matches!(error, OnnxError::NotOnnx { .. }), "{bytes:?}: {error}");
    }
}

#[test]
fn versions_are_checked() {
    let mut future = model(graph(&["x"], vec![node("Relu", &["x"], &["y"])], &["y"]));
    future.opset_import = vec![opset("ai.onnx", 1000)];
    assert!(matches!(check(&future), Err(OnnxError::UnsupportedOpset { found: 1000, .. })));
    future.opset_import = vec![opset("", 17), opset("ai.onnx", 18)];
    assert!(matches!(check(&future), Err(OnnxError::DuplicateOpset { first: 17, second: 18, .. })));
    future.opset_import.clear();
    assert!(matches!(check(&future), Err(OnnxError::BadNode { fault: NodeFault::NoOpset { .. }, .. })));
    future.ir_version = 99;
    assert!(matches!(check(&future), Err(OnnxError::UnsupportedIrVersion { found: 99, .. })));
    future.ir_version = 2;
    assert_eq!(check(&future).unwrap().graph.nodes[0].opset, 1);
}

#[test]
fn cycles_name_their_nodes() {
    let nodes = vec![
        node("Relu", &["x"], &["free"]),
        node("Add", &["free", "c"], &["a"]),
        node("Neg", &["a"], &["b"]),
        node("Abs", &["b"], &["c"]),
        node("Exp", &["c"], &["y"]),
    ];
    match check(&model(graph(&["x"], nodes, &["y"]))) {
        Err(OnnxError::Cycle { nodes, .. }) => {
            assert_eq!(nodes.len(), 4);
            assert_eq!(nodes[0], nodes[3]);
            assert!(nodes.join(" ").contains("Add_a Neg_b Abs_c") || nodes.join(" ").contains("Neg_b Abs_c"));
        }
        other => panic!("{other:?}"),
    }
    let own = model(graph(&[], vec![node("Relu", &["y"], &["y"])], &["y"]));
    assert_eq!(check(&own).unwrap_err().to_string(), "graph 'g' has a cycle: Relu_y → Relu_y");
}

#[test]
fn a_long_cycle_is_listed_in_part() {
    let count = 50_000;
    let name = |index: usize| format!("v{}", index % count);
    let nodes = (0..count).map(|i| node("Relu", &[&name(i)], &[&name(i + 1)])).collect();
    let error = refused(model(graph(&[], nodes, &["v0"])).encode_to_vec());
    assert!(matches!(error, OnnxError::Cycle { nodes, .. } if nodes.len() < 40));
}

#[test]
fn nodes_out_of_order_are_sorted() {
    let inner = graph(&[], vec![node("Neg", &["b"], &["n"])], &["n"]);
    let mut branch = node("If", &["cond"], &["y"]);
    branch.attribute = vec![body("then_branch", inner.clone()), body("else_branch", inner)];
    let nodes = vec![branch, node("Abs", &["a"], &["b"]), node("Relu", &["x"], &["a"])];
    let sorted = check(&model(graph(&["x", "cond"], nodes, &["y"]))).unwrap();
    assert_eq!(ops(&sorted.graph), ["Relu", "Abs", "If"]);
    assert_eq!(sorted.graph.nodes[2].graphs().next().unwrap().captures, ["b"]);
}

#[test]
fn names_have_one_definition() {
    let relu = || node("Relu", &["x"], &["y"]);
    let twice = |graph: GraphProto| match check(&model(graph)) {
        Err(OnnxError::DuplicateName { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(twice(graph(&["x"], vec![relu(), relu()], &["y"])), "y");
    assert_eq!(twice(graph(&["x", "x"], vec![relu()], &["y"])), "x");
    assert_eq!(twice(graph(&["x"], vec![relu()], &["y", "y"])), "y");
    assert_eq!(twice(graph(&["x"], vec![node("Relu", &["x"], &["x"])], &["x"])), "x");
    let weight =
        || TensorProto { raw_data: vec![0; 4].into(), ..tensor("w", tensor_proto::DataType::Float, &[]) };
    let mut weights = graph(&["x"], vec![relu()], &["y"]);
    weights.initializer = vec![weight(), weight()];
    assert_eq!(twice(weights), "w");
    let mut default = graph(&["x", "w"], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
    default.initializer = vec![weight()];
    let read = check(&model(default)).unwrap();
    assert_eq!(read.graph.required_inputs().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["x"]);
}

#[test]
fn undefined_names_are_told() {
    let missing = model(graph(&[], vec![node("Relu", &["x"], &["y"])], &["y"]));
    let text = check(&missing).unwrap_err().to_string();
    assert_eq!(text, "graph 'g': node 'Relu_y' reads 'x', which no input, initializer or node defines");
    let output = model(graph(&["x"], vec![], &["y"]));
    assert!(matches!(check(&output), Err(OnnxError::UndefinedOutput { .. })));
    let mut outer = node("If", &["x"], &["y"]);
    outer.attribute = vec![body("then_branch", graph(&[], vec![], &["x"]))];
    assert!(matches!(
        check(&model(graph(&["x"], vec![outer], &["y"]))),
        Err(OnnxError::UndefinedOutput { output, .. }) if output == "x"
    ));
    let mut inside = node("If", &["x"], &["y"]);
    inside.attribute = vec![body("then_branch", graph(&[], vec![node("Neg", &["z"], &["n"])], &["n"]))];
    assert!(matches!(
        check(&model(graph(&["x"], vec![inside], &["y"]))),
        Err(OnnxError::UndefinedInput { node, input, .. }) if node == "Neg_n" && input == "z"
    ));
}

#[test]
fn huge_shapes_take_no_memory() {
    let with = |dims: &[i64]| {
        let mut graph = graph(&[], vec![], &["w"]);
        graph.initializer = vec![tensor("w", tensor_proto::DataType::Float, dims)];
        match check(&model(graph)) {
            Err(OnnxError::BadTensor { tensor, fault }) if tensor == "w" => fault,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(with(&[1 << 40]), TensorFault::Size { found: 0, .. }));
    assert!(matches!(with(&[i64::MAX, i64::MAX]), TensorFault::Overflow(_)));
    assert!(matches!(with(&[i64::MAX, 0, 4]), TensorFault::Overflow(_)));
    assert!(matches!(with(&[2, -1]), TensorFault::NegativeDim { axis: 1, found: -1 }));
}

#[test]
fn dense_junk_is_refused_before_decoding() {
    let mut junk = vec![8, 8, 0x3a];
    prost::encoding::encode_varint(20_000_000, &mut junk);
    junk.extend(std::iter::repeat_n([0x0a, 0], 10_000_000).flatten());
    assert!(matches!(refused(junk), OnnxError::TooLarge { .. }));
}

/// Wraps `innermost` so many times in the message of `wrap`.
fn deep(innermost: Vec<u8>, levels: usize, wrap: &[u32]) -> Vec<u8> {
    let mut bytes = innermost;
    for field in wrap.iter().cycle().take(levels * wrap.len()) {
        let mut outer = Vec::new();
        prost::encoding::encode_key(*field, prost::encoding::WireType::LengthDelimited, &mut outer);
        prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
        outer.extend(bytes);
        bytes = outer;
    }
    bytes
}

#[test]
fn deep_nesting_is_refused() {
    let graphs = deep(Vec::new(), 3000, &[6, 5, 1]);
    let types = deep(deep(Vec::new(), 9000, &[1, 4]), 1, &[2, 11]);
    for bytes in [graphs, types] {
        let error = refused([vec![8, 8], deep(bytes, 1, &[7])].concat());
        assert!(matches!(error, OnnxError::NestingTooDeep { .. }), "{error}");
    }
}

#[test]
fn the_deepest_allowed_nesting_fits_the_stack() {
    let mut inner = graph(&[], vec![node("Neg", &["x"], &["n"])], &["n"]);
    for _ in 0..29 {
        let mut branch = node("If", &["x"], &["n"]);
        branch.attribute = vec![body("then_branch", inner)];
        inner = graph(&[], vec![branch], &["n"]);
    }
    inner.input = vec![info("x")];
    check(&model(inner)).unwrap();
}

#[test]
fn bad_attributes_are_named() {
    let with = |attributes: Vec<AttributeProto>| {
        let relu = NodeProto { attribute: attributes, ..node("Relu", &["x"], &["y"]) };
        check(&model(graph(&["x"], vec![relu], &["y"])))
    };
    let fault = |result: Result<Model, OnnxError>| match result {
        Err(OnnxError::BadNode { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(with(vec![int("a", 1), int("a", 2)])), NodeFault::DuplicateAttribute("a".into()));
    let odd = AttributeProto { name: "a".into(), r#type: 77, ..Default::default() };
    assert!(matches!(fault(with(vec![odd])), NodeFault::BadAttribute { .. }));
    let reference = reference("a", "b", attribute_proto::AttributeType::Int);
    assert!(matches!(fault(with(vec![reference])), NodeFault::UnknownReference { .. }));
    let read = with(vec![int("a", 3)]).unwrap();
    let error = read.graph.nodes[0].attr::<f32>("a").unwrap_err();
    assert_eq!(error.to_string(), "node 'Relu_y' (Relu): attribute 'a' is an integer: wanted a float");
    let error = read.graph.nodes[0].require_attr::<&[i64]>("pads").unwrap_err();
    assert_eq!(
        error.to_string(),
        "node 'Relu_y' (Relu): attribute 'pads' is missing: wanted a list of integers"
    );
}
