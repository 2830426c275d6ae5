//! A backend in C99, written against the header and a CBOR library of its system, runs networks end to end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use kiln_backend::stop::{self, Stop, StopFlag};
use kiln_backend::{Backend, BackendError, Bound, Context, Region, Tactic, TimeRequest};
use kiln_builder::Builder;
use kiln_ir::{Attrs, DType, NodeId, Tensor, TensorType};
use kiln_network::Network;
use kiln_runtime::plugin::{LoadedBackend, Policy, load};
use std::sync::Arc;

mod abi;

use abi::programs::{affine, expected_y, input, op, single};

/// The toy backend as a library of its own for one test.
fn toy(name: &str, more: &[&str]) -> LoadedBackend {
    let dir = abi::root().join("plugins/examples/toy_backend");
    let sources = ["backend.c", "kernels.c", "payload.c"].map(|f| dir.join(f));
    let more: Vec<&str> = ["-lcbor"].iter().chain(more).copied().collect();
    let path = abi::library(name, &sources, &more);
    load(&path, &Policy::default()).unwrap_or_else(|e| panic!("{}", e.chain())).backend().unwrap()
}

fn context(b: &LoadedBackend, program: &Arc<kiln_backend::Program>) -> Box<dyn Context> {
    let device = b.open(&b.targets().unwrap()[0]).unwrap();
    device.load(program.clone()).unwrap().context().unwrap()
}

#[test]
fn networks_of_matmul_and_add_run_at_any_shape() {
    let b = toy("toy", &[]);
    assert_eq!((b.name(), b.info().vendor.as_str(), b.info().abi), ("toy", "Kiln", (1, 13)));
    let (program, y, x) = affine("affine");
    let mut c = context(&b, &program);
    for rows in [4, 1, 0, 4] {
        let inputs = [input(rows)];
        let shapes = Arc::new(program.shapes(&inputs).unwrap());
        for _ in 0..2 {
            c.enqueue(&inputs, &shapes).unwrap();
            let z: Vec<f32> = expected_y(rows).iter().map(|v| 2.0 * v).collect();
            assert_eq!(c.outputs().unwrap(), [Tensor::f32(&[rows, 20], &z).unwrap()]);
        }
        assert_eq!(c.observe(y).unwrap(), Tensor::f32(&[rows, 20], &expected_y(rows)).unwrap());
    }
    let e = c.observe(x).unwrap_err();
    assert!(matches!(&e, BackendError::Unsupported(m) if m.contains("is an input")), "{e}");
    assert_eq!(c.counters().runs, 8);
}

#[test]
fn everything_else_is_refused_with_a_reason() {
    let b = toy("toy_refuses", &[]);
    let t = &b.targets().unwrap()[0];
    let f = |dtype, dims: &[i64]| TensorType::new(dtype, dims.iter().copied());
    let why = |p: &kiln_backend::Program, nodes: &[u32]| {
        let nodes: Vec<NodeId> = nodes.iter().map(|n| NodeId(*n)).collect();
        let region = Region::extract(&p.graph, &nodes).unwrap();
        let refusal = b.supports(&region, t).unwrap_err();
        assert_eq!(b.tactics(&region, t), Err(refusal.clone()));
        match refusal {
            BackendError::Unsupported(m) => m,
            other => panic!("{other:?}"),
        }
    };
    let neg = single("neg", op("neg", Attrs::new()), &[f(DType::F32, &[2])]);
    assert_eq!(why(&neg, &[0]), "operator \"neg\": the toy backend has add and matmul only");
    let half = single("half", op("add", Attrs::new()), &[f(DType::F16, &[2]), f(DType::F16, &[2])]);
    assert_eq!(why(&half, &[0]), "element type 2: the toy backend computes in f32 (1) only");
    let deep = single("deep", op("add", Attrs::new()), &[f(DType::F32, &[1; 9]), f(DType::F32, &[1])]);
    assert_eq!(why(&deep, &[0]), "9 dimensions: the toy backend takes at most 8");
    assert_eq!(why(&affine("fused").0, &[1, 2]), "2 nodes: the toy backend fuses nothing");
    let device = b.open(t).unwrap();
    assert!(matches!(device.load(neg), Err(BackendError::Unsupported(_))));
}

#[test]
fn tactics_compile_and_are_timed() {
    let b = toy("toy_times", &[]);
    let t = &b.targets().unwrap()[0];
    assert_eq!((t.backend.as_str(), t.arch.as_str(), t.memory.alignment), ("toy", "c99", 64));
    let f = |dims: [i64; 3]| TensorType::new(DType::F32, dims);
    let p = single("p", op("matmul", Attrs::new()), &[f([2, 8, 16]), f([1, 16, 4])]);
    let r = p.region(&p.steps[0]).unwrap();
    let tactics = b.tactics(&r, t).unwrap();
    assert_eq!(tactics, [Tactic::plain("matmul.plain")]);
    assert_eq!(b.compile(&r, &tactics[0], t).unwrap(), b"");
    let inputs = [[2, 8, 16], [1, 16, 4]].map(|s| Tensor::zeros(DType::F32, &s).unwrap());
    let request =
        TimeRequest { graph: &r.graph, tactic: &tactics[0], blob: &[], inputs: &inputs, samples: 5 };
    let device = b.open(t).unwrap();
    let times = device.time(&request).unwrap();
    assert!(times.len() == 5 && times.iter().any(|ns| *ns > 0.0), "{times:?}");
    let flag = StopFlag::new();
    flag.set(Stop::Now);
    assert_eq!(stop::scope(&flag, || device.time(&request)), Err(BackendError::cancelled()));
    assert!(device.time(&request).is_ok());
}

