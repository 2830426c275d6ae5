//! The example with a native form: on the device where it has one, else by the host; equal to the reference.

use crate::devices::{built, devices};
use crate::examples::{f32s, net_of, reference, run_on};
use crate::kernels::Only;
use crate::{abi, compiled, layers_of, library};
use kiln_backend::{Backend, host_layer};
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, PluginSpec};
use std::sync::Arc;

fn roll() {
    layers_of(&compiled("roll", &["-ldl"]));
}

#[test]
fn a_roll_is_its_reference_form() {
    roll();
    let x = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for (by, wanted) in [
        (1, [3.0, 4.0, 5.0, 6.0, 1.0, 2.0]),
        (-1, [5.0, 6.0, 1.0, 2.0, 3.0, 4.0]),
        (3, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ] {
        let net = net_of(PluginSpec::new("example", "Roll").field("by", by), std::slice::from_ref(&x));
        assert_eq!(run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap(), [f32s(&[3, 2], &wanted)]);
    }
}

/// y = neg(roll(exp(x))): on CUDA the copies are nodes of the graph that the second run becomes, on wgpu commands between dispatches.
#[test]
fn a_native_form_runs_between_kernels_and_in_graphs() {
    roll();
    for shape in [&[5usize, 3][..], &[1, 4], &[0, 2], &[7]] {
        let n: usize = shape.iter().product();
        let mut net = Network::new("net");
        let dims = shape.iter().map(|&d| d as i64);
        let x = net.add_input("x", TensorType::new(DType::F32, dims)).unwrap();
        let e = net.add_layer("", "exp", Attrs::new(), &[Some(x)]).unwrap()[0];
        let spec = PluginSpec::new("example", "Roll").field("by", 2);
        let r = net.add_plugin(&[e], spec).unwrap().output(0).unwrap();
        let y = net.add_layer("", "neg", Attrs::new(), &[Some(r)]).unwrap()[0];
        net.mark_output(y, "y").unwrap();
        for b in devices() {
            let program = Arc::new(built(&b, &net).program);
            let native = program.steps.iter().any(|s| s.tactic.name == "native.copies");
            let hosted = program.steps.iter().any(|s| s.tactic.name == host_layer::ON_HOST);
            assert_eq!((native, hosted), (true, false), "{}", b.name());
            let target = b.targets().unwrap().remove(0);
            let mut c = b.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap();
            for run in 0..4 {
                let values: Vec<f32> = (0..n).map(|i| (i + run) as f32 / 8.0).collect();
                let inputs = [Tensor::f32(shape, &values).unwrap()];
                let wanted = run_on(&reference(), &net, &inputs).unwrap().remove(0).to_f64();
                let shapes = Arc::new(program.shapes(&inputs).unwrap());
                c.enqueue(&inputs, &shapes).unwrap();
                let found = c.outputs().unwrap().remove(0).to_f64();
                let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs();
                assert!(
                    found.len() == wanted.len() && found.iter().zip(&wanted).all(close),
                    "{}: {found:?}",
                    b.name()
                );
            }
        }
    }
}

/// An output that is the memory of an input, by forms that graphs hold and by those that each run calls; other readers of the table see
/// it unchanged.
#[test]
fn a_native_form_works_in_place() {
    layers_of(&library("in_place", &abi::root().join("tests/tests/layers/in_place.c"), &["-ldl"]));
    let mut net = Network::new("net");
    let table = net.add_input("table", TensorType::new(DType::F32, [40])).unwrap();
    let head = net.add_input("head", TensorType::new(DType::F32, [7])).unwrap();
    let kept = net.add_layer("", "exp", Attrs::new(), &[Some(table)]).unwrap()[0];
    let spec = PluginSpec::new("in_place", "Overwrite");
    let y = net.add_plugin(&[kept, head], spec).unwrap().output(0).unwrap();
    let z = net.add_layer("", "neg", Attrs::new(), &[Some(y)]).unwrap()[0];
    for (v, name) in [(z, "z"), (kept, "kept")] {
        net.mark_output(v, name).unwrap();
    }
    for backend in devices() {
        let tactics: &[&'static str] =
            if backend.name() == "cuda" { &["native.recorded", "native.called"] } else { &["native.copied"] };
        for &tactic in tactics {
            let b: Arc<dyn Backend> = Arc::new(Only(backend.clone(), tactic));
            let program = Arc::new(built(&b, &net).program);
            assert!(program.steps.iter().any(|s| s.tactic.name == tactic), "{tactic}");
            let target = b.targets().unwrap().remove(0);
            let mut c = b.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap();
            for run in 0..4 {
                let values = |n: usize, by: f32| (0..n).map(|i| by * (i + run) as f32).collect::<Vec<_>>();
                let inputs = [f32s(&[40], &values(40, 0.05)), f32s(&[7], &values(7, -3.0))];
                let wanted = run_on(&reference(), &net, &inputs).unwrap();
                let shapes = Arc::new(program.shapes(&inputs).unwrap());
                c.enqueue(&inputs, &shapes).unwrap();
                for (found, wanted) in c.outputs().unwrap().iter().zip(&wanted) {
                    let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-5 * b.abs();
                    assert!(found.to_f64().into_iter().zip(wanted.to_f64()).all(close), "{tactic} {run}");
                }
            }
        }
    }
}
