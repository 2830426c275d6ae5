//! Networks as PyTorch's exporter writes them give its results, and come to few kernels.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Narrowing};
use kiln_ir::DType;
use kiln_tests::backends::{cpu, cuda, wgpu};
use kiln_tests::models::{archive, difference, engine};
use std::sync::Arc;

/// Moves that the search may add for faster kernels: it makes transposed convolutions of convolutions and moves.
const SEARCHED: &[(&str, usize)] = &[("unet", 4)];

/// A network and the most kernels that the optimizer may leave of it.
const NETWORKS: &[(&str, usize)] = &[
    ("bert", 25),
    ("decoder", 39),
    ("vit", 22),
    ("swin", 105),
    ("convnext", 35),
    ("mobilenet", 82),
    ("efficientnet", 25),
    ("unet", 17),
];

const TOLERANCE: f64 = 2e-5;

fn check(backend: &Arc<dyn Backend>, config: &BuildConfig) {
    let mut wrong = String::new();
    for (name, least) in NETWORKS {
        let more = SEARCHED.iter().find(|(n, _)| n == name && config.search).map_or(0, |m| m.1);
        let most = least + more;
        match run(name, backend, config) {
            Ok((kernels, off)) => {
                println!("{name} on {}: {kernels} kernels, off by {off:.1e}", backend.name());
                if off > TOLERANCE {
                    wrong += &format!("{name}: off by {off}\n");
                }
                if kernels > most && backend.name() == "cpu" {
                    wrong += &format!("{name}: {kernels} kernels, {most} wanted\n");
                }
            }
            Err(e) => wrong += &format!("{name}: {e}\n"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Number of kernels of a network, and the difference of its outputs from PyTorch's.
fn run(name: &str, backend: &Arc<dyn Backend>, config: &BuildConfig) -> Result<(usize, f64), String> {
    let config = BuildConfig { strict: true, ..config.clone() };
    let e = engine(&format!("exports/{name}.onnx"), backend, &[], config)?;
    let tensors = archive(&format!("exports/{name}.npz"))?;
    let inputs: Vec<_> = tensors.iter().filter(|(n, _)| n.starts_with("input")).collect();
    let inputs: Vec<_> = inputs.into_iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let mut context = e.create_context().map_err(|e| e.to_string())?;
    let outputs = context.run(&inputs).map_err(|e| e.to_string())?;
    let off = outputs.iter().map(|(n, t)| tensors.get(n).map_or(f64::INFINITY, |w| difference(t, w)));
    let p = e.program();
    Ok((p.steps.iter().filter(|s| !p.is_view(s)).count(), off.fold(0.0, f64::max)))
}

#[test]
fn on_cpu() {
    check(&cpu(), &BuildConfig { search: false, ..BuildConfig::default() });
}

#[test]
fn on_cpu_with_the_search() {
    check(&cpu(), &BuildConfig::default());
}

/// Attention of every layer is one operator, however the exporter wrote it.
#[test]
fn attention_is_recognized_in_every_layer() {
    for (name, layers) in [("bert", 2), ("decoder", 2), ("vit", 2), ("swin", 4)] {
        let config = BuildConfig { search: false, ..BuildConfig::default() };
        let e = engine(&format!("exports/{name}.onnx"), &cpu(), &[], config).unwrap();
        let count = |op: &str| e.program().graph.nodes().filter(|(_, n)| n.op.name() == op).count();
        assert_eq!((count("attention"), count("softmax")), (layers, 0), "{name}");
    }
}

/// Queries, keys and values of a layer are read from one product, whose matrix of 32 x 96 is converted once.
#[test]
fn packed_projections_stay_one_product_in_f16() {
    let narrowing = Narrowing::Everywhere;
    let config =
        BuildConfig { reduced: vec![DType::F16], narrowing, search: false, ..BuildConfig::default() };
    let e = engine("exports/vit.onnx", &cpu(), &[], config).unwrap();
    let g = &e.program().graph;
    let matrices = g.value_ids().filter_map(|v| g.weight(v)).map(|w| (w.tensor.dtype(), w.tensor.shape()));
    assert_eq!(matrices.filter(|m| *m == (DType::F16, &[32, 96][..])).count(), 2, "of two layers");
}

#[test]
fn on_wgpu() {
    for b in wgpu().unwrap().iter() {
        check(b, &BuildConfig { max_tactics: 1, search: false, ..BuildConfig::default() });
    }
}

#[test]
fn on_cuda() {
    for b in cuda().unwrap().iter() {
        check(b, &BuildConfig { tf32: false, ..BuildConfig::default() });
    }
}
