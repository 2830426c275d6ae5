//! Fields of every kind, from the network API and from attributes of ONNX nodes.

use crate::devices::devices;
use crate::examples::{f32s, reference, run_on};
use crate::onnx::{float, import, node, tensor, text};
use crate::{abi, layers_of, library};
use kiln_ir::{Attr, Attrs, DType, TensorType};
use kiln_network::{Network, PluginSpec};
use kiln_onnx::proto::attribute_proto::AttributeType;
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};

fn told() {
    layers_of(&library("fields", &abi::root().join("tests/tests/layers/fields.cpp"), &[]));
}

/// Results of the layer for these fields.
fn wanted(
    integer: i64,
    number: f64,
    text: &str,
    integers: &[i64],
    numbers: &[f64],
    texts: &[&str],
) -> Vec<f64> {
    let sum = |s: &str| s.bytes().zip(1..).map(|(b, i)| f64::from(b) * f64::from(i)).sum::<f64>();
    let list = |values: Vec<f64>| {
        values.len() as f64 + values.iter().zip(1..).map(|(v, i)| v * f64::from(10 * i)).sum::<f64>()
    };
    vec![
        integer as f64,
        number,
        sum(text),
        list(integers.iter().map(|&n| n as f64).collect()),
        list(numbers.to_vec()),
        list(texts.iter().map(|s| sum(s)).collect()),
    ]
}

/// The results on all backends, which are equal.
fn run(fields: Attrs) -> Result<Vec<f64>, String> {
    let mut net = Network::new("n");
    let x = net.add_input("x", TensorType::new(DType::F32, [2])).unwrap();
    let spec = PluginSpec { fields, ..PluginSpec::new("fields", "Told") };
    let y = net.add_plugin(&[x], spec).map_err(|e| e.to_string())?.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let x = [f32s(&[2], &[0.0; 2])];
    let found = run_on(&reference(), &net, &x)?.remove(0);
    for b in devices() {
        assert_eq!(run_on(&b, &net, &x)?, std::slice::from_ref(&found), "{}", b.name());
    }
    Ok(found.to_f64())
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn fields_of_every_kind_reach_the_layer() {
    told();
    let defaults = wanted(3, 0.5, "word", &[1, -2], &[0.25], &["a", ""]);
    assert_eq!(run(Attrs::new()).unwrap(), defaults);
    let all = Attrs::new()
        .with("integer", 7)
        .with("number", -2.5)
        .with("text", "größer")
        .with("integers", vec![4i64, 5, 6])
        .with("numbers", vec![0.5, 1.5])
        .with("texts", strings(&["x", "", "yz"]));
    assert_eq!(run(all).unwrap(), wanted(7, -2.5, "größer", &[4, 5, 6], &[0.5, 1.5], &["x", "", "yz"]));
    let empty = Attrs::new()
        .with("text", "")
        .with("integers", Vec::<i64>::new())
        .with("numbers", Vec::<f64>::new())
        .with("texts", Vec::<String>::new());
    assert_eq!(run(empty).unwrap(), wanted(3, 0.5, "", &[], &[], &[]));
    // Integers serve as numbers.
    assert_eq!(run(Attrs::new().with("number", 2)).unwrap()[1], 2.0);
    assert_eq!(run(Attrs::new().with("numbers", vec![1i64, 2])).unwrap()[4], 2.0 + 10.0 + 40.0);
}

#[test]
fn wrong_fields_are_named() {
    told();
    let refused = |name: &str, value: Attr, says: &[&str]| {
        let e = run(Attrs::new().with(name, value)).unwrap_err();
        for s in says {
            assert!(e.contains(s), "{name}: {e}");
        }
    };
    refused("text", Attr::Int(1), &["text", "an integer", "a string"]);
    refused("integers", Attr::Int(1), &["integers", "a list of integers"]);
    refused("texts", "one".into(), &["texts", "a string"]);
    refused("other", Attr::Int(1), &["other", "integer, number, text, integers, numbers, texts"]);
    // Exceptions of the class become errors with their text.
    refused("integer", Attr::Int(-1), &["a number below 0", "libkiln_layers_fields.so"]);
    refused("text", "memory".into(), &["libkiln_layers_fields.so", "memory"]);
    refused("text", "number".into(), &["an exception that is no std::exception"]);
}

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: r#type as i32, ..AttributeProto::default() }
}

