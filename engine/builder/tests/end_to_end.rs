//! Small networks through the builder and the CPU backend, against the oracle on the unoptimized graph.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target, flow};
use kiln_builder::{BuildConfig, Builder, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Elems, Graph, Tensor, TensorType};
use kiln_network::Network;
use kiln_plan::Plan;
use std::sync::Arc;

fn build(network: &Network, config: BuildConfig) -> kiln_builder::Built {
    let backend: Arc<dyn Backend> = Arc::new(kiln_backend_cpu::Cpu::new());
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend, target);
    b.config = config;
    b.build(network).unwrap()
}

/// Runs what was built after an iteration through a plan file, whose reader verifies it.
fn run(built: kiln_builder::Built, inputs: &[Tensor]) -> Vec<Tensor> {
    let backend = kiln_backend_cpu::Cpu::new();
    let target = backend.targets().unwrap().remove(0);
    let device = backend.open(&target).unwrap();
    let plan = Plan::new(built.program, Vec::new(), target);
    let plan = Plan::read(plan.write().unwrap()).unwrap();
    assert!(kiln_runtime::verify_recipes(&plan.program).unwrap().different.is_empty());
    let program = Arc::new(plan.program);
    let shapes = Arc::new(program.shapes(inputs).unwrap());
    let mut context = device.load(program).unwrap().context().unwrap();
    context.enqueue(inputs, &shapes).unwrap();
    context.outputs().unwrap()
}

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
    for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
        assert!((x - y).abs() <= 1e-5 * y.abs().max(1.0), "{x} {y}");
    }
}

fn check(network: &Network, inputs: &[Tensor]) -> kiln_builder::Built {
    let expected = network.lower().unwrap().eval(inputs).unwrap();
    for config in [BuildConfig::default(), BuildConfig { fold: false, fuse: false, ..BuildConfig::default() }]
    {
        let outs = run(build(network, config), inputs);
        assert_eq!(outs.len(), expected.len());
        outs.iter().zip(&expected).for_each(|(a, b)| close(a, b));
    }
    build(network, BuildConfig::default())
}

fn layer(
    n: &mut Network,
    op: &str,
    attrs: Attrs,
    inputs: &[kiln_network::TensorId],
) -> kiln_network::TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    n.add_layer("", op, attrs, &inputs).unwrap()[0]
}

fn op_count(g: &Graph, op: &str) -> usize {
    g.nodes().filter(|(_, n)| n.op.name() == op).count()
}

#[test]
fn a_pointwise_chain_becomes_one_step() {
    let mut n = Network::new("chain");
    let mut rng = Rng::new(1);
    let x = n.add_input("x", TensorType::new(DType::F32, [4, 6])).unwrap();
    let w = n.add_weights(Some("w"), rng.tensor(DType::F32, &[6, 5])).unwrap();
    let b = n.add_weights(Some("b"), rng.tensor(DType::F32, &[5])).unwrap();
    let y = layer(&mut n, "matmul", Attrs::new(), &[x, w]);
    let y = layer(&mut n, "add", Attrs::new(), &[y, b]);
    let y = layer(&mut n, "tanh", Attrs::new(), &[y]);
    let y = layer(&mut n, "exp", Attrs::new(), &[y]);
    n.mark_output(y, "y").unwrap();
    let built = check(&n, &[rng.tensor(DType::F32, &[4, 6])]);
    assert_eq!(built.steps.len(), 1, "{:?}", built.steps);
}

#[test]
fn constants_fold_and_keep_their_recipe() {
    let mut n = Network::new("fold");
    let mut rng = Rng::new(2);
    let x = n.add_input("x", TensorType::new(DType::F32, [3])).unwrap();
    let w = n.add_weights(Some("w"), rng.tensor(DType::F32, &[3])).unwrap();
    let e = layer(&mut n, "exp", Attrs::new(), &[w]);
    let e = layer(&mut n, "neg", Attrs::new(), &[e]);
    let y = layer(&mut n, "mul", Attrs::new(), &[x, e]);
    n.mark_output(y, "y").unwrap();
    check(&n, &[rng.tensor(DType::F32, &[3])]);
    let built = build(&n, BuildConfig { refit: Refit::All, ..BuildConfig::default() });
    let g = &built.program.graph;
    assert_eq!((op_count(g, "exp"), op_count(g, "mul")), (0, 1));
    let derived: Vec<_> =
        g.value_ids().filter_map(|v| g.weight(v)).filter_map(|w| Some((w, w.recipe.as_ref()?))).collect();
    let (w, recipe) = derived.last().copied().unwrap();
    assert_eq!(recipe.sources, ["w".into()]);
    let mut rng = Rng::new(2);
    let again = recipe.graph.eval(&[rng.tensor(DType::F32, &[3])]).unwrap();
    assert_eq!(again[0], w.tensor);
}

#[test]
fn the_same_network_gives_the_same_program() {
    let mut n = Network::new("twice");
    let x = n.add_input("x", TensorType::new(DType::F32, [8, 8])).unwrap();
    let a = layer(&mut n, "exp", Attrs::new(), &[x]);
    let b = layer(&mut n, "sin", Attrs::new(), &[x]);
    let y = layer(&mut n, "matmul", Attrs::new(), &[a, b]);
    n.mark_output(y, "y").unwrap();
    let text = |b: kiln_builder::Built| format!("{:?}", b.program);
    // Nothing is timed: what was timed would be the same only from the same timing cache.
    let config = || BuildConfig { estimates: true, ..BuildConfig::default() };
    assert_eq!(text(build(&n, config())), text(build(&n, config())));
}

