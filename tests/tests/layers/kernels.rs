//! Layers with kernels in source form.

use crate::devices::{built, devices};
use crate::examples::{f32s, net_of, reference, run_on, run_with};
use crate::{example, row_norm};
use kiln_backend::{Backend, BackendError, CompiledKernel, Region, Tactic, Target, host_layer};
use kiln_builder::BuildConfig;
use kiln_ir::{Attrs, DType, Dim, Fact, Tensor, TensorType};
use kiln_network::{Network, PluginSpec};
use kiln_plan::{Profile, Range};
use std::sync::Arc;

fn input(rows: usize, columns: usize) -> [Tensor; 2] {
    let x = (0..rows * columns).map(|i| ((i * 37 % 101) as f32 - 50.0) / 10.0).collect::<Vec<_>>();
    let scale = (0..columns).map(|c| 0.5 + c as f32 / 7.0).collect::<Vec<_>>();
    [f32s(&[rows, columns], &x), f32s(&[columns], &scale)]
}

fn near(a: &Tensor, b: &Tensor) -> bool {
    let pairs = a.to_f64().into_iter().zip(b.to_f64());
    a.shape() == b.shape() && pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs()))
}

/// A backend that offers one of its tactics only, so that each is run.
pub struct Only(pub Arc<dyn Backend>, pub &'static str);

impl Backend for Only {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }
    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = self.0.tactics(region, target)?;
        if all.iter().any(|t| t.name == self.1) {
            all.retain(|t| t.name == self.1);
        }
        Ok(all)
    }
    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }
    fn open(&self, target: &Target) -> Result<Arc<dyn kiln_backend::Device>, BackendError> {
        self.0.open(target)
    }
}

#[test]
fn every_kernel_agrees_with_the_reference() {
    row_norm();
    for (rows, columns) in [(1, 1), (3, 7), (300, 5), (2, 1000)] {
        let inputs = input(rows, columns);
        let net = net_of(PluginSpec::new("example", "RowNorm").field("eps", 0.25), &inputs);
        let wanted = run_on(&reference(), &net, &inputs).unwrap();
        for backend in devices() {
            for tactic in ["plugin.block", "plugin.thread"] {
                let b: Arc<dyn Backend> = Arc::new(Only(backend.clone(), tactic));
                assert_eq!(built(&b, &net).program.steps[0].tactic.name, tactic);
                let found = run_on(&b, &net, &inputs).unwrap();
                assert!(near(&found[0], &wanted[0]), "{} {tactic} {rows}x{columns}", b.name());
            }
        }
    }
}

/// The tuner has both kernels to choose from, and runs need the host nowhere.
#[test]
fn the_tuner_chooses_between_kernels() {
    row_norm();
    let net = net_of(PluginSpec::new("example", "RowNorm"), &input(64, 64));
    for b in devices() {
        let built = built(&b, &net);
        assert!(built.host_layers.is_empty());
        let step = &built.steps[0];
        assert!(step.candidates == 2 && step.ns.is_some(), "both are timed: {step:?}");
        assert!(["plugin.block", "plugin.thread"].contains(&&*step.tactic), "{step:?}");
    }
}

