//! Trained models give the outputs that they were measured with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use std::collections::BTreeMap;

use common::data;
use kiln_ir::{DType, Tensor};
use kiln_npz::{Array, NpyType, read_npz};
use kiln_onnx::{ImportOptions, parse_file};

fn arrays(path: &str) -> BTreeMap<String, Array> {
    read_npz(data(path)).unwrap()
}

/// The first `rows` of an array of floats, as a tensor.
fn head(array: &Array, rows: usize) -> Tensor {
    let mut shape: Vec<usize> = array.shape.iter().map(|d| *d as usize).collect();
    let row: usize = shape[1..].iter().product();
    shape[0] = rows;
    Tensor::f32(&shape, &array.to_f32().unwrap()[..rows * row]).unwrap()
}

fn eval(model: &str, inputs: &[Tensor]) -> Vec<f64> {
    let done = parse_file(data(model), &ImportOptions::default()).unwrap();
    done.network.lower().unwrap().eval(inputs).unwrap()[0].to_f64()
}

fn assert_close(model: &str, found: &[f64], wanted: &[f32], tolerance: f64) {
    for (i, (a, b)) in found.iter().zip(wanted).enumerate() {
        assert!((a - f64::from(*b)).abs() <= tolerance, "{model}: logit {i} is {a}, wanted {b}");
    }
}

#[test]
fn digit_classifiers_agree() {
    let rows = 2;
    let images = head(&arrays("digits/digits_test.npz")["images"], rows);
    // The quantized ones may round a value to the other side; a step of their logits is about 0.2.
    for (name, tolerance) in
        [("lenet_a", 1e-4), ("lenet_a_bn", 1e-4), ("lenet_a_qdq", 0.05), ("lenet_a_qdq_ort", 0.3)]
    {
        let found = eval(&format!("digits/{name}.onnx"), std::slice::from_ref(&images));
        let wanted = arrays(&format!("digits/logits_{name}.npz"))["logits"].to_f32().unwrap();
        assert_eq!(found.len(), rows * 10);
        assert_close(name, &found, &wanted, tolerance);
    }
}

/// A whole array as a tensor.
fn whole(array: &Array) -> Tensor {
    let shape: Vec<usize> = array.shape.iter().map(|d| *d as usize).collect();
    let dtype = match array.dtype {
        NpyType::I64 => DType::I64,
        NpyType::F32 => DType::F32,
        NpyType::F16 => DType::F16,
        other => panic!("{other:?}"),
    };
    Tensor::from_bytes(dtype, &shape, array.data.clone()).unwrap()
}

#[test]
fn text_classifiers_agree_at_any_length() {
    for (name, tolerance) in [("bert_tiny", 1e-4), ("bert_tiny_fp16", 0.02)] {
        let stored = arrays(&format!("nlp/logits_{name}.npz"));
        let inputs = ["padded_input_ids", "padded_attention_mask"].map(|name| whole(&stored[name]));
        let found = eval(&format!("nlp/{name}.onnx"), &inputs);
        assert_eq!(found.len(), 4 * 8);
        let wanted: Vec<f32> = whole(&stored["padded_logits"]).to_f64().iter().map(|x| *x as f32).collect();
        assert_close(name, &found, &wanted, tolerance);
    }
}

#[test]
fn recurrent_language_models_agree() {
    for name in ["h128", "h96x2"] {
        let stored = arrays(&format!("charrnn/{name}_logits.npz"));
        let inputs = ["batch3_ids", "batch3_h0", "batch3_c0"].map(|name| whole(&stored[name]));
        let found = eval(&format!("charrnn/{name}_lstm.onnx"), &inputs);
        assert_eq!(found.len(), 48 * 3 * 84);
        assert_close(name, &found, &stored["batch3_logits"].to_f32().unwrap(), 1e-4);
    }
}
