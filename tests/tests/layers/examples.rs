//! Runs of the examples on the processor.

use crate::example;
use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{DType, Tensor, TensorType};
use kiln_network::{Network, PluginSpec};
use std::sync::Arc;

/// Builds a network for a backend and runs it once.
pub fn run_on(backend: &Arc<dyn Backend>, net: &Network, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_with(backend, net, inputs, BuildConfig::default())
}

/// Builds a network by this configuration and runs it once.
pub fn run_with(
    backend: &Arc<dyn Backend>,
    net: &Network,
    inputs: &[Tensor],
    config: BuildConfig,
) -> Result<Vec<Tensor>, String> {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = config;
    let built = builder.build(net).map_err(|e| e.to_string())?;
    let program = Arc::new(built.program);
    let shapes = Arc::new(program.shapes(inputs).map_err(|e| e.to_string())?);
    let mut context =
        backend.open(&target).unwrap().load(program).map_err(|e| e.to_string())?.context().unwrap();
    context.enqueue(inputs, &shapes).map_err(|e| e.to_string())?;
    context.outputs().map_err(|e| e.to_string())
}

pub fn reference() -> Arc<dyn Backend> {
    kiln_tests::backends::cpu()
}

pub fn f32s(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::f32(shape, v).unwrap()
}

/// A network of one plug-in layer on inputs like these.
pub fn net_of(spec: PluginSpec, inputs: &[Tensor]) -> Network {
    let mut net = Network::new("net");
    let ids: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let dims = t.shape().iter().map(|&d| d as i64);
            net.add_input(&format!("x{i}"), TensorType::new(t.dtype(), dims)).unwrap()
        })
        .collect();
    let outputs = net.add_plugin(&ids, spec).unwrap().outputs().to_vec();
    for (i, y) in outputs.into_iter().enumerate() {
        net.mark_output(y, &format!("y{i}")).unwrap();
    }
    net
}

#[test]
fn a_pointwise_layer_runs_by_its_expression() {
    example("swish");
    let x = f32s(&[3], &[-1.0, 0.0, 2.0]);
    let net = net_of(PluginSpec::new("example", "Swish").field("beta", 2.0), std::slice::from_ref(&x));
    let g = net.lower().unwrap();
    assert!(g.nodes().all(|(_, n)| n.op.is_pointwise()));
    let y = run_on(&reference(), &net, &[x]).unwrap().remove(0).to_f64();
    let wanted = |x: f64| x / (1.0 + (-2.0 * x).exp());
    assert!(y.iter().zip([-1.0, 0.0, 2.0]).all(|(y, x)| (y - wanted(x)).abs() < 1e-6), "{y:?}");
}

/// Boxes of which the second overlaps the first, and the third stands alone.
pub fn boxes() -> [Tensor; 2] {
    let boxes = [0.0, 0.0, 2.0, 2.0, 0.1, 0.0, 2.0, 2.0, 5.0, 5.0, 6.0, 6.0];
    [f32s(&[3, 4], &boxes), f32s(&[3], &[0.5, 0.9, 0.7])]
}

#[test]
fn a_layer_finds_the_sizes_of_its_results() {
    example("nms");
    for (most, wanted) in [(100, &[1i64, 2][..]), (1, &[1]), (0, &[])] {
        let net = net_of(PluginSpec::new("example", "BestBoxes").field("most", most as i64), &boxes());
        let out = run_on(&reference(), &net, &boxes()).unwrap();
        assert_eq!(out[1], Tensor::i64(&[wanted.len()], wanted).unwrap());
        assert_eq!(out[0].shape(), [wanted.len(), 4]);
    }
    let empty = [f32s(&[0, 4], &[]), f32s(&[0], &[])];
    let net = net_of(PluginSpec::new("example", "BestBoxes"), &empty);
    assert_eq!(run_on(&reference(), &net, &empty).unwrap()[1].shape(), [0]);
}

#[test]
fn fields_that_a_layer_refuses_are_named_with_its_library() {
    example("nms");
    let mut net = Network::new("n");
    let b = net.add_input("b", TensorType::new(DType::F32, [3, 4])).unwrap();
    let s = net.add_input("s", TensorType::new(DType::F32, [3])).unwrap();
    let spec = PluginSpec::new("example", "BestBoxes").field("overlap", 2.0);
    let e = net.add_plugin(&[b, s], spec).map(drop).unwrap_err().to_string();
    for says in ["\"example::BestBoxes\", version 1", "libkiln_layers_nms.so", "wants a number from 0 to 1"] {
        assert!(e.contains(says), "{e}");
    }
}

#[test]
fn a_layer_works_in_place() {
    example("scatter_add");
    let table = f32s(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let rows = |v: &[i64]| Tensor::i64(&[2], v).unwrap();
    let updates = f32s(&[2, 2], &[10.0, 20.0, 1.0, 2.0]);
    let inputs = [table.clone(), rows(&[2, 2]), updates.clone()];
    let net = net_of(PluginSpec::new("example", "ScatterAdd"), &inputs);
    let out = run_on(&reference(), &net, &inputs).unwrap();
    assert_eq!(out, [f32s(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 15.0, 27.0])]);
    assert_eq!(table.to_f64(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "the input stays");
    let e = run_on(&reference(), &net, &[table, rows(&[0, 3]), updates]).unwrap_err();
    assert!(e.contains("a row number is out of range") && e.contains("plugin"), "{e}");
}

#[test]
fn a_layer_of_constants_is_folded() {
    example("scatter_add");
    let mut net = Network::new("n");
    let mut constant = |name: &str, t: Tensor| net.add_weights(Some(name), t).unwrap();
    let table = constant("table", f32s(&[2, 1], &[1.0, 2.0]));
    let rows = constant("rows", Tensor::i64(&[1], &[1]).unwrap());
    let updates = constant("updates", f32s(&[1, 1], &[5.0]));
    let y = net.add_plugin(&[table, rows, updates], PluginSpec::new("example", "ScatterAdd")).unwrap();
    let y = y.output(0).unwrap();
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 1])).unwrap();
    let z = net.add_layer("", "add", kiln_ir::Attrs::new(), &[Some(x), Some(y)]).unwrap()[0];
    net.mark_output(z, "z").unwrap();
    let backend = reference();
    let target = backend.targets().unwrap().remove(0);
    let built = Builder::new(backend.clone(), target).build(&net).unwrap();
    let ops: Vec<_> = built.program.graph.nodes().map(|(_, n)| n.op.name()).collect();
    assert_eq!(ops, ["add"]);
    assert_eq!(run_on(&backend, &net, &[f32s(&[2, 1], &[0.0; 2])]).unwrap(), [f32s(&[2, 1], &[1.0, 7.0])]);
}
