//! Whole programs on the first adapter: fusion, several steps, changing shapes, sizes that only the device knows.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use kiln_backend::{Backend, BackendError, Device, Program, Region, Tactic, Target, TimeRequest};
use kiln_backend_wgpu::Wgpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Fact, Graph, Op, Tensor, TensorType};
use std::sync::Arc;

/// The first device, or `None` with a line that says why there is none.
fn device() -> Option<(Arc<dyn Device>, Target)> {
    match Wgpu.targets() {
        Ok(t) => Some((Wgpu.open(&t[0]).expect("the first target opens"), t[0].clone())),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).expect("an operator")
}

fn close(a: &[Tensor], b: &[Tensor]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
        for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
            assert!((x - y).abs() <= 1e-4 * y.abs().max(1.0), "{x} is not {y}");
        }
    }
}

fn input(g: &mut Graph, name: &str, dims: &[Dim]) -> kiln_ir::ValueId {
    g.add_input(name, Fact::of(TensorType::new(DType::F32, dims.iter().cloned())))
}

/// relu(x·w + b) with n rows.
fn layer(n: Dim) -> Graph {
    let mut g = Graph::new("layer");
    let x = input(&mut g, "x", &[n, 40.into()]);
    let w = g.add_constant("w", Rng::new(5).tensor(DType::F32, &[40, 24]));
    let b = g.add_constant("b", Rng::new(6).tensor(DType::F32, &[24]));
    let y = g.add("product", op("matmul"), &[x, w]).expect("matmul");
    let z = g.add("sum", op("add"), &[y, b]).expect("add");
    let r = g.add("relu", op("relu"), &[z]).expect("relu");
    g.outputs = vec![r];
    g
}

#[test]
fn anchors_take_pointwise_operators_along() {
    let Some((device, target)) = device() else { return };
    let g = layer(Dim::host("n"));
    let region = Region::extract(&g, g.order()).expect("a region");
    let tactics = Wgpu.tactics(&region, &target).expect("tactics");
    assert!(tactics.iter().any(|t| t.name == "matmul.tiled") && tactics.len() > 1);
    for t in tactics {
        let blob = Wgpu.compile(&region, &t, &target).expect("a text");
        let program = Arc::new(Program::single_step(g.clone(), t, blob));
        let mut cx = device.load(program.clone()).expect("loads").context().expect("a context");
        for rows in [3, 130, 1] {
            let x = Rng::new(rows as u64).tensor(DType::F32, &[rows, 40]);
            let shapes = Arc::new(program.shapes(std::slice::from_ref(&x)).expect("shapes"));
            cx.enqueue(std::slice::from_ref(&x), &shapes).expect("runs");
            close(&cx.outputs().expect("outputs"), &g.eval(&[x]).expect("the oracle"));
        }
    }
}

