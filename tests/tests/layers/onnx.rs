//! ONNX nodes of a plug-in's domain.

use crate::example;
use crate::examples::{f32s, reference, run_on};
use kiln_ir::Tensor;
use kiln_network::Network;
use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Model, ModelFile};
use prost::Message;

pub fn node(domain: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let strings = |all: &[&str]| all.iter().map(|s| s.to_string()).collect();
    NodeProto {
        name: format!("{op}_{}", outputs[0]),
        domain: domain.into(),
        op_type: op.into(),
        input: strings(inputs),
        output: strings(outputs),
        ..NodeProto::default()
    }
}

pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f, r#type: AttributeType::Float as i32, ..AttributeProto::default() }
}

pub fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        s: s.as_bytes().to_vec().into(),
        r#type: AttributeType::String as i32,
        ..AttributeProto::default()
    }
}

pub fn tensor(name: &str, t: TensorProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        t: Some(Box::new(t)),
        r#type: AttributeType::Tensor as i32,
        ..AttributeProto::default()
    }
}

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |d: &i64| Dimension { value: Some(Value::DimValue(*d)), ..Dimension::default() };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.into(), r#type: Some(ty), ..ValueInfoProto::default() }
}

/// A model of one input "x" f32[3] and output "y", of these nodes and functions.
pub fn import(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> Result<Network, String> {
    let graph = GraphProto {
        name: "g".into(),
        node: nodes,
        input: vec![value("x", &[3])],
        output: vec![ValueInfoProto { name: "y".into(), ..ValueInfoProto::default() }],
        ..GraphProto::default()
    };
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.into(), version };
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![opset("", 18), opset("example", 1), opset("fields", 1), opset("trt.plugins", 1)],
        graph: Some(graph),
        functions,
        ..ModelProto::default()
    };
    let file = ModelFile::from_bytes(model.encode_to_vec(), None).map_err(|e| e.to_string())?;
    let model = Model::check(&file).map_err(|e| e.to_string())?;
    let imported = kiln_onnx::import(&model, &ImportOptions::default()).map_err(|e| e.to_string())?;
    Ok(imported.network)
}

fn run(net: &Network) -> Vec<f64> {
    let x = f32s(&[3], &[-1.0, 0.0, 2.0]);
    run_on(&reference(), net, &[x]).unwrap().remove(0).to_f64()
}

fn swish(beta: f64) -> Vec<f64> {
    [-1.0, 0.0, 2.0].map(|x: f64| x / (1.0 + (-beta * x).exp())).to_vec()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6)
}

#[test]
fn nodes_of_the_domain_are_layers_and_attributes_are_fields() {
    example("swish");
    let with_beta =
        NodeProto { attribute: vec![float("beta", 3.0)], ..node("example", "Swish", &["x"], &["y"]) };
    assert!(near(&run(&import(vec![with_beta], Vec::new()).unwrap()), &swish(3.0)));
    let wrong =
        NodeProto { attribute: vec![float("gamma", 3.0)], ..node("example", "Swish", &["x"], &["y"]) };
    let e = import(vec![wrong], Vec::new()).map(drop).unwrap_err();
    assert!(e.contains("Swish_y") && e.contains("\"gamma\"") && e.contains("one of beta"), "{e}");
    let more = node("example", "Swish", &["x"], &["y", "z"]);
    let e = import(vec![more], Vec::new()).map(drop).unwrap_err();
    assert!(e.contains("output 1 of this plug-in layer, which has 1"), "{e}");
}

#[test]
fn nodes_that_exporters_write_for_tensorrt_name_namespace_and_version() {
    example("swish");
    let with = |namespace: &str, version: &str| NodeProto {
        attribute: vec![
            text("plugin_namespace", namespace),
            text("plugin_version", version),
            float("beta", 0.5),
        ],
        ..node("trt.plugins", "Swish", &["x"], &["y"])
    };
    assert!(near(&run(&import(vec![with("example", "1")], Vec::new()).unwrap()), &swish(0.5)));
    let e = import(vec![with("example", "2")], Vec::new()).map(drop).unwrap_err();
    assert!(e.contains("no conversion is known for this operator; if a plug-in defines it"), "{e}");
    let standard = NodeProto { domain: String::new(), ..with("example", "1") };
    assert!(near(&run(&import(vec![standard], Vec::new()).unwrap()), &swish(0.5)));
}

/// A function of the model runs where the plug-in is missing, and the plug-in where it is there.
#[test]
fn a_plug_in_goes_before_a_function_of_its_name() {
    example("swish");
    let function = |name: &str| FunctionProto {
        name: name.into(),
        domain: "example".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![node("", "Neg", &["a"], &["b"])],
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 18 }],
        ..FunctionProto::default()
    };
    let other = import(vec![node("example", "Missing", &["x"], &["y"])], vec![function("Missing")]).unwrap();
    assert_eq!(run(&other), [1.0, 0.0, -2.0]);
    let own = import(vec![node("example", "Swish", &["x"], &["y"])], vec![function("Swish")]).unwrap();
    assert!(near(&run(&own), &swish(1.0)));
}

#[test]
fn a_layer_that_finds_sizes_is_imported() {
    example("nms");
    let scores = TensorProto {
        name: "s".into(),
        data_type: DataType::Float as i32,
        dims: vec![1],
        float_data: vec![0.5],
        ..TensorProto::default()
    };
    let constant =
        NodeProto { attribute: vec![tensor("value", scores)], ..node("", "Constant", &[], &["s"]) };
    let boxes = TensorProto {
        name: "b".into(),
        data_type: DataType::Float as i32,
        dims: vec![1, 4],
        float_data: vec![0.0, 0.0, 1.0, 1.0],
        ..TensorProto::default()
    };
    let boxes = NodeProto { attribute: vec![tensor("value", boxes)], ..node("", "Constant", &[], &["b"]) };
    let net =
        import(vec![constant, boxes, node("example", "BestBoxes", &["b", "s"], &["y", "n"])], Vec::new());
    let out = run_on(&reference(), &net.unwrap(), &[f32s(&[3], &[0.0; 3])]).unwrap();
    assert_eq!(out, [Tensor::f32(&[1, 4], &[0.0, 0.0, 1.0, 1.0]).unwrap()]);
}
