//! `kiln compare`: one model on two backends, outputs or all layers compared.

use crate::diff::Diff;
use crate::failure::Failure;
use crate::given::{InputOptions, ask_for_given};
use crate::options::{PluginOptions, ShapeOptions, ToleranceOptions, TypeOptions};
use crate::print::Printer;
use crate::session::{Session, load_layers};
use crate::subject::{build, tell};
use kiln::bisect::{Culprit, culprit};
use kiln::report::BuildError;
use kiln::{
    BuildConfig, BuildOptions, Engine, Error, ExecutionContext, Model, Narrowing, Outputs, Plan, Tensor,
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Compare a model on two backends; exit code 1 if results differ
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ONNX model
    #[arg(value_name = "MODEL.onnx")]
    model: PathBuf,
    /// The backends; the first one is right
    #[arg(long, value_name = "A,B", value_parser = pair)]
    backends: (String, String),
    /// Compare every layer, built without fusion so that both have the same layers; the first that differs is named
    #[arg(long)]
    per_layer: bool,
    /// With --per-layer: take the second side as it ships, with all optimizations, and compare the tensors between its kernels
    #[arg(long, requires = "per_layer")]
    shipped: bool,
    /// With --shipped: look for the layer at fault inside of the first kernel that differs, by builds with cuts in it
    #[arg(long, requires = "shipped", conflicts_with = "engine")]
    bisect: bool,
    /// The engine that is the second side, as it was built
    #[arg(long, value_name = "E.kiln", conflicts_with_all = ["no_fold", "no_fuse"])]
    engine: Option<PathBuf>,
    /// Do not compute constant layers at build time
    #[arg(long)]
    no_fold: bool,
    /// Do not fuse layers into larger kernels
    #[arg(long)]
    no_fuse: bool,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    types: TypeOptions,
    #[command(flatten)]
    plugins: PluginOptions,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') => Ok((a.into(), b.into())),
        _ => Err("wanted two names, as reference,wgpu".into()),
    }
}

/// One side, after its run.
struct Side {
    backend: String,
    engine: Engine,
    context: ExecutionContext,
    outputs: Outputs,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    if args.inputs.use_profile.is_some() {
        return Err(Failure::Input("--use-profile is for `kiln run` and `kiln bench`: give --shapes".into()));
    }
    let model = Model::open(&args.model)?;
    let io = model.io_tensors().to_vec();
    let given = args.inputs.read(&io, out)?;
    let plan = args.engine.as_deref().map(|path| plan(path, args)).transpose()?;
    let mut first = options(args, args.per_layer);
    ask_for_given(&mut first.shapes, &given, &io);
    let profile = first.shapes.profile(&io, &|_, _| 1)?.profile;
    let inputs = args.inputs.complete(given, &io, &profile)?;
    let (a, b) = &args.backends;
    let session = Session::with(&args.plugins, [a.as_str(), b.as_str()]);
    let mut sides = Vec::new();
    let mut shipped = BuildOptions::default();
    let mut second = options(args, args.per_layer && !args.shipped);
    second.shapes = first.shapes.clone();
    for (backend, mut options) in [(a, first), (b, second)] {
        options.backend = Some(backend.clone());
        shipped = options.clone();
        let plan = match plan.clone().filter(|_| !sides.is_empty()) {
            Some(plan) => plan,
            None => {
                let built = build(model.clone(), &options, &session, out)?;
                if sides.is_empty() {
                    tell(&built.report, out);
                }
                built.plan
            }
        };
        let engine = Engine::builder().backends(session.backends.clone()).build(plan)?;
        sides.push(execute(backend, engine, &inputs, args.per_layer)?);
    }
    let Some((mut found, mut wanted)) = sides.pop().zip(sides.pop()) else { return Ok(()) };
    let diffs: Vec<Diff> = wanted
        .outputs
        .iter()
        .zip(&found.outputs)
        .map(|((name, w), (_, f))| Diff::of(name, f, w, &args.tolerance))
        .collect();
    let layers = match (args.per_layer, args.shipped || args.engine.is_some()) {
        (false, _) => Layers::default(),
        (true, false) => layers(&mut wanted, &mut found, &args.tolerance),
        (true, true) => shipped_layers(&mut wanted, &mut found, &args.tolerance),
    };
    let at_fault = match layers.first().filter(|_| args.bisect) {
        Some((layer, _)) => {
            let mut rebuilt = |tensor: &str| -> Result<Option<ExecutionContext>, Failure> {
                let mut options = shipped.clone();
                options.config.debug_tensors.push(tensor.to_owned());
                let built = match build(model.clone(), &options, &session, out) {
                    // A layer that a pass made has no tensor in the network.
                    Err(Failure::Kiln(Error::Build { source: BuildError::UnknownTensor { .. }, .. })) => {
                        return Ok(None);
                    }
                    built => built?,
                };
                let engine = Engine::builder().backends(session.backends.clone()).build(built.plan)?;
                Ok(Some(execute(b, engine, &inputs, true)?.context))
            };
            let agree = |f: &Tensor, w: &Tensor| Diff::of("", f, w, &args.tolerance).ok();
            culprit(layer, &found.engine.program(), &mut wanted.context, &mut rebuilt, &agree)?
        }
        None => None,
    };
    report(args, &diffs, &layers, at_fault.as_ref(), out)
}

