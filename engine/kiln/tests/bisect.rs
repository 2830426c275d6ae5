//! Faults that a backend has in one operator are found inside of kernels.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln::bisect::{Culprit, culprit};
use kiln::compare::{Compare, Compared};
use kiln::{Backend, BackendError, Backends, BuildConfig, BuildOptions, DType, DiscoverOptions, Engine};
use kiln::{EngineBuilder, Network, Target, Tensor, TensorType};
use kiln_backend::{Device, Executable, Program, Region, Tactic, TimeRequest};
use kiln_ir::{Attrs, Op};
use std::collections::BTreeSet;
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
    let found = culprit("y", &program, &BTreeSet::new(), &mut wanted, &mut rebuild, &agree).unwrap().unwrap();
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

/// Kernels in front of the one that differs are looked through, too, if their tensors cannot be compared.
#[test]
fn faults_in_front_of_what_can_be_compared_are_found() {
    let net = network(&["sin", "tanh", "cos", "erf"]);
    let mut settings = Compare::against(kiln::REFERENCE).bisect();
    settings.compared = Compared::Kernels;
    let mut options = BuildOptions::default();
    options.config = BuildConfig { estimates: true, fuse: false, search: false, ..BuildConfig::default() };
    options.backend = Some("cpu".into());
    let each = Engine::builder().backends(sides()).options(options.clone());
    let found = each.compare(&net, &x(), &settings).unwrap();
    let alone = found.culprit.unwrap();
    assert_eq!((alone.layers, alone.builds), (vec!["tanh1".to_owned()], 0));
    assert!(alone.in_front.is_empty());

    let built = each.build_plan(&net).unwrap();
    let run = |backend: &str, debug: &[String]| {
        let mut options = options.clone();
        options.backend = Some(backend.into());
        options.config.debug_tensors = debug.to_vec();
        let engine = Engine::builder().backends(sides()).options(options).build(&net).unwrap();
        let mut context = engine.create_context().unwrap();
        context.set_observable(true);
        context.run(&x()).unwrap();
        context
    };
    let mut wanted = run(kiln::REFERENCE, &[]);
    let mut rebuild = |name: &str| Ok::<_, kiln::Error>(Some(run("cpu", &[name.to_owned()])));
    let agree = |a: &Tensor, b: &Tensor| a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-4);
    let mut find = |agreed: &[&str]| {
        let agreed = agreed.iter().map(|s| (*s).to_owned()).collect();
        culprit("t3", &built.plan.program, &agreed, &mut wanted, &mut rebuild, &agree).unwrap().unwrap()
    };
    let found = find(&[]);
    assert_eq!((found.layers, found.tensor.as_str()), (vec!["tanh1".to_owned()], "t1"));
    let found = find(&["t0"]);
    assert_eq!((found.kernel.as_str(), found.in_front), ("erf3", vec!["tanh1".to_owned()]));
    assert!(found.builds > 0);
    assert!(
        culprit("none", &built.plan.program, &BTreeSet::new(), &mut wanted, &mut rebuild, &agree)
            .unwrap()
            .is_none()
    );
}

/// Tensors with channels last are compared with those of the network.
#[test]
fn tensors_with_channels_last_are_compared() {
    let mut net = Network::new("conv");
    let ty = |dims: [i64; 4]| TensorType::new(DType::F32, dims);
    let x = net.add_input("x", ty([1, 8, 9, 9])).unwrap();
    let conv = |net: &mut Network, name: &str, v| {
        let w: Vec<f32> = (0..8 * 8 * 9).map(|i| ((i * 7) % 13) as f32 / 13.0 - 0.5).collect();
        let w = net.add_weights(Some(name), Tensor::f32(&[8, 8, 3, 3], &w).unwrap()).unwrap();
        net.add_layer(name, "conv", Attrs::new(), &[Some(v), Some(w)]).unwrap()[0]
    };
    let h = conv(&mut net, "c0", x);
    let h = net.add_layer("th", "tanh", Attrs::new(), &[Some(h)]).unwrap()[0];
    let y = conv(&mut net, "c1", h);
    net.mark_output(y, "y").unwrap();
    let hwc = kiln::IoSpec { dtype: None, formats: Some(kiln::TensorFormat::Hwc.into()) };
    let io = [("x", hwc.clone()), ("y", hwc)].map(|(n, s)| (n.to_owned(), s)).into_iter().collect();
    let config = BuildConfig { estimates: true, direct_io: true, io, ..BuildConfig::default() };
    let image: Vec<f32> = (0..8 * 81).map(|i| (i % 17) as f32 / 17.0 - 0.4).collect();
    let image = [("x", Tensor::f32(&[1, 8, 9, 9], &image).unwrap())];
    let builder = Engine::builder().backends(sides()).backend("cpu").config(config);
    let settings = Compare::against(kiln::REFERENCE).bisect();
    let found = builder.compare(&net, &image, &settings).unwrap();
    let named: Vec<&str> = found.layers.iter().map(|(_, d)| d.name.as_str()).collect();
    assert!(named.iter().any(|n| n.ends_with(".channels_last")), "{named:?}, hidden {:?}", found.hidden);
    assert_eq!(found.culprit.unwrap().layers, ["th"]);
}

