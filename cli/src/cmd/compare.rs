//! `kiln compare`: one model on two backends, outputs or all layers compared.

use crate::diff::{HEAD, row};
use crate::failure::Failure;
use crate::given::{InputOptions, ask_for_given};
use crate::options::{PluginOptions, ShapeOptions, ToleranceOptions, TypeOptions};
use crate::print::Printer;
use crate::session::{Session, load_layers};
use crate::subject::{tell, watched};
use kiln::compare::{Compare, Compared, Comparison, Diff};
use kiln::{BuildConfig, BuildOptions, Engine, Model, Plan, Tensor};
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
    #[arg(long, requires = "per_layer", group = "between")]
    shipped: bool,
    /// With --shipped or --engine: look for the layer at fault inside of the first kernel that differs, by builds with cuts in it
    #[arg(long, requires = "between")]
    bisect: bool,
    /// The engine that is the second side, as it was built
    #[arg(long, value_name = "E.kiln", conflicts_with_all = ["no_fold", "no_fuse", "shipped"], group = "between")]
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

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    if args.bisect && !args.per_layer {
        return Err(Failure::Input("--bisect looks at the tensors between kernels: give --per-layer".into()));
    }
    if args.inputs.use_profile.is_some() {
        return Err(Failure::Input("--use-profile is for `kiln run` and `kiln bench`: give --shapes".into()));
    }
    let model = Model::open(&args.model)?;
    let io = model.io_tensors().to_vec();
    let given = args.inputs.read(&io, out)?;
    let (a, b) = &args.backends;
    let mut options = options(args);
    ask_for_given(&mut options.shapes, &given, &io);
    let profile = options.shapes.profile(&io, &|_, _| 1)?.profile;
    let inputs = args.inputs.complete(given, &io, &profile)?;
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let session = Session::with(&args.plugins, [a.as_str(), b.as_str()]);
    let mut settings = Compare::against(a.as_str());
    settings.compared = match (args.per_layer, args.shipped || args.engine.is_some()) {
        (false, _) => Compared::Outputs,
        (true, false) => Compared::Layers,
        (true, true) => Compared::Kernels,
    };
    settings.bisect = args.bisect;
    settings.tolerance = args.tolerance.tolerance();
    settings.plan = args.engine.as_deref().map(|path| plan(path, args)).transpose()?;
    let builder = Engine::builder().options(options).backends(session.backends.clone());
    let comparison = watched(&session, out, |progress| {
        builder.compare_with_progress(model, &inputs, &settings, progress)
    })?;
    tell(&comparison.report, out);
    report(args, &comparison, out)
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

/// Options of the second side.
fn options(args: &Args) -> BuildOptions {
    let mut config = BuildConfig { fold: !args.no_fold, fuse: !args.no_fuse, ..BuildConfig::default() };
    args.types.apply(&mut config);
    let mut options = BuildOptions::default();
    options.config = config;
    options.backend = Some(args.backends.1.clone());
    options.shapes = args.shapes.request();
    options
}

fn report(args: &Args, found: &Comparison, out: &Printer) -> Result<(), Failure> {
    let (a, b) = &args.backends;
    out.value(&found.to_json());
    out.line(format!("outputs of {b}, compared with those of {a}"));
    out.table(&HEAD, found.outputs.iter().map(row).collect());
    if args.per_layer {
        let head = [&["layer"][..], &HEAD].concat();
        let row = |(layer, d): &(String, Diff)| [vec![layer.clone()], row(d)].concat();
        out.table(&head, found.layers.iter().map(row).collect());
        let hidden = found.hidden.iter().map(|(n, e)| vec![n.clone(), e.clone()]).collect();
        out.table(&["not observed", "because"], hidden);
    }
    found.notes.iter().for_each(|note| out.note(note));
    if let Some(culprit) = &found.culprit {
        return Err(Failure::Mismatch(culprit.to_string()));
    }
    if let Some((layer, d)) = found.first() {
        return Err(Failure::Mismatch(format!(
            "the first layer that differs is \"{layer}\", tensor \"{}\": max abs error {:e}, max rel error {:e}",
            d.name, d.abs, d.rel
        )));
    }
    match found.outputs.iter().filter(|d| !d.ok()).count() {
        0 => Ok(()),
        n => Err(Failure::Mismatch(format!(
            "{n} of {} outputs differ between {a} and {b}{}",
            found.outputs.len(),
            if args.per_layer { "" } else { "; --per-layer tells which layer is the first" }
        ))),
    }
}
