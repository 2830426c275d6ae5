//! Faults that a backend has in one operator are found inside of kernels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln::bisect::{Culprit, culprit};
use kiln::{Backend, BackendError, Backends, BuildOptions, DType, DiscoverOptions, Engine, Network};
use kiln::{Target, Tensor, TensorType};
use kiln_backend::{Device, Executable, Program, Region, Tactic, TimeRequest};
use kiln_ir::{Attrs, Op};
use std::sync::Arc;

/// The CPU backend, which computes arc tangents where it is asked for hyperbolic ones.
struct Faulty(Arc<dyn Backend>);

impl Backend for Faulty {
    fn name(&self) -> &str {
        "cpu"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        self.0.tactics(region, target)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(FaultyDevice(self.0.open(target)?)))
    }
}

struct FaultyDevice(Arc<dyn Device>);

impl Device for FaultyDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        self.0.time(request)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        let mut program = (*program).clone();
        for id in program.graph.order().to_vec() {
            if let Some(node) = program.graph.get_mut(id).filter(|n| n.op.name() == "tanh") {
                node.op = Op::new("atan", Attrs::new()).unwrap();
            }
        }
        self.0.load(Arc::new(program))
    }
}

/// Functions one behind the other, and a sum with the first result: one kernel.
fn network(functions: &[&str]) -> Network {
    let mut net = Network::new("chain");
    let x = net.add_input("x", TensorType::new(DType::F32, [8])).unwrap();
    let mut v = x;
    let mut first = None;
    for (i, f) in functions.iter().enumerate() {
        v = net.add_layer(&format!("{f}{i}"), f, Attrs::new(), &[Some(v)]).unwrap()[0];
        net.set_tensor_name(v, &format!("t{i}")).unwrap();
        first = first.or(Some(v));
    }
    let y = net.add_layer("sum", "add", Attrs::new(), &[Some(v), first]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net
}

fn found(functions: &[&str]) -> Culprit {
    let right = kiln::backends(&DiscoverOptions::linked()).0;
    let mut wrong = Backends::new();
    wrong.register(Arc::new(Faulty(right.get("cpu").unwrap()))).unwrap();
    let net = network(functions);
    let build = |backends: &Backends, fuse: bool, debug: &[String]| {
        let mut options = BuildOptions::default();
        options.backend = Some("cpu".into());
        (options.config.fuse, options.config.search, options.config.estimates) = (fuse, false, true);
        options.config.debug_tensors = debug.to_vec();
        let built = Engine::builder().options(options).backends(backends.clone()).build_plan(&net).unwrap();
        let engine = Engine::builder().backends(backends.clone()).build(built.plan).unwrap();
        let mut context = engine.create_context().unwrap();
        context.set_observable(true);
        let x = Tensor::f32(&[8], &[-0.9, -0.5, -0.2, 0.1, 0.3, 0.5, 0.7, 0.9]).unwrap();
        context.run(&[("x", x)]).unwrap();
        (engine.program(), context)
    };
    let (_, mut wanted) = build(&right, false, &[]);
    let (program, _) = build(&wrong, true, &[]);
    assert_eq!(program.steps.len(), 1, "the network is one kernel");
    let mut builds = 0;
    let mut rebuild = |name: &str| {
        builds += 1;
        Ok::<_, kiln::Error>(Some(build(&wrong, true, &[name.to_owned()]).1))
    };
    let agree = |found: &Tensor, wanted: &Tensor| {
        let pairs = found.to_f64().into_iter().zip(wanted.to_f64());
        pairs.map(|(f, w)| (f - w).abs()).all(|d| d < 1e-4)
    };
    let kernel = program.steps[0].name.clone();
    let found = culprit(&kernel, &program, &mut wanted, &mut rebuild, &agree).unwrap().unwrap();
    assert!(found.builds == builds && builds <= 5, "{found}");
    found
}

#[test]
fn the_layer_at_fault_is_found_wherever_it_is() {
    for at in 0..6 {
        let mut functions = ["sigmoid", "sin", "softsign", "cos", "atan", "erf"];
        functions[at] = "tanh";
        let c = found(&functions);
        assert_eq!((c.layers, c.tensor), (vec![format!("tanh{at}")], format!("t{at}")));
    }
}

#[test]
fn messages_name_the_layer_and_the_kernel() {
    let text = found(&["sin", "tanh", "cos"]).to_string();
    assert!(text.contains("the layer at fault is \"tanh1\" of the kernel \"sin0 + tanh1"), "{text}");
}
