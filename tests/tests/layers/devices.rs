//! The examples on every backend that runs here: fused where they are expressions, else by the host, which is reported.

use crate::examples::{boxes, f32s, net_of, reference, run_on, run_with};
use crate::{example, hosted};
use kiln_backend::{Backend, host_layer};
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{Network, PluginSpec};
use kiln_plan::{Profile, Range};
use std::sync::Arc;

/// Backends whose device is not the host.
pub fn devices() -> Vec<Arc<dyn Backend>> {
    kiln_tests::backends::all().unwrap().into_iter().skip(1).collect()
}

pub fn built(backend: &Arc<dyn Backend>, net: &Network) -> Built {
    let target = backend.targets().unwrap().remove(0);
    Builder::new(backend.clone(), target).build(net).unwrap()
}

#[test]
fn an_expression_is_fused_with_its_neighbours() {
    example("swish");
    let mut net = Network::new("net");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 8])).unwrap();
    let twice = net.add_layer("", "add", Attrs::new(), &[Some(x), Some(x)]).unwrap()[0];
    let s = net.add_plugin(&[twice], PluginSpec::new("example", "Swish").field("beta", 0.5)).unwrap();
    let s = s.output(0).unwrap();
    let y = net.add_layer("", "neg", Attrs::new(), &[Some(s)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let x = f32s(&[2, 8], &(0..16).map(|i| i as f32 - 8.0).collect::<Vec<_>>());
    let wanted = run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
    for b in devices() {
        assert_eq!(built(&b, &net).program.steps.len(), 1, "{}: one kernel", b.name());
        let y = run_on(&b, &net, std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
        assert!(y.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{}: {y:?} {wanted:?}", b.name());
    }
}

#[test]
fn a_layer_without_a_kernel_runs_on_the_host_and_is_reported() {
    hosted("nms");
    let net = net_of(PluginSpec::new("hosted", "BestBoxes"), &boxes());
    let wanted = run_on(&reference(), &net, &boxes()).unwrap();
    for b in devices() {
        let built = built(&b, &net);
        assert_eq!(built.program.steps[0].tactic.name, host_layer::ON_HOST);
        let told = &built.host_layers;
        assert!(told.iter().any(|h| h.why.contains("the host runs its reference form")), "{told:?}");
        assert_eq!(run_on(&b, &net, &boxes()).unwrap(), wanted, "{}", b.name());
        let strict = BuildConfig { strict: true, ..BuildConfig::default() };
        let target = b.targets().unwrap().remove(0);
        let mut builder = Builder::new(b.clone(), target);
        builder.config = strict;
        let e = builder.build(&net).map(drop).unwrap_err().to_string();
        assert!(e.contains("BestBoxes") || e.contains("plugin"), "{e}");
    }
}

/// A build for 0 to 8 boxes.
fn dynamic() -> BuildConfig {
    let mut profile = Profile::default();
    for (name, rest) in [("b", &[4][..]), ("s", &[])] {
        let of = |n: i64| [&[n], rest].concat();
        profile.shapes.insert(name.into(), Range { min: of(0), opt: of(3), max: of(8) });
    }
    BuildConfig { profiles: vec![profile], ..BuildConfig::default() }
}

/// Host layers read kernels' results and write kernels' operands, at sizes that only a run knows.
#[test]
fn host_layers_stand_between_kernels() {
    hosted("nms");
    hosted("scatter_add");
    let mut net = Network::new("net");
    let b = net.add_input("b", TensorType::new(DType::F32, [Dim::host("n"), 4.into()])).unwrap();
    let s = net.add_input("s", TensorType::new(DType::F32, [Dim::host("n")])).unwrap();
    let negative = net.add_layer("", "neg", Attrs::new(), &[Some(s)]).unwrap()[0];
    let best = net.add_plugin(&[b, negative], PluginSpec::new("hosted", "BestBoxes")).unwrap();
    let (kept, rows) = (best.output(0).unwrap(), best.output(1).unwrap());
    let twice = net.add_layer("", "add", Attrs::new(), &[Some(kept), Some(kept)]).unwrap()[0];
    let sum = net.add_plugin(&[b, rows, twice], PluginSpec::new("hosted", "ScatterAdd")).unwrap();
    let sum = sum.output(0).unwrap();
    let y = net.add_layer("", "abs", Attrs::new(), &[Some(sum)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net.mark_output(twice, "twice").unwrap();
    let [boxes, scores] = boxes();
    for backend in devices() {
        for n in [3usize, 1, 0] {
            let part = |t: &Tensor, width: usize, shape: &[usize]| {
                Tensor::from_bytes(DType::F32, shape, t.bytes()[..4 * n * width].to_vec()).unwrap()
            };
            let inputs = [part(&boxes, 4, &[n, 4]), part(&scores, 1, &[n])];
            let wanted = run_with(&reference(), &net, &inputs, dynamic()).unwrap();
            assert_eq!(
                run_with(&backend, &net, &inputs, dynamic()).unwrap(),
                wanted,
                "{} {n}",
                backend.name()
            );
        }
    }
}

#[test]
fn an_error_of_a_layer_names_it_and_the_next_run_is_right() {
    hosted("scatter_add");
    let rows = |v: i64| Tensor::i64(&[1], &[v]).unwrap();
    let inputs = |v| [f32s(&[2, 1], &[1.0, 2.0]), rows(v), f32s(&[1, 1], &[5.0])];
    let net = net_of(PluginSpec::new("hosted", "ScatterAdd"), &inputs(0));
    for b in devices() {
        let program = Arc::new(built(&b, &net).program);
        let target = b.targets().unwrap().remove(0);
        let mut c = b.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap();
        for v in [0, 7, 1] {
            let inputs = inputs(v);
            let shapes = Arc::new(program.shapes(&inputs).unwrap());
            let found = c.enqueue(&inputs, &shapes).and_then(|()| c.outputs());
            match (v, found) {
                (7, Err(e)) => {
                    let e = e.to_string();
                    assert!(
                        e.contains("a row number is out of range")
                            && e.contains("libkiln_layers_scatter_add_hosted.so"),
                        "{e}"
                    );
                }
                (0, Ok(out)) => assert_eq!(out, [f32s(&[2, 1], &[6.0, 2.0])]),
                (1, Ok(out)) => assert_eq!(out, [f32s(&[2, 1], &[1.0, 7.0])]),
                (_, found) => panic!("{}: {v}: {found:?}", b.name()),
            }
        }
    }
}
