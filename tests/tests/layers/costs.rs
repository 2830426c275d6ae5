//! Kernels of Kiln's own as source forms of plug-ins: equal results, and times beside those of the operators.

use crate::devices::built;
use crate::examples::{net_of, run_on};
use kiln_backend::launch::Grid;
use kiln_backend::{Backend, BackendError, CompiledKernel, Context, Region, Shapes, Tactic, Target};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, OpError, Tensor, TensorType};
use kiln_network::{Network, PluginSpec, TensorId};
use kiln_ops::plugin::kernel::{KernelForm, Language, Param};
use kiln_ops::plugin::record::{LayerFunctions, LayerName, LayerRecord, LayerRun, Library, TypedKernel};
use kiln_ops::plugin::registry;
use kiln_ops::plugin::shapes::Shape;
use kiln_ops::plugin::types::Combination;
use kiln_plan::{Plan, Profile};
use std::fmt::Write;
use std::sync::Arc;

/// Rounds of times, in turn.
const ROUNDS: usize = 11;
/// Runs of a round.
const RUNS: u32 = 40;
/// Tactics of an operator that are compared; each is compiled for that.
const MOST_TACTICS: usize = 3;
/// Layers in a row, where one of them is short.
const ROW: usize = 8;

/// The operators, their inputs, and how many are in a row.
fn cases() -> Vec<(&'static str, Attrs, Vec<Vec<usize>>, usize)> {
    let norm = |rows: usize, columns: usize, row| {
        ("rms_norm", Attrs::new(), vec![vec![rows, columns], vec![columns]], row)
    };
    let wide = |rows: usize, columns: usize, row| ("softmax", Attrs::new(), vec![vec![rows, columns]], row);
    let map = |n: usize| ("exp", Attrs::new(), vec![vec![n]], 1);
    match std::env::var_os("KILN_EMULATOR").is_some() {
        true => vec![norm(3, 256, 2), wide(3, 100, 1), map(3000)],
        false => vec![
            norm(64, 4096, ROW),
            norm(4096, 4096, ROW),
            wide(8192, 2048, ROW),
            map(1 << 24),
            map(1 << 20),
        ],
    }
}

/// A layer of kernels alone.
struct KernelsAlone;

impl LayerFunctions for KernelsAlone {
    fn check(&self, _: &Attrs) -> Result<(), OpError> {
        Ok(())
    }
    fn describe(&self, _: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Err(OpError::Unsupported("shapes are fixed".into()))
    }
    fn run(&self, _: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        Err(OpError::Unsupported("no reference form".into()))
    }
}

/// The CUDA backend with those tactics alone whose kernel a plug-in can be: one launch of one kernel that takes addresses.
struct Simple(Arc<dyn Backend>);

impl Backend for Simple {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }
    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = self.0.tactics(region, target)?;
        let mut found = 0;
        all.retain(|t| {
            let fits = found < MOST_TACTICS && launch(&*self.0, region, t, target).is_some();
            found += usize::from(fits);
            fits
        });
        Ok(all)
    }
    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }
    fn open(&self, target: &Target) -> Result<Arc<dyn kiln_backend::Device>, BackendError> {
        self.0.open(target)
    }
}

/// Words and blocks of the only launch of a kernel, and the values of grid_n and extent.
struct Only {
    words: Vec<u32>,
    blocks: u64,
    count: u64,
    extent: u64,
}

fn launch(backend: &dyn Backend, region: &Region, tactic: &Tactic, target: &Target) -> Option<Only> {
    let kernel = CompiledKernel::from_blob(&backend.compile(region, tactic, target).ok()?).ok()?;
    let [entry] = &kernel.entries[..] else { return None };
    let launches = kernel.launches?;
    let [case] = &launches.cases[..] else { return None };
    let [l] = &case.launches[..] else { return None };
    let plain = l.scratch == 0 && l.maps.is_empty() && l.swap.is_none() && kernel.shared == 0;
    let extent = region.graph.ty(region.graph.outputs[0]).static_volume()? as u64;
    let (count, blocks) = match l.grid {
        Grid::Groups(n) => (n, n),
        Grid::Threads(n) => (n, n.div_ceil(entry.threads.into())),
        Grid::Output => (extent.div_ceil(8), extent.div_ceil(8).div_ceil(entry.threads.into())),
    };
    (plain && entry.cluster == 1 && !entry.together).then(|| Only {
        words: l.words.clone(),
        blocks,
        count,
        extent,
    })
}

