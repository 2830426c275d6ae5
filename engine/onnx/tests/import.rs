//! Names, values and types that an import keeps, and models that it refuses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{body, check, graph, int, model, node, tensor};
use kiln_ir::{DType, Elems, Tensor};
use kiln_network::Network;
use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::tensor_shape_proto::{Dimension, dimension::Value};
use kiln_onnx::proto::type_proto::{Tensor as TensorTypeProto, Value as TypeValue};
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Imported, OnnxError, import};

/// An input of element type `ty`; a dimension is a number, a name, or `?`.
fn input(name: &str, ty: DataType, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| {
        let value = match text.parse() {
            Ok(n) => Some(Value::DimValue(n)),
            Err(_) if *text == "?" => None,
            Err(_) => Some(Value::DimParam((*text).into())),
        };
        Dimension { value, ..Default::default() }
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: ty as i32, shape: Some(shape) };
    let r#type = TypeProto { value: Some(TypeValue::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

fn of(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto { input: inputs, ..graph(&[], nodes, outputs) }
}

fn with_opset(graph: GraphProto, version: i64) -> ModelProto {
    ModelProto { opset_import: vec![common::opset("", version)], ..model(graph) }
}

fn run_import(model: &ModelProto) -> Result<Imported, OnnxError> {
    import(&check(model).unwrap(), &ImportOptions::default())
}

fn layers(network: &Network) -> Vec<(String, &'static str)> {
    network.lower().unwrap().nodes().map(|(_, n)| (n.name.clone(), n.op.name())).collect()
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::f32(&[values.len()], values).unwrap()
}

fn weight(name: &str, values: &[f32]) -> TensorProto {
    let dims = [values.len() as i64];
    TensorProto { float_data: values.to_vec(), ..tensor(name, DataType::Float, &dims) }
}

fn indices(name: &str, values: &[i64]) -> TensorProto {
    let dims = [values.len() as i64];
    TensorProto { int64_data: values.to_vec(), ..tensor(name, DataType::Int64, &dims) }
}

fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        s: s.as_bytes().to_vec().into(),
        r#type: AttributeType::String as i32,
        ..Default::default()
    }
}

/// A scalar constant of a type, from its bytes.
fn scalar(name: &str, ty: DataType, bytes: &[u8]) -> TensorProto {
    TensorProto { raw_data: bytes.to_vec().into(), ..tensor(name, ty, &[]) }
}

#[test]
fn types_that_are_held_in_others_are_noted_by_tensor() {
    let nodes = vec![
        node("Add", &["x", "w"], &["y"]),
        NodeProto { attribute: vec![int("to", DataType::Uint16 as i64)], ..node("Cast", &["y"], &["z"]) },
    ];
    let w = scalar("w", DataType::Double, &0.1f64.to_le_bytes());
    let graph = of(vec![input("x", DataType::Double, &["2"])], nodes, &["y", "z"]);
    let done = run_import(&model(GraphProto { initializer: vec![w], ..graph })).unwrap();
    let outputs: Vec<_> = done.network.outputs().iter().map(|t| done.network.ty(*t).to_string()).collect();
    assert_eq!(outputs, ["f32[2]", "i32[2]"]);
    let wanted = [
        "input 'x' is DOUBLE in the model, f32 in the network: values are rounded to 24 bits",
        "constant 'w' is DOUBLE in the model, f32 in the network: 1 of 1 values are rounded",
        "node 'Cast_z' makes UINT16 in the model, i32 in the network: values are 0 to 65535",
        "output 'z' is UINT16 in the model, i32 in the network: values are 0 to 65535",
    ];
    assert_eq!(done.report.notes, wanted);
}