#[test]
fn a_tactic_source_that_the_backend_lacks_is_an_error() {
    let mut n = Network::new("sources");
    let x = n.add_input("x", TensorType::new(DType::F32, [2])).unwrap();
    let y = layer(&mut n, "relu", Attrs::new(), &[x]);
    n.mark_output(y, "y").unwrap();
    let backend: Arc<dyn Backend> = Arc::new(kiln_backend_cpu::Cpu::new());
    let mut target = backend.targets().unwrap().remove(0);
    target.features.push(kiln_backend::offer_feature("faster"));
    let mut b = Builder::new(backend, target);
    b.config.tactic_sources = vec!["faster".into()];
    b.build(&n).unwrap();
    b.config.tactic_sources = vec!["cublaslt".into()];
    let e = b.build(&n).unwrap_err().to_string();
    assert_eq!(e, "backend cpu has no tactic source \"cublaslt\"; there are: faster");
}

/// The CPU backend with a second tactic for every region: the oracle.
struct Two(kiln_backend_cpu::Cpu);

impl Backend for Two {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = self.0.tactics(region, target)?;
        all.push(Tactic::plain("oracle"));
        Ok(all)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        self.0.open(target)
    }
}

#[test]
fn excluded_tactics_are_not_taken() {
    let mut n = Network::new("excluded");
    let x = n.add_input("x", TensorType::new(DType::F32, [64])).unwrap();
    let y = layer(&mut n, "relu", Attrs::new(), &[x]);
    n.mark_output(y, "y").unwrap();
    let excluding = |names: &[&str]| {
        let backend: Arc<dyn Backend> = Arc::new(Two(kiln_backend_cpu::Cpu::new()));
        let target = backend.targets().unwrap().remove(0);
        let mut b = Builder::new(backend, target);
        b.config.estimates = true;
        b.config.excluded_tactics = names.iter().map(|n| (*n).to_owned()).collect();
        b.build(&n).map(|built| built.program.steps[0].tactic.name.clone())
    };
    assert_eq!(excluding(&["fast", "ora"]).unwrap(), "oracle");
    assert_eq!(excluding(&["oracle"]).unwrap(), "fast");
    let e = excluding(&["fast", "oracle"]).unwrap_err().to_string();
    assert!(e.contains("\"y\"") || e.contains("relu"), "{e}");
    assert!(e.contains("excluded by this build") && e.contains("fast") && e.contains("oracle"), "{e}");
}

#[test]
fn dynamic_inputs_need_a_range() {
    let mut n = Network::new("dynamic");
    let x = n
        .add_input("x", TensorType { dtype: DType::F32, dims: vec![kiln_ir::Dim::host("n"), 4.into()] })
        .unwrap();
    let y = layer(&mut n, "exp", Attrs::new(), &[x]);
    n.mark_output(y, "y").unwrap();
    let backend: Arc<dyn Backend> = Arc::new(kiln_backend_cpu::Cpu::new());
    let target = backend.targets().unwrap().remove(0);
    let e = Builder::new(backend, target).build(&n).unwrap_err();
    assert!(e.to_string().contains("\"x\""), "{e}");
}

/// Carries the sum of all elements, and stacks their softmaxes.
const LOOP: &str = r#"graph "loop" {
  input %x: f32[9,4]
  input %s: f32[4]
  weight %n: i64[] = [9]
  %last: f32[4], %all: f32[9,4] = loop(%n, %s, %x) {body_captures=0,carried=1,count=true,iter_axes=[0],iter_reverse=[0],out_axes=[0,0],out_index=[0,0],out_kinds=s["last","concat"],out_length=[0,0]} @l graph "body" {
    input %s: f32[4]
    input %e: f32[4]
    %next = add(%s, %e)
    %all = softmax(%e) {axis=0}
    output %next
    output %all
  }
  output %last
  output %all
}"#;

#[test]
fn bodies_know_their_slices_where_the_target_has_kernels_for_them() {
    let mut told = Vec::new();
    for features in [&[][..], &[flow::SLICES]] {
        let backend: Arc<dyn Backend> = Arc::new(kiln_backend_cpu::Cpu::new());
        let mut target = backend.targets().unwrap().remove(0);
        target.features.extend(features.iter().map(|&f| f.to_owned()));
        let mut b = Builder::new(backend, target);
        b.config.estimates = true;
        let graph = Graph::from_text(LOOP).unwrap_or_else(|e| panic!("{e}"));
        let built = b.build_graph(graph, &mut |_, _, _| true).unwrap();
        let inside = built.program.steps.iter().flat_map(|s| &s.bodies).flat_map(|body| &body.steps);
        let slices = |t: &Tactic| [flow::takes_slice(t, 0), flow::takes_slice(t, 1), flow::gives_slice(t, 0)];
        // Steps: the softmax, the sum.
        told.push(inside.map(|s| slices(&s.tactic)).collect::<Vec<_>>());
    }
    assert_eq!(told, [vec![[false; 3]; 2], vec![[true, false, true], [false, true, false]]]);
}

/// A pad that removes at one end what it adds at the other keeps the shape, and shifts.
#[test]
fn pads_that_shift_are_kept() {
    for pads in [[0i64, 1, 0, -1], [1, 0, -1, 0], [0, -2, 0, 2], [0, 0, 0, 0]] {
        let mut n = Network::new("shift");
        let x = n.add_input("x", TensorType::new(DType::F32, [3, 4])).unwrap();
        let pads = Tensor::from_elems(DType::I64, &[4], &Elems::I(pads.to_vec())).unwrap();
        let pads = n.add_weights(None, pads).unwrap();
        let shifted = layer(&mut n, "pad", Attrs::new(), &[x, pads]);
        let y = layer(&mut n, "relu", Attrs::new(), &[shifted]);
        n.mark_output(y, "y").unwrap();
        let x = Rng::new(3).tensor(DType::F32, &[3, 4]);
        check(&n, &[x]);
    }
}
