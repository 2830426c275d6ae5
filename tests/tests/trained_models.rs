//! Trained models give the accuracies and logits that were measured when they were made, on every backend.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Narrowing};
use kiln_ir::{DType, Tensor};
use kiln_runtime::Engine;
use kiln_tests::backends::{cpu, cuda, wgpu};
use kiln_tests::models::{archive, argmax, difference, engine, rows};
use std::sync::Arc;

fn lenet(name: &str, backend: &Arc<dyn Backend>, config: BuildConfig) -> Engine {
    let shapes: &[(&str, [&[i64]; 3])] = &[("input", [&[1, 1, 28, 28], &[8, 1, 28, 28], &[100, 1, 28, 28]])];
    engine(&format!("digits/{name}.onnx"), backend, shapes, config).unwrap()
}

/// Predictions for the 500 test images, and the logits of the first 16, with batches that change.
fn predict(e: &Engine) -> (Vec<usize>, Tensor) {
    let images = archive("digits/digits_test.npz").unwrap().remove("images").unwrap();
    let mut context = e.create_context().unwrap();
    let mut logits = |from: usize, to: usize| {
        let batch = rows(&images, from, to).unwrap();
        context.run(&[("input", batch)]).unwrap().remove(0).1
    };
    let first = logits(0, 16);
    let mut all = argmax(&first);
    let mut at = 16;
    for size in [84, 100, 100, 100, 99, 1] {
        all.extend(argmax(&logits(at, at + size)));
        at += size;
    }
    (all, first)
}

fn correct(predicted: &[usize]) -> usize {
    let labels = archive("digits/digits_test.npz").unwrap().remove("labels").unwrap().to_i64();
    assert_eq!(labels.len(), predicted.len());
    labels.iter().zip(predicted).filter(|(l, p)| **l == **p as i64).count()
}

fn digits(backend: &Arc<dyn Backend>) {
    for (name, wanted, tolerance) in [
        ("lenet_a", 497, 1e-4),
        ("lenet_b", 490, 1e-4),
        ("lenet_a_bn", 499, 1e-4),
        ("lenet_a_sparse24", 498, 1e-4),
        ("lenet_a_qdq", 497, 1e-1),
        ("lenet_a_qdq_ort", 497, 1e-1),
    ] {
        let (predicted, first) =
            predict(&lenet(name, backend, BuildConfig { strict: true, ..BuildConfig::default() }));
        let expected = archive(&format!("digits/logits_{name}.npz")).unwrap();
        assert_eq!(correct(&predicted), wanted, "{name}");
        let d = difference(&first, &expected["logits"]);
        assert!(d <= tolerance, "{name}: logits differ by {d}");
    }
}

fn digits_f16(backend: &Arc<dyn Backend>) {
    for (name, wanted) in [("lenet_a", 497i64), ("lenet_b", 490), ("lenet_a_bn", 499)] {
        let narrowing = Narrowing::Everywhere;
        let config = BuildConfig { reduced: vec![DType::F16], narrowing, ..BuildConfig::default() };
        let e = lenet(name, backend, config);
        let half = e.program().steps.iter().any(|s| s.name.contains("f16") || s.name.contains("conv"));
        assert!(half, "{name} runs in f32");
        let n = correct(&predict(&e).0) as i64;
        assert!((n - wanted).abs() <= 1, "{name}: {n} correct, {wanted} in f32");
    }
}