/// The oracle, and the faulty backend as "cpu".
fn sides() -> Backends {
    let right = kiln::backends(&DiscoverOptions::linked()).0;
    let mut both = Backends::new();
    both.register(right.get(kiln::REFERENCE).unwrap()).unwrap();
    both.register(Arc::new(Faulty(right.get("cpu").unwrap()))).unwrap();
    both
}

fn builder() -> EngineBuilder {
    let config = BuildConfig { estimates: true, ..BuildConfig::default() };
    Engine::builder().backends(sides()).backend("cpu").config(config)
}

fn x() -> [(&'static str, Tensor); 1] {
    [("x", Tensor::f32(&[8], &[-0.9, -0.5, -0.2, 0.1, 0.3, 0.5, 0.7, 0.9]).unwrap())]
}

#[test]
fn a_comparison_finds_the_layer_at_fault_of_an_engine_as_it_ships() {
    let net = network(&["sigmoid", "sin", "tanh", "cos"]);
    let settings = Compare::against(kiln::REFERENCE).bisect();
    let found = builder().compare(&net, &x(), &settings).unwrap();
    assert!(!found.agrees() && found.layers.len() == 1, "one kernel: {}", found.to_json());
    let culprit = found.culprit.as_ref().unwrap();
    assert_eq!((&culprit.layers[..], culprit.tensor.as_str()), (&["tanh2".to_owned()][..], "t2"));
    let json = found.to_json();
    assert_eq!((&json["wanted"], &json["found"]), (&"reference".into(), &"cpu".into()));
    assert_eq!(json["at_fault"]["layers"][0], "tanh2");
    assert_eq!(json["first_layer_that_differs"]["name"], json["outputs"][0]["name"]);
    // The tolerance decides which values differ; where all agree, nothing is looked for.
    let wide = builder().compare(&net, &x(), &settings.clone().tolerance(1.0, 1.0)).unwrap();
    assert!(wide.agrees() && wide.culprit.is_none());
    let not_asked = builder().compare(&net, &x(), &Compare::against(kiln::REFERENCE)).unwrap();
    assert!(!not_asked.agrees() && not_asked.culprit.is_none());
}

#[test]
fn a_comparison_is_of_outputs_of_layers_or_of_a_plan() {
    let (wrong, right) = (network(&["sin", "tanh"]), network(&["sin", "cos"]));
    let mut settings = Compare::against(kiln::REFERENCE);
    settings.compared = Compared::Layers;
    let found = builder().compare(&wrong, &x(), &settings).unwrap();
    let verdicts: Vec<_> = found.layers.iter().map(|(l, d)| (l.as_str(), d.ok())).collect();
    assert_eq!(verdicts, [("sin0", true), ("tanh1", false), ("sum", false)]);
    settings.compared = Compared::Outputs;
    let found = builder().compare(&wrong, &x(), &settings).unwrap();
    assert!(found.layers.is_empty() && !found.agrees());
    // A plan of another network than the one that is compared.
    let mut settings = Compare::against(kiln::REFERENCE).bisect();
    let plan = |net| builder().build_plan(net).unwrap().plan;
    settings.plan = Some(plan(&right));
    assert!(builder().compare(&right, &x(), &settings).unwrap().agrees());
    let third = network(&["sin", "sigmoid"]);
    settings.plan = Some(plan(&third));
    let found = builder().compare(&right, &x(), &settings).unwrap();
    assert!(!found.agrees() && found.culprit.is_none());
    assert!(found.notes.iter().any(|n| n.contains("agrees: give the options")), "{:?}", found.notes);
    // A plan of this network is built again with its tactics, and cut.
    settings.plan = Some(plan(&wrong));
    let found = builder().compare(&wrong, &x(), &settings).unwrap();
    assert_eq!(found.culprit.unwrap().layers, ["tanh1"]);
}

#[test]
fn inputs_of_a_comparison_decide_shapes_that_are_open() {
    let mut net = Network::new("rows");
    let x = net.add_input("x", TensorType { dtype: DType::F32, dims: vec![kiln::Dim::host("n")] }).unwrap();
    let y = net.add_layer("tanh", "tanh", Attrs::new(), &[Some(x)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let inputs = [("x", Tensor::f32(&[3], &[0.1, 0.2, 0.9]).unwrap())];
    let settings = Compare::against(kiln::REFERENCE);
    let found = builder().compare(&net, &inputs, &settings).unwrap();
    assert_eq!((found.outputs[0].count, found.agrees()), (3, false));
    let e = builder().shape("x", &[4]).compare(&net, &inputs, &settings).map(drop).unwrap_err().to_string();
    assert!(e.contains("[3]") && e.contains("[4]"), "{e}");
    let e = builder().compare(&net, &inputs, &Compare::against("nothing")).map(drop).unwrap_err().to_string();
    assert!(e.contains("\"nothing\""), "{e}");
    let mut calls = 0;
    let mut stop = |_: &str, _, _| {
        calls += 1;
        false
    };
    let ended = builder().compare_with_progress(&net, &inputs, &settings, &mut stop);
    assert!(ended.is_err() && calls == 1);
}