/// The engine of the second side.
fn plan(path: &Path, args: &Args) -> Result<Plan, Failure> {
    let plan = Plan::open(path)?;
    let (backend, asked) = (&plan.header.target.backend, &args.backends.1);
    match backend == asked {
        true => Ok(plan),
        false => Err(Failure::Input(format!(
            "{} was built for the backend \"{backend}\", and the second one of --backends is \"{asked}\"",
            path.display()
        ))),
    }
}

/// Options of a build, with a kernel for each layer or as it ships.
fn options(args: &Args, each_layer: bool) -> BuildOptions {
    let mut config = BuildConfig {
        fold: !args.no_fold,
        fuse: !(args.no_fuse || each_layer),
        // Layers compare only in one format.
        search: !each_layer,
        ..BuildConfig::default()
    };
    args.types.apply(&mut config);
    if each_layer {
        // Layers are compared by name, which tells their types.
        config.narrowing = Narrowing::Everywhere;
    }
    let mut options = BuildOptions::default();
    options.config = config;
    options.shapes = args.shapes.request();
    options
}

fn execute(
    backend: &str,
    engine: Engine,
    inputs: &[(String, Tensor)],
    observe: bool,
) -> Result<Side, Failure> {
    let mut context = engine.create_context()?;
    context.set_observable(observe);
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let outputs = context.run(&inputs)?;
    Ok(Side { backend: backend.to_owned(), engine, context, outputs })
}

/// Result of comparing layers.
#[derive(Default)]
struct Layers {
    /// Tensors that agree or not, with their layers, in execution order.
    diffs: Vec<(String, Diff)>,
    /// Tensors that could not be read on one side, with the reason.
    hidden: Vec<(String, String)>,
}

impl Layers {
    fn first(&self) -> Option<&(String, Diff)> {
        self.diffs.iter().find(|(_, d)| !d.ok())
    }
}

