//! Calls of a model's own functions are replaced by their nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::*;
use kiln_onnx::error::NodeFault;
use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::*;
use kiln_onnx::{Graph, Model, OnnxError};

fn function(name: &str, inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> FunctionProto {
    FunctionProto {
        name: name.into(),
        domain: "own".into(),
        input: strings(inputs),
        output: strings(outputs),
        node: nodes,
        opset_import: vec![opset("", 18), opset("own", 1)],
        ..Default::default()
    }
}

fn call(name: &str, function: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { name: name.into(), domain: "own".into(), ..node(function, inputs, outputs) }
}

fn with_functions(graph: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    ModelProto { functions, ..model(graph) }
}

fn fault(result: Result<Model, OnnxError>) -> NodeFault {
    match result {
        Err(OnnxError::BadNode { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

/// Follows a value back to the graph's input, listing the operators.
fn chain(graph: &Graph, output: &str) -> Vec<String> {
    let mut at = output.to_owned();
    let mut ops = Vec::new();
    while let Some(node) = graph.nodes.iter().find(|node| node.outputs.contains(&at)) {
        ops.push(node.op.clone());
        at = node.inputs[0].clone();
    }
    ops.push(at);
    ops
}

#[test]
fn nested_calls_are_inlined_with_unique_names() {
    let inner =
        function("Inner", &["a"], vec![node("Neg", &["a"], &["t"]), node("Abs", &["t"], &["b"])], &["b"]);
    let twice = vec![call("first", "Inner", &["a"], &["t"]), call("second", "Inner", &["t"], &["b"])];
    let outer = function("Outer", &["a"], twice, &["b"]);
    let nodes =
        vec![call("one", "Outer", &["x"], &["one/first/t"]), call("one", "Outer", &["one/first/t"], &["y"])];
    let read = check(&with_functions(graph(&["x"], nodes, &["y"]), vec![outer, inner])).unwrap();
    assert_eq!(chain(&read.graph, "y"), ["Abs", "Neg", "Abs", "Neg", "Abs", "Neg", "Abs", "Neg", "x"]);
    assert!(read.graph.nodes.iter().all(|node| node.opset == 18 && node.name.starts_with("one/")));
    let names: std::collections::BTreeSet<_> = read.graph.nodes.iter().map(|node| &node.name).collect();
    assert_eq!(names.len(), 8);
}

#[test]
fn attributes_are_passed_defaulted_or_left_out() {
    let mut body = node("Softmax", &["a"], &["b"]);
    body.attribute = vec![
        reference("axis", "axis", AttributeType::Int),
        reference("given", "given", AttributeType::Int),
        reference("absent", "absent", AttributeType::Int),
    ];
    let mut function = function("F", &["a"], vec![body], &["b"]);
    function.attribute = strings(&["given", "absent"]);
    function.attribute_proto = vec![int("axis", -1)];
    let mut caller = call("c", "F", &["x"], &["y"]);
    caller.attribute = vec![int("given", 7)];
    let read =
        check(&with_functions(graph(&["x"], vec![caller.clone()], &["y"]), vec![function.clone()])).unwrap();
    let node = &read.graph.nodes[0];
    assert_eq!(node.attr::<i64>("axis").unwrap(), Some(-1));
    assert_eq!(node.attr::<i64>("given").unwrap(), Some(7));
    assert_eq!(node.attr::<i64>("absent").unwrap(), None);

    caller.attribute[0].r#type = AttributeType::Ints as i32;
    let wrong = with_functions(graph(&["x"], vec![caller], &["y"]), vec![function.clone()]);
    assert!(matches!(fault(check(&wrong)), NodeFault::AttributeType { .. }));
    function.attribute.clear();
    let undeclared =
        with_functions(graph(&["x"], vec![call("c", "F", &["x"], &["y"])], &["y"]), vec![function]);
    assert!(matches!(fault(check(&undeclared)), NodeFault::UnknownReference { .. }));
}

#[test]
fn absent_arguments_and_passed_through_inputs_work() {
    let nodes = vec![node("Clip", &["a", "low", "high"], &["b"])];
    let clip = function("F", &["a", "low", "high"], nodes, &["b", "a", "b"]);
    let caller = call("c", "F", &["x", "", "h"], &["y", "same", "again"]);
    let outputs = ["y", "same", "again"];
    let read = check(&with_functions(graph(&["x", "h"], vec![caller], &outputs), vec![clip])).unwrap();
    assert_eq!(read.graph.nodes[0].inputs, ["x", "", "h"]);
    assert_eq!(ops(&read.graph), ["Clip", "Identity", "Identity"]);
    assert_eq!(chain(&read.graph, "same"), ["Identity", "x"]);
    assert_eq!(chain(&read.graph, "again"), ["Identity", "Clip", "x"]);
}

#[test]
fn graphs_in_functions_capture_the_renamed_values() {
    let branch = |op: &str| graph(&[], vec![node(op, &["t"], &["r"])], &["r"]);
    let mut choose = node("If", &["cond"], &["b"]);
    choose.attribute = vec![body("then_branch", branch("Abs")), body("else_branch", branch("Exp"))];
    let function = function("F", &["cond", "a"], vec![node("Neg", &["a"], &["t"]), choose], &["b"]);
    let caller = call("c", "F", &["x", "x"], &["y"]);
    let read = check(&with_functions(graph(&["x"], vec![caller], &["y"]), vec![function])).unwrap();
    assert_eq!(read.graph.nodes[0].outputs, ["c/t"]);
    for branch in read.graph.nodes[1].graphs() {
        assert_eq!(branch.captures, ["c/t"]);
        assert!(branch.outputs[0].name.starts_with("c/r"));
    }
}

#[test]
fn bad_functions_are_refused() {
    let relu = || vec![node("Relu", &["a"], &["b"])];
    let run = |caller: NodeProto, functions: Vec<FunctionProto>| {
        check(&with_functions(graph(&["x"], vec![caller], &["y"]), functions))
    };
    let caller = || call("c", "F", &["x"], &["y"]);
    let twice = vec![function("F", &["a"], relu(), &["b"]), function("F", &["a"], relu(), &["b"])];
    assert!(matches!(run(caller(), twice), Err(OnnxError::DuplicateFunction { .. })));
    let f = function("F", &["a"], vec![call("g", "G", &["a"], &["b"])], &["b"]);
    let g = function("G", &["a"], vec![call("f", "F", &["a"], &["b"])], &["b"]);
    match run(caller(), vec![f, g]) {
        Err(OnnxError::FunctionCycle { functions }) => assert_eq!(functions, ["own.F", "own.G", "own.F"]),
        other => panic!("{other:?}"),
    }
    let outside = function("F", &["a"], vec![node("Add", &["a", "x"], &["b"])], &["b"]);
    assert!(matches!(fault(run(caller(), vec![outside])), NodeFault::FunctionInput { .. }));
    let nothing = function("F", &["a"], relu(), &["z"]);
    assert!(matches!(fault(run(caller(), vec![nothing])), NodeFault::FunctionOutput { .. }));
    let shadow = function("F", &["a"], vec![node("Relu", &["a"], &["a"])], &["a"]);
    assert!(matches!(fault(run(caller(), vec![shadow])), NodeFault::FunctionDuplicate { .. }));
    let narrow = function("F", &[], vec![node("Constant", &[], &["b"])], &["b"]);
    assert!(matches!(fault(run(caller(), vec![narrow])), NodeFault::CallArity { .. }));
}

#[test]
fn exponential_functions_are_refused_quickly() {
    let name = |level: usize| format!("F{level}");
    let level = |level: usize| {
        let next = name(level + 1);
        let nodes = vec![call("l", &next, &["a"], &["t"]), call("r", &next, &["t"], &["b"])];
        function(&name(level), &["a"], nodes, &["b"])
    };
    let mut functions: Vec<_> = (0..40).map(level).collect();
    functions.push(function("F40", &["a"], vec![node("Relu", &["a"], &["b"])], &["b"]));
    let model = with_functions(graph(&["x"], vec![call("c", "F0", &["x"], &["y"])], &["y"]), functions);
    assert!(matches!(check(&model), Err(OnnxError::TooLarge { .. })));
}