#[test]
fn constants_that_no_type_holds_are_refused() {
    let with = |w: TensorProto, ty| {
        let graph = of(vec![input("x", ty, &["2"])], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
        run_import(&model(GraphProto { initializer: vec![w], ..graph }))
    };
    let error = with(scalar("w", DataType::Uint64, &u64::MAX.to_le_bytes()), DataType::Uint64).unwrap_err();
    assert!(error.to_string().contains("value 18446744073709551615 at 0 does not fit in i64"), "{error}");
    let error = with(scalar("w", DataType::Double, &1e300f64.to_le_bytes()), DataType::Double).unwrap_err();
    assert!(error.to_string().contains("value 1e300 at 0 does not fit in f32"), "{error}");
    let done = with(scalar("w", DataType::Double, &f64::INFINITY.to_le_bytes()), DataType::Double).unwrap();
    assert!(done.report.notes.iter().any(|n| n.contains("no value changes")), "{:?}", done.report.notes);
}

#[test]
fn operators_without_a_rule_for_a_held_type_are_refused() {
    let nodes = vec![node("Resize", &["x", "", "s"], &["y"])];
    let graph = of(vec![input("x", DataType::Int16, &["1", "1", "4"])], nodes, &["y"]);
    let graph = GraphProto { initializer: vec![weight("s", &[1.0, 1.0, 2.0])], ..graph };
    let error = run_import(&model(graph)).unwrap_err().to_string();
    assert!(error.contains("input 0 ('x') of type INT16"), "{error}");
}

#[test]
fn names_of_dimensions_become_symbols() {
    let x = input("x", DataType::Float, &["batch", "3", "?"]);
    let done = run_import(&model(of(vec![x], vec![node("Relu", &["x"], &["y"])], &["y"]))).unwrap();
    let ty = done.network.ty(done.network.outputs()[0]);
    assert_eq!(ty.to_string(), "f32[batch,3,x.d2]");
}

#[test]
fn shapes_given_replace_declared_ones() {
    let x = input("x", DataType::Float, &["batch", "3"]);
    let model = check(&model(of(vec![x], vec![node("Relu", &["x"], &["y"])], &["y"]))).unwrap();
    let with = |name: &str, shape: &[i64]| ImportOptions { shapes: [(name.into(), shape.to_vec())].into() };
    let done = import(&model, &with("x", &[7, -1])).unwrap();
    assert_eq!(done.network.ty(done.network.outputs()[0]).to_string(), "f32[7,3]");
    for (name, shape, says) in
        [("z", &[1i64][..], "inputs are x"), ("x", &[1], "2 dimensions"), ("x", &[-2, 3], "-2")]
    {
        let error = import(&model, &with(name, shape)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn every_refused_node_is_listed_once() {
    let nodes = vec![
        node("Frobnicate", &["x"], &["a"]),
        node("Relu", &["a"], &["b"]),
        node("StringNormalizer", &["b"], &["c"]),
        NodeProto { name: String::new(), ..node("Dropout", &["x", "", "x"], &["d"]) },
    ];
    let x = input("x", DataType::Float, &["2"]);
    let error = run_import(&model(of(vec![x], nodes, &["c", "d"]))).unwrap_err();
    let OnnxError::Refused(list) = &error else { panic!("{error}") };
    let names: Vec<_> = list.0.iter().map(|r| (r.node.as_str(), r.op.as_str(), r.opset)).collect();
    assert_eq!(
        names,
        [
            ("Frobnicate_a", "Frobnicate", 17),
            ("StringNormalizer_c", "StringNormalizer", 17),
            ("Dropout(d)", "Dropout", 17)
        ]
    );
    assert!(error.to_string().contains("input 2 (training_mode) is f32"), "{error}");
}

#[test]
fn weights_and_layers_keep_their_names() {
    let mut constant = node("Constant", &[], &["two"]);
    constant.attribute = vec![AttributeProto {
        name: "value_floats".into(),
        floats: vec![2.0, 2.0],
        r#type: AttributeType::Floats as i32,
        ..Default::default()
    }];
    // The last node has the name of an output that it does not make.
    let nodes = vec![
        constant,
        NodeProto { name: "scale".into(), ..node("Mul", &["x", "two"], &["m"]) },
        NodeProto { name: "m".into(), ..node("Add", &["m", "w"], &["y"]) },
    ];
    let x = input("x", DataType::Float, &["2"]);
    let graph = GraphProto { initializer: vec![weight("w", &[1.0, 2.0])], ..of(vec![x], nodes, &["y", "m"]) };
    let done = run_import(&model(graph)).unwrap();
    let network = &done.network;
    assert_eq!(layers(network), [("scale".into(), "mul"), ("m/add".into(), "add")]);
    for name in ["w", "two"] {
        let id = network.find(name).unwrap();
        assert_eq!(network.weights(id).unwrap().name.as_deref(), Some(name));
    }
    assert_eq!(done.report.weights, 2);
    let out = network.lower().unwrap().eval(&[floats(&[3.0, 5.0])]).unwrap();
    assert_eq!(out, [floats(&[7.0, 12.0]), floats(&[6.0, 10.0])]);
}

#[test]
fn constants_of_one_element_are_numbers_without_a_name() {
    let number = |name: &str| {
        let mut constant = node("Constant", &[], &[name]);
        constant.attribute = vec![AttributeProto {
            name: "value_float".into(),
            f: 2.0,
            r#type: AttributeType::Float as i32,
            ..Default::default()
        }];
        constant
    };
    let nodes = vec![
        number("two"),
        number("pair"),
        node("Mul", &["x", "two"], &["m"]),
        node("Add", &["m", "pair"], &["y"]),
    ];
    let x = input("x", DataType::Float, &["2"]);
    let done = run_import(&model(of(vec![x], nodes, &["y", "two"]))).unwrap();
    assert_eq!(done.report.weights, 0);
    let out = done.network.lower().unwrap().eval(&[floats(&[3.0, 5.0])]).unwrap();
    assert_eq!(out, [floats(&[8.0, 12.0]), Tensor::f32(&[], &[2.0]).unwrap()]);
}

#[test]
fn outputs_may_be_inputs_weights_and_each_other() {
    let x = input("x", DataType::Float, &["1"]);
    let graph = GraphProto {
        initializer: vec![weight("w", &[4.0])],
        ..of(vec![x], vec![node("Identity", &["x"], &["y"])], &["x", "w", "y"])
    };
    let done = run_import(&model(graph)).unwrap();
    let out = done.network.lower().unwrap().eval(&[floats(&[3.0])]).unwrap();
    assert_eq!(out, [floats(&[3.0]), floats(&[4.0]), floats(&[3.0])]);
}

#[test]
fn an_input_with_a_default_is_a_weight() {
    let inputs = vec![input("x", DataType::Float, &["1"]), input("w", DataType::Float, &["1"])];
    let nodes = vec![node("Add", &["x", "w"], &["y"])];
    let graph = GraphProto { initializer: vec![weight("w", &[4.0])], ..of(inputs, nodes, &["y"]) };
    let done = run_import(&model(graph)).unwrap();
    assert_eq!(done.network.inputs().len(), 1);
}

#[test]
fn old_broadcasts_follow_their_axis() {
    let mut add = node("Add", &["x", "w"], &["y"]);
    add.attribute = vec![int("broadcast", 1), int("axis", 0)];
    let x = input("x", DataType::Float, &["2", "3"]);
    let graph =
        GraphProto { initializer: vec![weight("w", &[10.0, 20.0])], ..of(vec![x], vec![add], &["y"]) };
    let done = run_import(&with_opset(graph, 6)).unwrap();
    let x = Tensor::f32(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let out = done.network.lower().unwrap().eval(&[x]).unwrap();
    assert_eq!(out[0].elems(), Elems::F(vec![10.0, 11.0, 12.0, 23.0, 24.0, 25.0]));
}

#[test]
fn a_split_of_an_unknown_dimension_has_equal_parts_and_a_smaller_last() {
    let mut split = node("Split", &["x"], &["a", "b", "c"]);
    split.attribute = vec![int("num_outputs", 3)];
    let x = input("x", DataType::Float, &["n"]);
    let done = run_import(&with_opset(of(vec![x], vec![split], &["a", "b", "c"]), 18)).unwrap();
    let graph = done.network.lower().unwrap();
    let out = graph.eval(&[floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]).unwrap();
    assert_eq!(out, [floats(&[0.0, 1.0, 2.0]), floats(&[3.0, 4.0, 5.0]), floats(&[6.0])]);
}

#[test]
fn sizes_of_a_split_may_come_at_run_time() {
    let split = node("Split", &["x", "sizes"], &["a", "b"]);
    let inputs = vec![input("x", DataType::Float, &["5"]), input("sizes", DataType::Int64, &["2"])];
    let done = run_import(&with_opset(of(inputs, vec![split], &["a", "b"]), 17)).unwrap();
    let sizes = Tensor::i64(&[2], &[4, 1]).unwrap();
    let out = done.network.lower().unwrap().eval(&[floats(&[0.0, 1.0, 2.0, 3.0, 4.0]), sizes]).unwrap();
    assert_eq!(out, [floats(&[0.0, 1.0, 2.0, 3.0]), floats(&[4.0])]);
}

#[test]
fn softmax_flattened_before_version_13() {
    let mut softmax = node("Softmax", &["x"], &["y"]);
    softmax.attribute = vec![int("axis", 1)];
    let x = || input("x", DataType::Float, &["b", "2", "2"]);
    let eval = |version| {
        let done = run_import(&with_opset(of(vec![x()], vec![softmax.clone()], &["y"]), version)).unwrap();
        let zeros = Tensor::f32(&[1, 2, 2], &[0.0; 4]).unwrap();
        done.network.lower().unwrap().eval(&[zeros]).unwrap()[0].elems()
    };
    assert_eq!((eval(12), eval(13)), (Elems::F(vec![0.25; 4]), Elems::F(vec![0.5; 4])));
}

#[test]
fn a_branch_is_taken_when_its_condition_is_known() {
    let then = graph(&[], vec![node("Neg", &["x"], &["t"])], &["t"]);
    let other = graph(&[], vec![node("Exp", &["x"], &["e"])], &["e"]);
    let mut branch = node("If", &["c"], &["y"]);
    branch.attribute = vec![body("then_branch", then), body("else_branch", other)];
    let x = input("x", DataType::Float, &["1"]);
    let condition = TensorProto { int32_data: vec![1], ..tensor("c", DataType::Bool, &[]) };
    let known =
        GraphProto { initializer: vec![condition], ..of(vec![x.clone()], vec![branch.clone()], &["y"]) };
    let done = run_import(&model(known)).unwrap();
    assert_eq!(layers(&done.network), [("Neg_t".into(), "neg")]);
    assert!(done.report.notes[0].contains("'If_y' is its then_branch"), "{:?}", done.report.notes);
    // One that is not known makes a conditional, whose branches hold what they alone need.
    let inputs = vec![x, input("c", DataType::Bool, &[])];
    let done = run_import(&model(of(inputs, vec![branch], &["y"]))).unwrap();
    let g = done.network.lower().unwrap();
    let node = g.nodes().next().unwrap().1;
    assert_eq!((node.name.as_str(), node.op.name(), g.nodes().count()), ("If_y", "if", 1));
    for (c, wanted) in [(1, -2.0), (0, 2f32.exp())] {
        let c = Tensor::from_bytes(DType::Bool, &[], vec![c]).unwrap();
        let y = g.eval(&[floats(&[2.0]), c]).unwrap()[0].to_f64()[0];
        assert!((y - f64::from(wanted)).abs() < 1e-5, "{y}");
    }
}

#[test]
fn doubles_become_floats_with_a_note() {
    let double = TensorProto { double_data: vec![0.5], ..tensor("w", DataType::Double, &[1]) };
    let nodes = vec![node("Mul", &["x", "w"], &["y"])];
    let x = input("x", DataType::Float, &["1"]);
    let done = run_import(&model(GraphProto { initializer: vec![double], ..of(vec![x], nodes, &["y"]) }));
    let done = done.unwrap();
    assert_eq!(
        done.report.notes,
        ["constant 'w' is DOUBLE in the model, f32 in the network: no value changes"]
    );
    let w = done.network.find("w").unwrap();
    assert_eq!(done.network.ty(w).dtype, DType::F32);
}

#[test]
fn an_einsum_keeps_its_equation_and_inputs() {
    let mut einsum = node("Einsum", &["x", "x"], &["y"]);
    einsum.attribute = vec![text("equation", "i,i->")];
    let x = input("x", DataType::Float, &["3"]);
    let done = run_import(&model(of(vec![x], vec![einsum], &["y"]))).unwrap();
    let out = done.network.lower().unwrap().eval(&[floats(&[1.0, 2.0, 3.0])]).unwrap();
    assert_eq!(out[0].elems(), Elems::F(vec![14.0]));
}

#[test]
fn slices_take_bounds_from_attributes_or_inputs() {
    let x = || input("x", DataType::Float, &["4"]);
    let mut old = node("Slice", &["x"], &["y"]);
    let list = |name: &str, v: i64| AttributeProto {
        name: name.into(),
        ints: vec![v],
        r#type: AttributeType::Ints as i32,
        ..Default::default()
    };
    old.attribute = vec![list("starts", 1), list("ends", -1)];
    let new = node("Slice", &["x", "s", "e", "", "t"], &["y"]);
    let starts = || vec![indices("s", &[1]), indices("e", &[-1]), indices("t", &[1])];
    let old = with_opset(of(vec![x()], vec![old], &["y"]), 9);
    let new = GraphProto { initializer: starts(), ..of(vec![x()], vec![new], &["y"]) };
    for model in [old, with_opset(new, 13)] {
        let done = run_import(&model).unwrap();
        let out = done.network.lower().unwrap().eval(&[floats(&[0.0, 1.0, 2.0, 3.0])]).unwrap();
        assert_eq!(out[0], floats(&[1.0, 2.0]));
    }
}