/// The kernel of a region as a layer of this name: the text that Kiln writes, with another entry point.
fn as_layer(
    name: &str,
    backend: &dyn Backend,
    region: &Region,
    tactic: &Tactic,
    target: &Target,
) -> LayerRecord {
    let (text, entries) = kiln_backend_cuda::written(region, tactic, target).unwrap();
    let only = launch(backend, region, tactic, target).unwrap();
    let mut params = format!(
        "u32 grid_n = {}; u32 extras_at = {}; u32 extent = {}",
        only.count,
        only.words.len(),
        only.extent
    );
    let mut set = String::new();
    for (i, w) in only.words.iter().enumerate() {
        let _ = write!(params, "; u32 w{i} = {w}");
        let _ = write!(set, " k.words[{i}] = p.w{i};");
    }
    let marks = "extern \"C\" __global__ ";
    let heading = text.lines().find(|l| l.starts_with(marks)).unwrap();
    assert!(heading.contains("(const __grid_constant__ K k)"), "{heading}");
    let call = heading.rsplit_once("{ return; } ").unwrap().1.strip_suffix(" }").unwrap();
    let inputs = region.graph.inputs.len();
    let mut args: Vec<String> = (0..inputs).map(|i| format!("const float* a{i}")).collect();
    args.push("float* y".into());
    for i in 0..inputs {
        // Without an operator that reads it, a tensor is one of the expression alone.
        let member = if text.contains(&format!("bx{i};")) { "bx" } else { "be" };
        let _ = write!(set, " k.{member}{i} = a{i};");
    }
    let body: String = text.lines().filter(|l| !l.starts_with(marks)).flat_map(|l| [l, "\n"]).collect();
    let source = format!(
        "{body}extern \"C\" __global__ void layer({}, Params p) {{ K k; k.grid_n = p.grid_n; k.extras_at = p.extras_at; k.extent = \
         p.extent; k.marks = 0u; k.more_words = nullptr; k.alive = 0u; for (u32 i = 0u; i < 48u; i++) {{ k.words[i] = 0u; }}{set} \
         k.by0 = y; {call} }}\n",
        args.join(", ")
    );
    let form = KernelForm {
        language: Language::Cuda,
        tactic: "own".into(),
        condition: String::new(),
        source,
        entry: "layer".into(),
        grid: only.blocks.to_string(),
        block: entries[0].1.to_string(),
        shared: String::new(),
        params: Param::list(&params).unwrap(),
        count: None,
    };
    let types = vec!["f32"; inputs].join(",");
    LayerRecord {
        name: LayerName { space: "costs".into(), name: name.into(), version: "1".into() },
        doc: String::new(),
        fields: Vec::new(),
        types: Combination::list(&format!("{types}:f32")).unwrap(),
        shapes: Some(Shape::list("[i0.d*]").unwrap()),
        aliases: Vec::new(),
        workspace: String::new(),
        expression: None,
        tolerance: String::new(),
        kernels: vec![TypedKernel { types: Vec::new(), form }],
        natives: Vec::new(),
        patterns: Vec::new(),
        library: Library::default(),
        functions: Arc::new(KernelsAlone),
    }
}

