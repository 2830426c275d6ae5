//! `kiln compare`: one model on two backends, outputs or all layers compared.

use crate::diff::Diff;
use crate::failure::Failure;
use crate::given::{InputOptions, ask_for_given};
use crate::options::{PluginOptions, ShapeOptions, ToleranceOptions, TypeOptions};
use crate::print::Printer;
use crate::session::{Session, load_layers};
use crate::subject::{build, tell};
use kiln::{BuildConfig, BuildOptions, Engine, ExecutionContext, Model, Narrowing, Outputs, Tensor};
use serde_json::json;
use std::path::PathBuf;

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
    let model = Model::open(&args.model)?;
    let io = model.io_tensors().to_vec();
    let given = args.inputs.read(&io, out)?;
    let mut options = options(args);
    ask_for_given(&mut options.shapes, &given, &io);
    let profile = options.shapes.profile(&io, &|_, _| 1)?.profile;
    let inputs = args.inputs.complete(given, &io, &profile)?;
    let (a, b) = &args.backends;
    let session = Session::with(&args.plugins, [a.as_str(), b.as_str()]);
    let mut sides = Vec::new();
    for backend in [a, b] {
        options.backend = Some(backend.clone());
        let built = build(model.clone(), &options, &session, out)?;
        if sides.is_empty() {
            tell(&built.report, out);
        }
        let engine = Engine::builder().backends(session.backends.clone()).build(built.plan)?;
        sides.push(execute(backend, engine, &inputs, args.per_layer)?);
    }
    let Some((mut found, mut wanted)) = sides.pop().zip(sides.pop()) else { return Ok(()) };
    let diffs: Vec<Diff> = wanted
        .outputs
        .iter()
        .zip(&found.outputs)
        .map(|((name, w), (_, f))| Diff::of(name, f, w, &args.tolerance))
        .collect();
    let layers =
        if args.per_layer { layers(&mut wanted, &mut found, &args.tolerance)? } else { Layers::default() };
    report(args, &diffs, &layers, out)
}

fn options(args: &Args) -> BuildOptions {
    let mut config = BuildConfig {
        fold: !args.no_fold,
        fuse: !(args.no_fuse || args.per_layer),
        // Layers compare only in one format.
        search: !args.per_layer,
        ..BuildConfig::default()
    };
    args.types.apply(&mut config);
    if args.per_layer {
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

fn layers(wanted: &mut Side, found: &mut Side, tolerance: &ToleranceOptions) -> Result<Layers, Failure> {
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
    Ok(all)
}

fn report(args: &Args, diffs: &[Diff], layers: &Layers, out: &Printer) -> Result<(), Failure> {
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
