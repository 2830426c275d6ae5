//! The example with a native form: on the device where it has one, else by the host; equal to the reference.

use crate::devices::{built, devices};
use crate::examples::{f32s, net_of, reference, run_on};
use crate::{compiled, layers_of};
use kiln_backend::host_layer;
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
