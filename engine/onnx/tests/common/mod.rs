//! Small models made in code.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;

use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::*;
use kiln_onnx::{Model, ModelFile, OnnxError};
use prost::Message;

pub fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(path)
}

pub fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: format!("{op}_{}", outputs.first().unwrap_or(&"")),
        op_type: op.into(),
        input: strings(inputs),
        output: strings(outputs),
        ..Default::default()
    }
}

pub fn info(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), ..Default::default() }
}

pub fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: "g".into(),
        node: nodes,
        input: inputs.iter().map(|name| info(name)).collect(),
        output: outputs.iter().map(|name| info(name)).collect(),
        ..Default::default()
    }
}

pub fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: domain.into(), version }
}

pub fn model(graph: GraphProto) -> ModelProto {
    ModelProto { ir_version: 8, opset_import: vec![opset("", 17)], graph: Some(graph), ..Default::default() }
}

pub fn tensor(name: &str, data_type: tensor_proto::DataType, dims: &[i64]) -> TensorProto {
    TensorProto { name: name.into(), data_type: data_type as i32, dims: dims.to_vec(), ..Default::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: AttributeType::Int as i32, ..Default::default() }
}

pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    let r#type = AttributeType::Ints as i32;
    AttributeProto { name: name.into(), ints: values.to_vec(), r#type, ..Default::default() }
}

/// A declaration whose dimensions are numbers, or names.
pub fn typed(name: &str, ty: tensor_proto::DataType, dims: &[&str]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |text: &&str| {
        let value = text.parse().map_or(Value::DimParam((*text).into()), Value::DimValue);
        Dimension { value: Some(value), ..Default::default() }
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: ty as i32, shape: Some(shape) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

pub fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        g: Some(Box::new(graph)),
        r#type: AttributeType::Graph as i32,
        ..Default::default()
    }
}

pub fn reference(name: &str, target: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        ref_attr_name: target.into(),
        r#type: ty as i32,
        ..Default::default()
    }
}

/// Checks a model after a round through its encoding.
pub fn check(model: &ModelProto) -> Result<Model, OnnxError> {
    Model::check(&ModelFile::from_bytes(model.encode_to_vec(), None)?)
}

pub fn ops(graph: &kiln_onnx::Graph) -> Vec<&str> {
    graph.nodes.iter().map(|node| node.op.as_str()).collect()
}
