//! Engines whose inputs and outputs have another type than the model's.

#![allow(clippy::unwrap_used, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder, Built, Narrowing};
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::Network;
use kiln_tests::backends::{cpu, wgpu};
use kiln_tests::models::{archive, difference, engine};
use std::sync::Arc;

fn config(io: DType, reduced: &[DType]) -> BuildConfig {
    BuildConfig {
        io_type: Some(io),
        reduced: reduced.to_vec(),
        narrowing: Narrowing::Everywhere,
        samples: 1,
        max_tactics: 1,
        ..BuildConfig::default()
    }
}

fn halves(t: &Tensor) -> Tensor {
    Tensor::from_elems(DType::F16, t.shape(), &kiln_ir::Elems::F(t.to_f64())).unwrap()
}

/// An exported network with f16 inputs and outputs has nearly the results that it has in f32.
fn agrees(backend: &Arc<dyn Backend>, reduced: &[DType], most: f64) {
    let given = archive("exports/vit.npz").unwrap();
    let e = engine("exports/vit.onnx", backend, &[], config(DType::F16, reduced)).unwrap();
    assert!(e.io_tensors().iter().all(|t| t.dtype == DType::F16), "{:?}", e.io_tensors());
    let mut context = e.create_context().unwrap();
    let (_, found) = context.run(&[("input_0", halves(&given["input_0"]))]).unwrap().remove(0);
    assert_eq!(found.dtype(), DType::F16);
    let off = difference(&found, &given["output_0"]);
    assert!(off < most, "off by {off}");
}

#[test]
fn halves_go_in_and_out_on_cpu() {
    agrees(&cpu(), &[], 2e-2);
    agrees(&cpu(), &[DType::F16], 2e-2);
}

#[test]
fn halves_go_in_and_out_on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| agrees(b, &[DType::F16], 2e-2));
}

fn build(net: &Network, config: BuildConfig) -> Built {
    let backend = cpu();
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend, target);
    builder.config = config;
    builder.build(net).unwrap()
}

/// A network with an input that is an output, one result that is two outputs, and integers.
fn network() -> Network {
    let mut net = Network::new("ends");
    let x = net.add_input("x", TensorType::new(DType::F32, [2])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [2])).unwrap();
    let y = net.add_layer("neg", "neg", Attrs::new(), &[Some(x)]).unwrap()[0];
    let m = net.add_layer("abs", "abs", Attrs::new(), &[Some(n)]).unwrap()[0];
    net.mark_any_output(x, "x").unwrap();
    net.mark_output(y, "y").unwrap();
    net.mark_output(m, "m").unwrap();
    net
}

#[test]
fn names_and_integers_stay() {
    for reduced in [vec![], vec![DType::F16]] {
        let g = build(&network(), config(DType::F16, &reduced)).program.graph.clone();
        let of = |v: &[kiln_ir::ValueId]| -> Vec<(String, DType)> {
            v.iter().map(|v| (g.value(*v).name.clone(), g.ty(*v).dtype)).collect()
        };
        let (f, i) = (DType::F16, DType::I64);
        assert_eq!(of(&g.inputs), [("x".into(), f), ("n".into(), i)]);
        let outputs = of(&g.outputs);
        assert_eq!(outputs.iter().map(|o| o.1).collect::<Vec<_>>(), [f, f, i]);
        assert_eq!((&*outputs[1].0, &*outputs[2].0), ("y", "m"));
    }
}

#[test]
fn casts_at_the_ends_cancel_where_layers_run_in_the_type() {
    let count = |reduced: &[DType]| {
        let built = build(&network(), config(DType::F16, reduced));
        built.program.graph.nodes().filter(|(_, n)| n.op.name() == "cast").count()
    };
    assert_eq!((count(&[]), count(&[DType::F16])), (2, 0));
}
