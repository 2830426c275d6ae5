//! Number of kernels that a run of a trained model launches: the steps of its program that compute.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, Step};
use kiln_builder::BuildConfig;
use kiln_ir::Node;
use kiln_tests::backends::{cpu, wgpu};
use kiln_tests::models::{Shapes, engine};
use std::sync::Arc;

const IMAGES: Shapes<'_> = &[("input", [&[1, 1, 28, 28], &[8, 1, 28, 28], &[16, 1, 28, 28]])];
const TOKENS: Shapes<'_> =
    &[("input_ids", [&[1, 1], &[4, 65], &[16, 128]]), ("attention_mask", [&[1, 1], &[4, 65], &[16, 128]])];

/// A model, its shapes and the most steps that it may have.
const MODELS: &[(&str, Shapes<'_>, usize)] = &[
    ("digits/lenet_a.onnx", IMAGES, 7),
    ("digits/lenet_a_bn.onnx", IMAGES, 7),
    ("nlp/bert_tiny.onnx", TOKENS, 24),
];

/// The steps of each model, one text a model; the error has those that are too many.
fn counts(backend: &Arc<dyn Backend>, search: bool) -> Result<String, String> {
    let (mut all, mut wrong) = (String::new(), String::new());
    for (path, shapes, most) in MODELS {
        let config = BuildConfig { search, ..BuildConfig::default() };
        let program = engine(path, backend, shapes, config)?.program();
        let ops = |n| Some(program.graph.get(n)?.op.name());
        // Steps whose results follow from shapes alone launch no kernel.
        let known = |n| program.graph.get(n).is_some_and(|n: &Node| n.op.roles().host_known);
        let computes = |s: &&Step| !program.is_view(s) && !s.nodes.iter().all(|&n| known(n));
        let kernels: Vec<&Step> = program.steps.iter().filter(computes).collect();
        let mut text = format!("{path} on {}: {} kernels\n", backend.name(), kernels.len());
        for s in &kernels {
            let ops: Vec<&str> = s.nodes.iter().filter_map(|&n| ops(n)).collect();
            text += &format!("  {} [{}]\n", ops.join(" + "), s.name);
        }
        if kernels.len() > *most {
            wrong += &format!("{most} wanted of {text}");
        }
        all += &text;
    }
    if wrong.is_empty() { Ok(all) } else { Err(wrong) }
}

#[test]
fn on_cpu() {
    for search in [false, true] {
        println!("{}", counts(&cpu(), search).unwrap_or_else(|e| panic!("{e}")));
    }
}

#[test]
fn on_wgpu() {
    for b in wgpu().unwrap().iter() {
        println!("{}", counts(b, false).unwrap_or_else(|e| panic!("{e}")));
    }
}