/// A network of layers in a row, each on the result of the one before and on the other inputs.
fn row(
    shapes: &[Vec<usize>],
    count: usize,
    mut layer: impl FnMut(&mut Network, &[TensorId]) -> TensorId,
) -> Network {
    let mut net = Network::new("row");
    let input = |(i, s): (usize, &Vec<usize>)| {
        let ty = TensorType::new(DType::F32, s.iter().map(|&d| d as i64));
        net.add_input(&format!("x{i}"), ty).unwrap()
    };
    let mut ids: Vec<TensorId> = shapes.iter().enumerate().map(input).collect();
    for _ in 0..count {
        ids[0] = layer(&mut net, &ids);
    }
    net.mark_output(ids[0], "y").unwrap();
    net
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A context that has run once; where KILN_PLANS names a folder, the plan is stored there.
fn context(backend: &Arc<dyn Backend>, net: &Network, inputs: &[Tensor], name: &str) -> Box<dyn Context> {
    let target = backend.targets().unwrap().remove(0);
    let program = built(backend, net).program;
    if let Some(folder) = std::env::var_os("KILN_PLANS") {
        let plan = Plan::new(program.clone(), Vec::<Profile>::new(), target.clone());
        let to = std::path::Path::new(&folder).join(format!("{name}.kiln"));
        std::fs::write(to, plan.write().unwrap()).unwrap();
    }
    let program = Arc::new(program);
    let shapes: Arc<Shapes> = Arc::new(program.shapes(inputs).unwrap());
    let mut c = backend.open(&target).unwrap().load(program).unwrap().context().unwrap();
    c.enqueue(inputs, &shapes).unwrap();
    c.outputs().unwrap();
    c
}

#[test]
fn a_kernel_costs_the_same_as_an_operator_and_as_a_plug_in() {
    let Some(cuda) = kiln_tests::backends::cuda().unwrap() else { return };
    let backend: Arc<dyn Backend> = Arc::new(Simple(cuda.clone()));
    let target = backend.targets().unwrap().remove(0);
    for (number, (op, attrs, shapes, count)) in cases().into_iter().enumerate() {
        let mut rng = Rng::new(number as u64 + 1);
        let inputs: Vec<Tensor> = shapes.iter().map(|s| rng.tensor(DType::F32, s)).collect();
        let own = |net: &mut Network, ids: &[TensorId]| {
            let ids: Vec<_> = ids.iter().copied().map(Some).collect();
            net.add_layer("", op, attrs.clone(), &ids).unwrap()[0]
        };
        let one = row(&shapes, 1, own);
        let tactic = built(&backend, &one).program.steps[0].tactic.clone();
        let g = one.lower().unwrap();
        let region = Region::extract(&g, g.order()).unwrap();
        let name = format!("{op}{number}");
        registry::register(as_layer(&name, &*cuda, &region, &tactic, &target)).map(drop).unwrap();
        let plugin = |net: &mut Network, ids: &[TensorId]| {
            net.add_plugin(ids, PluginSpec::new("costs", &name)).unwrap().output(0).unwrap()
        };
        let found = run_on(&cuda, &net_of(PluginSpec::new("costs", &name), &inputs), &inputs).unwrap();
        let wanted = run_on(&backend, &one, &inputs).unwrap();
        assert_eq!(found[0].bytes(), wanted[0].bytes(), "{op} {shapes:?}: other bits");
        if std::env::var_os("KILN_EMULATOR").is_some() {
            continue;
        }
        let mut a = context(&backend, &row(&shapes, count, own), &inputs, &format!("{name}_operator"));
        let mut b = context(&cuda, &row(&shapes, count, plugin), &inputs, &format!("{name}_plugin"));
        let (mut operator, mut of_plugin) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            operator.push(median(a.time_runs(RUNS).unwrap()));
            of_plugin.push(median(b.time_runs(RUNS).unwrap()));
        }
        let (operator, of_plugin) = (median(operator), median(of_plugin));
        let ratio = of_plugin / operator;
        println!(
            "{op} {shapes:?} x{count} by {}: operator {:.2} us, plug-in {:.2} us, ratio {ratio:.4}",
            tactic.id(),
            operator / 1e3,
            of_plugin / 1e3
        );
        assert!(ratio < 1.1, "{op} {shapes:?}: a plug-in takes {ratio:.3} times as long");
    }
}
