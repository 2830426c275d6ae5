//! Operators of the newest sets: attention with graphs inside, states, reinterpreted bits.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use common::{body, check, graph, int, model, node, opset};
use kiln_ir::{DType, Elems, Tensor};
use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::tensor_shape_proto::{Dimension, dimension::Value};
use kiln_onnx::proto::type_proto::{Tensor as TensorTypeProto, Value as TypeValue};
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Imported, OnnxError, import};

/// An input whose dimensions are numbers, or names.
fn input(name: &str, ty: DataType, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| {
        let value = text.parse().map_or(Value::DimParam((*text).into()), Value::DimValue);
        Dimension { value: Some(value), ..Default::default() }
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: ty as i32, shape: Some(shape) };
    let r#type = TypeProto { value: Some(TypeValue::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.into(), r#type: Some(r#type), ..Default::default() }
}

fn floats(inputs: &[(&str, &[&str])]) -> Vec<ValueInfoProto> {
    inputs.iter().map(|(name, dims)| input(name, DataType::Float, dims)).collect()
}

fn text(name: &str, s: &str) -> AttributeProto {
    let s = s.as_bytes().to_vec().into();
    AttributeProto { name: name.into(), s, r#type: AttributeType::String as i32, ..Default::default() }
}

fn run_import(
    input: Vec<ValueInfoProto>,
    nodes: Vec<NodeProto>,
    outputs: &[&str],
) -> Result<Imported, OnnxError> {
    let opset_import = vec![opset("", 28), opset("ai.onnx.preview", 1)];
    let graph = GraphProto { input, ..graph(&[], nodes, outputs) };
    import(&check(&ModelProto { opset_import, ..model(graph) }).unwrap(), &ImportOptions::default())
}

#[track_caller]
fn refused(input: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, says: &str) {
    let error = run_import(input, nodes, &["y"]).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

fn layers(done: &Imported) -> Vec<&'static str> {
    done.network.lower().unwrap().nodes().map(|(_, n)| n.op.name()).collect()
}

fn eval(done: &Imported, inputs: &[Tensor]) -> Vec<Tensor> {
    done.network.lower().unwrap().eval(inputs).unwrap()
}

fn f32s(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::f32(shape, v).unwrap()
}

fn with(mut node: NodeProto, attribute: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attribute;
    node
}

/// A node y or another output out of q, k and v.
fn flex(output: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    let node = with(node("FlexAttention", &["q", "k", "v"], &[output]), attribute);
    NodeProto { domain: "ai.onnx.preview".into(), ..node }
}

/// s + m, where m is a value around the graph.
fn added(output_of: &str) -> GraphProto {
    let s = input("s", DataType::Float, &["b", "h", "l", "n"]);
    GraphProto { input: vec![s], ..graph(&[], vec![node("Add", &["s", output_of], &["o"])], &["o"]) }
}

const ONE_HEAD: &[(&str, &[&str])] =
    &[("q", &["1", "1", "2", "1"]), ("k", &["1", "1", "2", "1"]), ("v", &["1", "1", "2", "1"])];

#[test]
fn attention_without_graphs_is_one_layer() {
    let dims: &[(&str, &[&str])] =
        &[("q", &["b", "4", "l", "8"]), ("k", &["b", "2", "n", "8"]), ("v", &["b", "2", "n", "6"])];
    let done = run_import(floats(dims), vec![flex("y", vec![])], &["y"]).unwrap();
    assert_eq!(layers(&done), ["attention"]);
    assert_eq!(done.network.ty(done.network.outputs()[0]).to_string(), "f32[b,4,l,6]");
}

#[test]
fn graphs_read_values_around_them_and_may_be_those_of_several_nodes() {
    let nodes =
        vec![flex("y", vec![body("score_mod", added("m"))]), flex("z", vec![body("score_mod", added("m"))])];
    let mut ins = floats(ONE_HEAD);
    ins.push(input("m", DataType::Float, &["2", "2"]));
    let done = run_import(ins, nodes, &["y", "z"]).unwrap();
    let zeros = f32s(&[1, 1, 2, 1], &[0.0, 0.0]);
    let v = f32s(&[1, 1, 2, 1], &[4.0, 8.0]);
    let ln3 = 3f32.ln();
    // Weights of 1/4 and 3/4, then of 1 and 0.
    let m = f32s(&[2, 2], &[0.0, ln3, 0.0, f32::NEG_INFINITY]);
    for y in eval(&done, &[zeros.clone(), zeros, v, m]) {
        let y = y.to_f64();
        assert!((y[0] - 7.0).abs() < 1e-5 && (y[1] - 4.0).abs() < 1e-5, "{y:?}");
    }
}

#[test]
fn key_heads_serve_groups_of_query_heads_between_graphs() {
    // Heads 0 and 1 read values of 1, heads 2 and 3 those of 10; probabilities are doubled.
    let s = input("s", DataType::Float, &["b", "h", "l", "n"]);
    let double = GraphProto { input: vec![s], ..graph(&[], vec![node("Add", &["s", "s"], &["o"])], &["o"]) };
    let dims: &[(&str, &[&str])] =
        &[("q", &["b", "4", "l", "2"]), ("k", &["b", "2", "n", "2"]), ("v", &["b", "2", "n", "1"])];
    let done = run_import(floats(dims), vec![flex("y", vec![body("prob_mod", double)])], &["y"]).unwrap();
    assert_eq!(done.network.ty(done.network.outputs()[0]).to_string(), "f32[b,4,l,1]");
    let q = f32s(&[1, 4, 3, 2], &[0.5; 24]);
    let k = f32s(&[1, 2, 2, 2], &[1.0; 8]);
    let v = f32s(&[1, 2, 2, 1], &[1.0, 1.0, 10.0, 10.0]);
    let y = eval(&done, &[q, k, v]).remove(0);
    let want: Vec<f64> = [2.0, 20.0].iter().flat_map(|x| [*x; 6]).collect();
    assert_eq!((y.shape(), y.to_f64()), (&[1usize, 4, 3, 1][..], want));
}

#[test]
fn graphs_that_change_type_or_shape_and_heads_that_do_not_fit_are_refused() {
    let s = || input("s", DataType::Float, &["b", "h", "l", "n"]);
    let of = |nodes, outputs: &[&str]| GraphProto { input: vec![s()], ..graph(&[], nodes, outputs) };
    let cast = with(node("Cast", &["s"], &["o"]), vec![int("to", DataType::Float16 as i64)]);
    refused(floats(ONE_HEAD), vec![flex("y", vec![body("score_mod", of(vec![cast], &["o"]))])], "no change");
    let flat = with(node("ReduceSum", &["s"], &["o"]), vec![int("keepdims", 0)]);
    refused(floats(ONE_HEAD), vec![flex("y", vec![body("prob_mod", of(vec![flat], &["o"]))])], "prob_mod");
    let two = of(vec![node("Neg", &["s"], &["o"])], &["o", "s"]);
    refused(floats(ONE_HEAD), vec![flex("y", vec![body("score_mod", two)])], "1 inputs and 2 outputs");
    let precision = vec![int("softmax_precision", DataType::Int32 as i64)];
    refused(floats(ONE_HEAD), vec![flex("y", precision)], "float type");
    let dims: &[(&str, &[&str])] =
        &[("q", &["1", "3", "2", "4"]), ("k", &["1", "2", "2", "4"]), ("v", &["1", "2", "2", "4"])];
    let id = of(vec![node("Identity", &["s"], &["o"])], &["o"]);
    refused(floats(dims), vec![flex("y", vec![body("score_mod", id)])], "divides 3");
}

#[test]
fn convolutions_with_a_state_take_states_of_one_length() {
    let dims: &[(&str, &[&str])] =
        &[("x", &["b", "2", "l"]), ("w", &["2", "1", "3"]), ("p", &["b", "2", "s"])];
    let conv = |attribute| with(node("CausalConvWithState", &["x", "w", "", "p"], &["y", "s"]), attribute);
    let done = run_import(floats(dims), vec![conv(vec![])], &["y", "s"]).unwrap();
    let names: Vec<String> = done.network.outputs().iter().map(|o| done.network.ty(*o).to_string()).collect();
    assert_eq!(names[1], "f32[b,2,2]");
    let x = f32s(&[1, 2, 1], &[3.0, 30.0]);
    let w = f32s(&[2, 1, 3], &[1.0, 2.0, 4.0, 1.0, 0.0, 0.0]);
    let out = eval(&done, &[x.clone(), w.clone(), f32s(&[1, 2, 2], &[1.0, 2.0, 10.0, 20.0])]);
    assert_eq!(out, [f32s(&[1, 2, 1], &[17.0, 10.0]), f32s(&[1, 2, 2], &[2.0, 3.0, 20.0, 30.0])]);
    let graph = done.network.lower().unwrap();
    assert!(graph.eval(&[x, w, f32s(&[1, 2, 3], &[0.0; 6])]).is_err());
    refused(floats(dims), vec![conv(vec![text("activation", "relu")])], "none, silu or swish");
    let longer: &[(&str, &[&str])] =
        &[("x", &["b", "2", "l"]), ("w", &["2", "1", "3"]), ("p", &["b", "2", "3"])];
    refused(floats(longer), vec![conv(vec![])], "[batch, channels, 2]");
    let groups: &[(&str, &[&str])] =
        &[("x", &["b", "2", "l"]), ("w", &["4", "1", "3"]), ("p", &["b", "2", "2"])];
    refused(floats(groups), vec![conv(vec![])], "y");
}

#[test]
fn rules_of_linear_attention_are_checked() {
    let dims: &[(&str, &[&str])] =
        &[("q", &["b", "t", "8"]), ("k", &["b", "t", "4"]), ("v", &["b", "t", "6"]), ("g", &["b", "t", "2"])];
    let heads =
        |more: Vec<AttributeProto>| [vec![int("q_num_heads", 4), int("kv_num_heads", 2)], more].concat();
    let of = |inputs: &[&str], more| with(node("LinearAttention", inputs, &["y", "s"]), heads(more));
    let gated = of(&["q", "k", "v", "", "g"], vec![text("update_rule", "gated")]);
    let done = run_import(floats(dims), vec![gated], &["y", "s"]).unwrap();
    assert_eq!(layers(&done), ["linear_attention"]);
    let linear = of(&["q", "k", "v", "", "g"], vec![text("update_rule", "linear")]);
    refused(floats(dims), vec![linear], "does not read it");
    refused(floats(dims), vec![of(&["q", "k", "v"], vec![text("update_rule", "other")])], "update_rule");
    refused(floats(dims), vec![of(&["q", "k", "v"], vec![text("update_rule", "gated")])], "decay");
    let chunk = vec![text("update_rule", "linear"), int("chunk_size", 0)];
    refused(floats(dims), vec![of(&["q", "k", "v"], chunk)], "chunk_size");
    let none = with(node("LinearAttention", &["q", "k", "v"], &["y"]), vec![int("q_num_heads", 4)]);
    refused(floats(dims), vec![none], "kv_num_heads");
}

#[test]
fn bits_become_types_as_wide() {
    let cast = |to: DataType| vec![with(node("BitCast", &["x"], &["y"]), vec![int("to", to as i64)])];
    refused(floats(&[("x", &["2"])]), cast(DataType::Float16), "16 bits");
    refused(floats(&[("x", &["2"])]), cast(DataType::String), "STRING");
    refused(vec![input("x", DataType::Int64, &["2"])], cast(DataType::Uint64), "bits as UINT64");
    let done = run_import(vec![input("x", DataType::Uint8, &["3"])], cast(DataType::Bool), &["y"]).unwrap();
    let bytes = Tensor::from_elems(DType::U8, &[3], &Elems::I(vec![0, 1, 200])).unwrap();
    assert_eq!(eval(&done, &[bytes])[0].bytes(), [0, 1, 1]);
}

#[test]
fn gates_do_not_stretch_and_spectra_are_complex() {
    let ins = floats(&[("a", &["2", "3"]), ("b", &["3"])]);
    refused(ins, vec![node("SwiGLU", &["a", "b"], &["y"])], "same shape");
    let dft = with(node("DFT", &["x"], &["y"]), vec![int("inverse", 1), int("onesided", 1)]);
    refused(floats(&[("x", &["2", "3", "1"])]), vec![dft], "complex");
}