/// Compares the tensors between the kernels of the second side with those of the first that have their names.
fn shipped_layers(wanted: &mut Side, found: &mut Side, tolerance: &ToleranceOptions) -> Layers {
    let program = found.engine.program();
    let (g, border) = (&program.graph, program.border());
    let mut all = Layers::default();
    for step in &program.steps {
        let outputs = step.nodes.iter().filter_map(|&n| g.get(n)).flat_map(|n| &n.outputs);
        for name in outputs.filter(|v| border.contains(v)).map(|&v| &g.value(v).name) {
            let mut hide = |why: String| all.hidden.push((name.clone(), why));
            match (wanted.context.observe(name), found.context.observe(name)) {
                (Err(e), _) => hide(format!("{}: {e}", wanted.backend)),
                (_, Err(e)) => hide(format!("{}: {e}", found.backend)),
                (Ok(w), Ok(f)) if f.ty() != w.ty() => {
                    hide(format!("it is {} in the engine, {} without optimizations", f.ty(), w.ty()))
                }
                (Ok(w), Ok(f)) => all.diffs.push((step.name.clone(), Diff::of(name, &f, &w, tolerance))),
            }
        }
    }
    all
}

fn layers(wanted: &mut Side, found: &mut Side, tolerance: &ToleranceOptions) -> Layers {
    let program = wanted.engine.program();
    let g = &program.graph;
    let mut all = Layers::default();
    for step in &program.steps {
        for node in step.nodes.iter().filter_map(|&n| g.get(n)) {
            for &v in &node.outputs {
                let name = &g.value(v).name;
                match (wanted.context.observe(name), found.context.observe(name)) {
                    (Ok(w), Ok(f)) => all.diffs.push((step.name.clone(), Diff::of(name, &f, &w, tolerance))),
                    (Err(e), _) => all.hidden.push((name.clone(), format!("{}: {e}", wanted.backend))),
                    (_, Err(e)) => all.hidden.push((name.clone(), format!("{}: {e}", found.backend))),
                }
            }
        }
    }
    all
}

fn report(
    args: &Args,
    diffs: &[Diff],
    layers: &Layers,
    culprit: Option<&Culprit>,
    out: &Printer,
) -> Result<(), Failure> {
    let (a, b) = &args.backends;
    let first = layers.first();
    let layer_json = |(layer, d): &(String, Diff)| {
        let mut v = d.json();
        v["layer"] = json!(layer);
        v
    };
    out.value(&json!({
        "wanted": a,
        "found": b,
        "agrees": diffs.iter().all(Diff::ok) && first.is_none(),
        "outputs": diffs.iter().map(Diff::json).collect::<Vec<_>>(),
        "layers": layers.diffs.iter().map(layer_json).collect::<Vec<_>>(),
        "first_layer_that_differs": first.map(layer_json),
        "at_fault": culprit.map(|c| json!({
            "kernel": c.kernel, "layers": c.layers, "tensor": c.tensor, "builds": c.builds,
        })),
        "not_observed": layers.hidden.iter().map(|(n, e)| json!({"name": n, "reason": e})).collect::<Vec<_>>(),
    }));
    out.line(format!("outputs of {b}, compared with those of {a}"));
    out.table(&Diff::HEAD, diffs.iter().map(Diff::row).collect());
    if args.per_layer {
        let mut head = vec!["layer"];
        head.extend(Diff::HEAD);
        let row = |(layer, d): &(String, Diff)| [vec![layer.clone()], d.row()].concat();
        out.table(&head, layers.diffs.iter().map(row).collect());
        let hidden = layers.hidden.iter().map(|(n, e)| vec![n.clone(), e.clone()]).collect();
        out.table(&["not observed", "because"], hidden);
    }
    if let Some(culprit) = culprit {
        return Err(Failure::Mismatch(culprit.to_string()));
    }
    if let Some((layer, d)) = first {
        return Err(Failure::Mismatch(format!(
            "the first layer that differs is \"{layer}\", tensor \"{}\": max abs error {:e}, max rel error {:e}",
            d.name, d.abs, d.rel
        )));
    }
    match diffs.iter().filter(|d| !d.ok()).count() {
        0 => Ok(()),
        n => Err(Failure::Mismatch(format!(
            "{n} of {} outputs differ between {a} and {b}{}",
            diffs.len(),
            if args.per_layer { "" } else { "; --per-layer tells which layer is the first" }
        ))),
    }
}