#[test]
fn a_library_of_an_older_minor_version_runs() {
    let b = toy("toy_older", &["-DTOY_ABI_MINOR=0"]);
    assert_eq!(b.info().abi, (1, 0));
    let (program, ..) = affine("older");
    let mut c = context(&b, &program);
    let inputs = [input(2)];
    c.enqueue(&inputs, &Arc::new(program.shapes(&inputs).unwrap())).unwrap();
    // It can't tell when a run is done: the host takes the outputs, and keeps them.
    c.wait_consumed().unwrap();
    c.wait().unwrap();
    let z: Vec<f32> = expected_y(2).iter().map(|v| 2.0 * v).collect();
    assert_eq!(c.outputs().unwrap(), [Tensor::f32(&[2, 20], &z).unwrap()]);
    let e = c.require_native().unwrap().address(Bound::Input(0)).unwrap_err();
    assert!(matches!(&e, BackendError::Unsupported(m) if m.contains("version 1.0")), "{e}");
    let e = c.host_steps().unwrap_err();
    assert!(matches!(e, BackendError::Unsupported(_)), "{e}");
    let e = c.step_times().unwrap_err();
    assert!(matches!(&e, BackendError::Unsupported(m) if m.contains("version 1.0")), "{e}");
    assert_eq!(c.counters().runs, 1, "the host counts where the library does not");
}

/// Libraries from 1.7 on answer `backend_supports`; older ones are asked for their tactics.
#[test]
fn whether_a_region_runs_is_asked_without_tactics() {
    let (program, ..) = affine("asked");
    let region = program.region(&program.steps[0]).unwrap();
    for (name, minor, asked) in [("toy_supports", 7, false), ("toy_before_supports", 0, true)] {
        let b = toy(name, &["-DTOY_WITHOUT_TACTICS", &format!("-DTOY_ABI_MINOR={minor}")]);
        let answer = b.supports(&region, &b.targets().unwrap()[0]);
        match asked {
            false => assert_eq!(answer, Ok(())),
            true => {
                assert!(matches!(&answer, Err(BackendError::Internal(m)) if m == "tactics were asked for"))
            }
        }
    }
    let b = toy("toy_before", &["-DTOY_ABI_MINOR=0"]);
    assert_eq!(b.supports(&region, &b.targets().unwrap()[0]), Ok(()));
}

#[test]
fn wrong_use_is_an_error_and_no_crash() {
    let b = toy("toy_misused", &[]);
    let (program, ..) = affine("misused");
    let mut c = context(&b, &program);
    assert!(matches!(c.outputs(), Err(BackendError::InvalidArgument(_))));
    let inputs = [input(2)];
    let shapes = Arc::new(program.shapes(&[input(3)]).unwrap());
    let e = c.enqueue(&inputs, &shapes).unwrap_err();
    assert!(matches!(&e, BackendError::Internal(m) if m.contains("another shape")), "{e}");
    assert!(matches!(c.enqueue(&[], &shapes), Err(BackendError::InvalidArgument(_))));
}

#[test]
fn the_builder_builds_for_it() {
    let b: Arc<dyn Backend> = Arc::new(toy("toy_built", &[]));
    let mut n = Network::new("net");
    let x = n.add_input("x", TensorType::new(DType::F32, [5, 3])).unwrap();
    let w = n.add_weights(Some("w"), Tensor::f32(&[3, 2], &[1., 2., 3., 4., 5., 6.]).unwrap()).unwrap();
    let c = n.add_weights(Some("c"), Tensor::f32(&[2], &[0.25, -8.0]).unwrap()).unwrap();
    let mut layer = |op: &str, a, b| n.add_layer("", op, Attrs::new(), &[Some(a), Some(b)]).unwrap()[0];
    let p = layer("matmul", x, w);
    let y = layer("add", p, c);
    n.mark_output(y, "y").unwrap();
    let target = b.targets().unwrap().remove(0);
    let built = Builder::new(b.clone(), target.clone()).build(&n).unwrap();
    let tactics: Vec<&str> = built.program.steps.iter().map(|s| s.tactic.name.as_str()).collect();
    assert_eq!(tactics, ["matmul.plain", "add.plain"], "the fused region is refused and split");
    let program = Arc::new(built.program);
    let inputs = [input(5)];
    let shapes = Arc::new(program.shapes(&inputs).unwrap());
    let mut context = b.open(&target).unwrap().load(program).unwrap().context().unwrap();
    context.enqueue(&inputs, &shapes).unwrap();
    // Row r of x is [r, r+1, r+2]: times w it is [9r + 13, 12r + 16].
    let y: Vec<f32> = (0..5).flat_map(|r| [9.0 * r as f32 + 13.25, 12.0 * r as f32 + 8.0]).collect();
    assert_eq!(context.outputs().unwrap(), [Tensor::f32(&[5, 2], &y).unwrap()]);
}