fn nlp(backend: &Arc<dyn Backend>, file: &str, tolerance: f64) {
    let shapes: &[(&str, [&[i64]; 3])] = &[
        ("input_ids", [&[1, 1], &[4, 65], &[16, 128]]),
        ("attention_mask", [&[1, 1], &[4, 65], &[16, 128]]),
    ];
    let e = engine(&format!("nlp/{file}.onnx"), backend, shapes, BuildConfig::default()).unwrap();
    let expected = archive(&format!("nlp/logits_{file}.npz")).unwrap();
    let mut context = e.create_context().unwrap();
    let mut logits = |ids: &Tensor, mask: &Tensor| {
        context.run(&[("input_ids", ids.clone()), ("attention_mask", mask.clone())]).unwrap().remove(0).1
    };
    let ids = rows(&archive("nlp/nlp_test.npz").unwrap()["input_ids"], 0, 16).unwrap();
    let ones = Tensor::i64(ids.shape(), &vec![1; ids.len()]).unwrap();
    let d = difference(&logits(&ids, &ones), &expected["logits"]);
    assert!(d <= tolerance, "{file}: logits differ by {d}");
    let d = difference(
        &logits(&expected["padded_input_ids"], &expected["padded_attention_mask"]),
        &expected["padded_logits"],
    );
    assert!(d <= tolerance, "{file}: logits of the padded batch differ by {d}");
}

/// One network with the LSTM operator, and with the cell spelt out in a scan, which becomes that operator.
fn charrnn(backend: &Arc<dyn Backend>, name: &str, layers: i64, hidden: i64) {
    let state: [&[i64]; 3] = [&[layers, 1, hidden], &[layers, 3, hidden], &[layers, 4, hidden]];
    let shapes: &[(&str, [&[i64]; 3])] =
        &[("ids", [&[1, 1], &[48, 3], &[64, 4]]), ("h0", state), ("c0", state)];
    for form in ["lstm", "scan"] {
        let file = format!("charrnn/{name}_{form}.onnx");
        let e = engine(&file, backend, shapes, BuildConfig::default()).unwrap();
        let program = e.program();
        let count = |op: &str| program.graph.nodes().filter(|(_, n)| n.op.name() == op).count() as i64;
        assert_eq!((count("lstm"), count("loop")), (layers, 0), "{file}");
        let data = archive(&format!("charrnn/{name}_logits.npz")).unwrap();
        let mut context = e.create_context().unwrap();
        let inputs: Vec<(&str, Tensor)> =
            ["ids", "h0", "c0"].iter().map(|n| (*n, data[&format!("batch3_{n}")].clone())).collect();
        for (out, found) in context.run(&inputs).unwrap() {
            let d = difference(&found, &data[&format!("batch3_{out}")]);
            assert!(d <= 1e-4, "{file}: {out} differs by {d}");
        }
    }
}

#[test]
fn digits_on_cpu() {
    digits(&cpu());
}

#[test]
fn digits_in_f16_on_cpu() {
    digits_f16(&cpu());
}

#[test]
fn nlp_on_cpu() {
    nlp(&cpu(), "bert_tiny", 1e-4);
    nlp(&cpu(), "bert_tiny_fp16", 2e-2);
}

#[test]
fn charrnn_on_cpu() {
    charrnn(&cpu(), "h128", 1, 128);
    charrnn(&cpu(), "h96x2", 2, 96);
}

#[test]
fn digits_on_wgpu() {
    wgpu().unwrap().iter().for_each(digits);
}

#[test]
fn digits_in_f16_on_wgpu() {
    wgpu().unwrap().iter().for_each(digits_f16);
}

#[test]
fn nlp_on_wgpu() {
    for b in wgpu().unwrap().iter() {
        nlp(b, "bert_tiny", 1e-4);
        nlp(b, "bert_tiny_fp16", 2e-2);
    }
}

#[test]
fn charrnn_on_wgpu() {
    for b in wgpu().unwrap().iter() {
        charrnn(b, "h128", 1, 128);
        charrnn(b, "h96x2", 2, 96);
    }
}

#[test]
fn digits_on_cuda() {
    cuda().unwrap().iter().for_each(digits);
}

#[test]
fn digits_in_f16_on_cuda() {
    cuda().unwrap().iter().for_each(digits_f16);
}

#[test]
fn nlp_on_cuda() {
    for b in cuda().unwrap().iter() {
        nlp(b, "bert_tiny", 1e-4);
        nlp(b, "bert_tiny_fp16", 2e-2);
    }
}

#[test]
fn charrnn_on_cuda() {
    for b in cuda().unwrap().iter() {
        charrnn(b, "h128", 1, 128);
        charrnn(b, "h96x2", 2, 96);
    }
}