fn with(attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { attribute, ..node("fields", "Told", &["x"], &["y"]) }
}

fn imported(attributes: Vec<AttributeProto>) -> Result<Vec<f64>, String> {
    let net = import(vec![with(attributes)], Vec::new())?;
    Ok(run_on(&reference(), &net, &[f32s(&[3], &[0.0; 3])])?.remove(0).to_f64())
}

#[test]
fn attributes_of_every_kind_become_fields() {
    told();
    let lists = vec![
        AttributeProto { i: 9, ..attribute("integer", AttributeType::Int) },
        float("number", 1.5),
        text("text", "hello"),
        AttributeProto { ints: vec![1, 2], ..attribute("integers", AttributeType::Ints) },
        AttributeProto { floats: vec![2.5], ..attribute("numbers", AttributeType::Floats) },
        AttributeProto {
            strings: vec![b"p".to_vec().into(), b"q".to_vec().into()],
            ..attribute("texts", AttributeType::Strings)
        },
    ];
    assert_eq!(imported(lists).unwrap(), wanted(9, 1.5, "hello", &[1, 2], &[2.5], &["p", "q"]));
    // Tensors are numbers and lists of them.
    let number =
        TensorProto { data_type: DataType::Float as i32, float_data: vec![0.75], ..TensorProto::default() };
    let integer =
        TensorProto { data_type: DataType::Int64 as i32, int64_data: vec![11], ..TensorProto::default() };
    let integers = TensorProto {
        data_type: DataType::Int32 as i32,
        dims: vec![2, 2],
        int32_data: vec![1, 2, 3, 4],
        ..TensorProto::default()
    };
    let numbers = TensorProto {
        data_type: DataType::Double as i32,
        dims: vec![2],
        double_data: vec![0.5, 0.25],
        ..TensorProto::default()
    };
    let tensors = vec![
        tensor("integer", integer),
        tensor("number", number),
        tensor("integers", integers),
        tensor("numbers", numbers),
    ];
    let found = imported(tensors).unwrap();
    assert_eq!(found, wanted(11, 0.75, "word", &[1, 2, 3, 4], &[0.5, 0.25], &["a", ""]));
}

#[test]
fn attributes_that_are_no_fields_are_refused() {
    told();
    let graph =
        AttributeProto { g: Some(GraphProto::default().into()), ..attribute("text", AttributeType::Graph) };
    let e = imported(vec![graph]).unwrap_err();
    assert!(e.contains("text") && e.contains("a graph"), "{e}");
    let bytes = AttributeProto { s: vec![0xff].into(), ..attribute("text", AttributeType::String) };
    let e = imported(vec![bytes]).unwrap_err();
    assert!(e.contains("'text'") && e.contains("UTF-8"), "{e}");
    let many = TensorProto {
        data_type: DataType::Float as i32,
        dims: vec![70_000],
        raw_data: vec![0; 280_000].into(),
        ..TensorProto::default()
    };
    let e = imported(vec![tensor("numbers", many)]).unwrap_err();
    assert!(e.contains("70000 elements") && e.contains("make it an input"), "{e}");
}

/// The last input may be left out, by name or by an empty one; one in front of another may not.
#[test]
fn optional_inputs_that_are_left_out() {
    told();
    let of = |inputs: &[&str]| {
        import(vec![NodeProto { input: strings(inputs), ..with(Vec::new()) }], Vec::new())
            .and_then(|net| run_on(&reference(), &net, &[f32s(&[3], &[0.0; 3])]))
    };
    let wanted = wanted(3, 0.5, "word", &[1, -2], &[0.25], &["a", ""]);
    for inputs in [&["x"][..], &["x", ""], &["x", "", ""], &["x", "x"]] {
        assert_eq!(of(inputs).unwrap()[0].to_f64(), wanted, "{inputs:?}");
    }
    let e = of(&["", "x"]).unwrap_err();
    assert!(e.contains("input 0 of a plug-in layer is left out, and a later one is there"), "{e}");
    let e = of(&["x", "x", "x"]).unwrap_err();
    assert!(e.contains("takes inputs of types f32,f32?:f32"), "{e}");
}