#[test]
fn after_warm_up_other_shapes_allocate_nothing() {
    let Some((device, target)) = device() else { return };
    let g = layer(Dim::host("n"));
    let mut program = Program::step_per_node(g.clone(), &Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    let program = Arc::new(program);
    let mut cx = device.load(program.clone()).expect("loads").context().expect("a context");
    let mut run = |rows: usize| {
        let x = Rng::new(rows as u64).tensor(DType::F32, &[rows, 40]);
        let shapes = Arc::new(program.shapes(std::slice::from_ref(&x)).expect("shapes"));
        cx.enqueue(std::slice::from_ref(&x), &shapes).expect("runs");
        close(&cx.outputs().expect("outputs"), &g.eval(&[x]).expect("the oracle"));
        cx.counters()
    };
    let warm = run(70);
    assert_eq!(warm.runs, 1);
    let later = [run(70), run(3), run(69), run(70)][3];
    assert_eq!(later.runs, 5);
    assert_eq!((later.allocations, later.pipelines, later.host_syncs), (warm.allocations, 0, 0));
}

#[test]
fn sizes_that_only_the_device_knows_are_waited_for() {
    let Some((device, target)) = device() else { return };
    let mut g = Graph::new("sizes");
    let x = input(&mut g, "x", &[4.into(), 5.into()]);
    let n = g.add("places", op("nonzero"), &[x]).expect("nonzero");
    let t = g.add("rows", op("transpose"), &[n]).expect("transpose");
    let y = g.add("values", op("gather_nd"), &[x, t]).expect("gather_nd");
    let z = g.add("doubled", op("add"), &[y, y]).expect("add");
    g.outputs = vec![z, n];
    let mut program = Program::step_per_node(g.clone(), &Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    let program = Arc::new(program);
    let mut cx = device.load(program.clone()).expect("loads").context().expect("a context");
    for (k, zeros) in [7, 0, 20].into_iter().enumerate() {
        let v: Vec<f32> = (0..20).map(|i| if i < zeros { 0.0 } else { i as f32 + 1.0 }).collect();
        let x = Tensor::f32(&[4, 5], &v).expect("a tensor");
        let shapes = Arc::new(program.shapes(std::slice::from_ref(&x)).expect("shapes"));
        cx.enqueue(std::slice::from_ref(&x), &shapes).expect("runs");
        let found = cx.outputs().expect("outputs");
        assert_eq!(found[0].shape(), [20 - zeros]);
        close(&found, &g.eval(&[x]).expect("the oracle"));
        assert_eq!(cx.counters().host_syncs, k as u64 + 1);
    }
}

#[test]
fn values_at_borders_can_be_observed() {
    let Some((device, target)) = device() else { return };
    let g = layer(3.into());
    let mut program = Program::step_per_node(g.clone(), &Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    let program = Arc::new(program);
    let mut cx = device.load(program.clone()).expect("loads").context().expect("a context");
    cx.set_observable(true);
    let x = Rng::new(1).tensor(DType::F32, &[3, 40]);
    let shapes = Arc::new(program.shapes(std::slice::from_ref(&x)).expect("shapes"));
    cx.enqueue(std::slice::from_ref(&x), &shapes).expect("runs");
    let product = cx.observe(g.find("product").expect("a value")).expect("it is at a border");
    let w = g.weight(g.find("w").expect("a weight")).expect("a weight").tensor.clone();
    close(&[product], &op("matmul").eval(&[Some(x), Some(w)]).expect("the oracle"));
}

#[test]
fn wrong_inputs_and_missing_runs_give_errors() {
    let Some((device, target)) = device() else { return };
    let mut program = Program::step_per_node(layer(3.into()), &Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    let program = Arc::new(program);
    let mut cx = device.load(program.clone()).expect("loads").context().expect("a context");
    assert!(matches!(cx.outputs(), Err(BackendError::InvalidArgument(_))));
    let x = Rng::new(1).tensor(DType::F32, &[3, 40]);
    let shapes = Arc::new(program.shapes(&[x]).expect("shapes"));
    let other = Rng::new(1).tensor(DType::F32, &[2, 40]);
    assert!(matches!(cx.enqueue(&[other], &shapes), Err(BackendError::InvalidArgument(_))));
    assert!(matches!(cx.enqueue(&[], &shapes), Err(BackendError::InvalidArgument(_))));
}

#[test]
fn assertions_that_fail_are_errors_of_their_layer() {
    let Some((device, target)) = device() else { return };
    let mut g = Graph::new("assertion");
    let x = g.add_input("x", Fact::of(TensorType::new(DType::Bool, [Dim::new(5)])));
    let check = Op::new("assertion", Attrs::new().with("message", "all must be set")).expect("assertion");
    g.add_node("guard", check, &[Some(x)]).expect("a node");
    g.outputs = vec![x];
    let mut program = Program::step_per_node(g, &Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    let program = Arc::new(program);
    let mut cx = device.load(program.clone()).expect("loads").context().expect("a context");
    let mut run = |v: [u8; 5]| {
        let x = Tensor::from_bytes(DType::Bool, &[5], v.to_vec()).expect("a tensor");
        let shapes = Arc::new(program.shapes(std::slice::from_ref(&x)).expect("shapes"));
        cx.enqueue(&[x], &shapes).and_then(|()| cx.outputs())
    };
    assert!(run([1; 5]).is_ok());
    let failed = run([1, 1, 0, 1, 1]).expect_err("one is not set");
    assert!(
        matches!(&failed, BackendError::Execution { layer, message } if layer == "guard" && message.contains("all must be set")),
        "{failed}"
    );
    assert!(run([1; 5]).is_ok());
}

#[test]
fn steps_and_regions_can_be_timed() {
    let Some((device, target)) = device() else { return };
    let g = layer(64.into());
    let region = Region::extract(&g, g.order()).expect("a region");
    let tactic = Wgpu.tactics(&region, &target).expect("tactics").remove(0);
    let blob = Wgpu.compile(&region, &tactic, &target).expect("a text");
    let inputs: Vec<Tensor> = region
        .graph
        .inputs
        .iter()
        .map(|&v| Rng::new(2).tensor(DType::F32, &region.graph.ty(v).static_dims().expect("numbers")))
        .collect();
    let request =
        TimeRequest { graph: &region.graph, tactic: &tactic, blob: &blob, inputs: &inputs, samples: 3 };
    let times = device.time(&request).expect("times");
    assert!(times.len() == 3 && times.iter().all(|t| *t > 0.0), "{times:?}");
}

#[test]
fn blobs_of_earlier_versions_are_refused() {
    let Some((device, target)) = device() else { return };
    let x = Rng::new(1).tensor(DType::F32, &[4]);
    let (mut program, _) = Program::single(&op("neg"), &[Some(x)]).expect("a program");
    program.choose(&Wgpu, &target).expect("tactics");
    program.steps[0].blob = b"// kiln 3 main0\nfn main0() {}\n".to_vec().into();
    let refused = device.load(Arc::new(program)).map(drop).expect_err("an old blob");
    assert!(
        matches!(&refused, BackendError::Incompatible(m) if m.contains("build the plan again")),
        "{refused}"
    );
}