/// A kernel between others, at shapes that a run decides; rows of no element and no rows at all.
#[test]
fn launches_follow_the_shapes_of_a_run() {
    row_norm();
    let mut net = Network::new("net");
    let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("n"), 6.into()])).unwrap();
    let s = net.add_weights(Some("s"), f32s(&[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
    let twice = net.add_layer("", "add", Attrs::new(), &[Some(x), Some(x)]).unwrap()[0];
    let y = net.add_plugin(&[twice, s], PluginSpec::new("example", "RowNorm")).unwrap().output(0).unwrap();
    let z = net.add_layer("", "exp", Attrs::new(), &[Some(y)]).unwrap()[0];
    net.mark_output(z, "z").unwrap();
    let mut profile = Profile::default();
    profile.shapes.insert("x".into(), Range { min: vec![0, 6], opt: vec![3, 6], max: vec![9, 6] });
    let config = || BuildConfig { profiles: vec![profile.clone()], ..BuildConfig::default() };
    for b in devices() {
        for n in [3, 9, 1, 0] {
            let inputs = &input(n, 6)[..1];
            let wanted = run_with(&reference(), &net, inputs, config()).unwrap();
            let found = run_with(&b, &net, inputs, config()).unwrap();
            let close =
                found[0].to_f64().iter().zip(wanted[0].to_f64()).all(|(a, b)| (a / b - 1.0).abs() < 1e-4);
            assert!(found[0].shape() == wanted[0].shape() && close, "{} {n}", b.name());
        }
    }
}

/// Steps of a network of one layer at sizes that a run decides, and the results of runs at these sizes beside the reference.
fn agree(net: &Network, profile: &Profile, tactic: &str, runs: &[Vec<Tensor>]) {
    let config = || BuildConfig { profiles: vec![profile.clone()], ..BuildConfig::default() };
    for b in devices() {
        let target = b.targets().unwrap().remove(0);
        let mut builder = kiln_builder::Builder::new(b.clone(), target.clone());
        builder.config = config();
        let built = builder.build(net).unwrap();
        let tactics: Vec<_> = built.program.steps.iter().map(|s| s.tactic.name.clone()).collect();
        assert!(
            tactics.iter().any(|t| t == tactic) && tactics.iter().all(|t| t != host_layer::ON_HOST),
            "{}: {tactics:?}",
            b.name()
        );
        let program = Arc::new(built.program);
        let mut c = b.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap();
        for inputs in runs {
            let wanted = run_with(&reference(), net, inputs, config()).unwrap();
            let shapes = Arc::new(program.shapes(inputs).unwrap());
            for _ in 0..2 {
                c.enqueue(inputs, &shapes).unwrap();
                assert_eq!(c.outputs().unwrap(), wanted, "{} {:?}", b.name(), inputs[0].shape());
            }
        }
    }
}

fn range(profile: &mut Profile, name: &str, most: usize, rest: &[i64]) {
    let of = |n: i64| [&[n], rest].concat();
    profile.shapes.insert(name.into(), Range { min: of(0), opt: of(7), max: of(most as i64) });
}

/// Boxes that overlap by chance, and scores of which some are equal.
#[test]
fn kernels_find_the_best_boxes() {
    example("nms");
    let mut net = Network::new("net");
    let b = net.add_input("b", TensorType::new(DType::F32, [Dim::host("n"), 4.into()])).unwrap();
    let s = net.add_input("s", TensorType::new(DType::F32, [Dim::host("n")])).unwrap();
    let spec = PluginSpec::new("example", "BestBoxes").field("overlap", 0.3).field("most", 200);
    let outputs = net.add_plugin(&[b, s], spec).unwrap().outputs().to_vec();
    for (i, y) in outputs.into_iter().enumerate() {
        net.mark_output(y, &format!("y{i}")).unwrap();
    }
    let mut profile = Profile::default();
    range(&mut profile, "b", 700, &[4]);
    range(&mut profile, "s", 700, &[]);
    let mut rng = kiln_ir::problem::Rng::new(7);
    let mut run = |n: usize| {
        let mut boxes = Vec::new();
        for _ in 0..n {
            let [x, y, w, h] = [20, 20, 6, 6].map(|most| rng.int(0, most) as f32 / 2.0);
            boxes.extend([x, y, x + w, y + h]);
        }
        let scores: Vec<f32> = (0..n).map(|_| rng.int(0, 50) as f32).collect();
        vec![f32s(&[n, 4], &boxes), f32s(&[n], &scores)]
    };
    let runs = [7, 300, 1, 0, 700, 7].map(&mut run);
    agree(&net, &profile, "plugin.rounds", &runs);
    let e =
        net.add_plugin(&[s, s], PluginSpec::new("example", "BestBoxes")).map(drop).unwrap_err().to_string();
    assert!(e.contains("boxes want the shape [n, 4]") && e.contains("libkiln_layers_nms.so"), "{e}");
}

/// Updates of one row are added in their order; the table stays for others.
#[test]
fn kernels_add_rows_in_place() {
    example("scatter_add");
    let mut net = Network::new("net");
    let table = net.add_input("t", TensorType::new(DType::F32, [9, 70])).unwrap();
    let rows = net.add_input("r", TensorType::new(DType::I64, [Dim::host("m")])).unwrap();
    let updates = net.add_input("u", TensorType::new(DType::F32, [Dim::host("m"), 70.into()])).unwrap();
    let spec = PluginSpec::new("example", "ScatterAdd");
    let y = net.add_plugin(&[table, rows, updates], spec).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let mut profile = Profile::default();
    range(&mut profile, "r", 40, &[]);
    range(&mut profile, "u", 40, &[70]);
    let mut rng = kiln_ir::problem::Rng::new(3);
    let runs = [7usize, 40, 1, 0, 7].map(|m| {
        let rows: Vec<i64> = (0..m).map(|_| rng.int(0, 8)).collect();
        let t = rng.tensor(DType::F32, &[9, 70]);
        vec![t, Tensor::i64(&[m], &rows).unwrap(), rng.tensor(DType::F32, &[m, 70])]
    });
    agree(&net, &profile, "plugin.columns", &runs);
    let wide = net.add_input("w", TensorType::new(DType::F32, [3, 71])).unwrap();
    let e = net.add_plugin(&[table, rows, wide], PluginSpec::new("example", "ScatterAdd"));
    assert!(e.map(drop).unwrap_err().to_string().contains("wants a table [n, d]"));
}

/// The region of the layer on inputs of these shapes.
fn region(shapes: &[&[i64]]) -> Region {
    row_norm();
    let mut net = Network::new("net");
    let ids: Vec<_> = shapes
        .iter()
        .enumerate()
        .map(|(i, s)| {
            net.add_input(&format!("x{i}"), TensorType::new(DType::F32, s.iter().copied())).unwrap()
        })
        .collect();
    let y = net.add_plugin(&ids, PluginSpec::new("example", "RowNorm")).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let g = net.lower().unwrap();
    Region::extract(&g, g.order()).unwrap()
}

/// CUDA needs no device here: texts are compiled for GPUs that are named.
#[test]
fn cuda_kernels_compile_and_their_launches_are_data() {
    let backend = kiln_backend_cuda::Cuda::new().unwrap();
    let target = kiln_backend_cuda::target::known("h100").unwrap();
    let region = region(&[&[12, 300], &[300]]);
    let tactics = backend.tactics(&region, &target).unwrap();
    let names: Vec<&str> = tactics.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["plugin.block", "plugin.thread"]);
    if kiln_backend_cuda::compile::Nvrtc::get().is_err() && std::env::var_os("KILN_REQUIRE_NVRTC").is_none() {
        return;
    }
    for (tactic, blocks) in tactics.iter().zip([12, 1]) {
        let blob = backend.compile(&region, tactic, &target).unwrap();
        let kernel = CompiledKernel::from_blob(&blob).unwrap();
        assert!(kernel.code.starts_with(b"\x7fELF") && kernel.entries[0].threads == 256);
        let cases = kernel.launches.unwrap().cases;
        let launch = &cases[0].launches[0];
        assert_eq!(launch.grid, kiln_backend::launch::Grid::Groups(blocks));
        assert_eq!(launch.words, [12, 300, 1e-5f32.to_bits()]);
    }
}

#[test]
fn a_text_that_does_not_compile_is_an_error_with_the_compilers_words() {
    let mut region = region(&[&[2, 3], &[3]]);
    let node = region.graph.nodes().next().unwrap().1;
    let mut kernels = kiln_ops::plugin::kernels(node.op.attrs()).unwrap();
    for k in &mut kernels {
        k.source = k.source.replace("sum / ", "total / ").replace("sums[0] / ", "total / ");
    }
    let attrs = node.op.attrs().clone().with("kernels", kiln_ops::plugin::kernel::encode(&kernels));
    let mut g = kiln_ir::Graph::new("wrong");
    let inputs: Vec<_> = region
        .graph
        .inputs
        .iter()
        .map(|&v| Some(g.add_input(&format!("v{}", v.0), Fact::of(region.graph.ty(v).clone()))))
        .collect();
    g.outputs = g.add_node("n", kiln_ir::Op::new("plugin", attrs).unwrap(), &inputs).unwrap();
    region = Region::extract(&g, g.order()).unwrap();
    let refused = |b: &dyn Backend, t: &Target| {
        let tactic = b.tactics(&region, t).unwrap().remove(0);
        b.compile(&region, &tactic, t).unwrap_err().to_string()
    };
    for b in devices() {
        let e = refused(&*b, &b.targets().unwrap()[0]);
        let named = if b.name() == "cuda" { "block" } else { "plugin." };
        assert!(e.contains(named) && e.contains("total"), "{e}");
    }
    if kiln_backend_cuda::compile::Nvrtc::get().is_ok() {
        let target = kiln_backend_cuda::target::known("h100").unwrap();
        let e = refused(&kiln_backend_cuda::Cuda::new().unwrap(), &target);
        assert!(e.contains("total") && e.contains("block"), "{e}");
    }
}
