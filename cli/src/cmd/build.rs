//! `kiln build`: a model into an engine file.

use crate::cmd::debug::accuracy::{Accuracy, Runner};
use crate::cmd::debug::prepared::Prepared;
use crate::cmd::host::print_host;
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::ModelOptions;
use crate::print::{Printer, bytes, time};
use crate::session::{Session, load_layers};
use crate::subject::{self, session_for};
use crate::trace;
use clap::ValueEnum;
use kiln::{BuildOptions, BuildReport, Built, Model, Monitor, Plan, Verbosity};
use kiln_files::{Content, Replacement};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Build an engine from a model
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ONNX model, a network as text, or a portable engine that is built again
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Path of the engine to write
    #[arg(short, long, value_name = "E.kiln")]
    output: PathBuf,
    /// Detail in which the engine describes its layers
    #[arg(long, value_enum, default_value_t = Tells::Detailed)]
    verbosity: Tells,
    /// Keep the network in the engine, so that it can be built again for another device
    #[arg(long)]
    portable: bool,
    /// Build an engine that other versions of the backend run, and backends without code generation
    #[arg(long)]
    version_compatible: bool,
    /// Put the plug-in libraries into the engine that its runs call: `kiln run --embedded-plugins` loads them from there
    #[arg(long)]
    embed_plugins: bool,
    /// Print all layers with their kernels
    #[arg(long)]
    layers: bool,
    /// Also run the engine beside the network in f32, and report the error of each layer, and the reason of each that keeps f32;
    /// inputs are random without an archive
    #[arg(long, value_name = "INPUTS.npz", num_args = 0..=1, require_equals = true, conflicts_with = "target")]
    accuracy: Option<Option<PathBuf>>,
    /// Store a trace of the build's phases, passes and timed kernels, for the viewer of Perfetto
    #[arg(long, value_name = "OUT.pftrace", value_parser = trace::path)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    model_options: ModelOptions,
}

/// First bytes of recorded tactics: other files are not replaced by them.
const RECORD: Content = Content { name: "recorded tactics", magic: b"{\"kiln_tactics\":" };

/// Detail in which an engine describes its layers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tells {
    /// Layers are numbers
    None,
    /// Names of layers
    Names,
    /// Names, operators, tactics, types, shapes and memory
    Detailed,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let model = &args.model_options;
    load_layers(&model.plugins)?;
    let session = session_for(model, [model.backend.backend.as_deref(), model.backend.fallback.as_deref()]);
    let mut options = model.build()?;
    options.portable = args.portable;
    options.embed_plugins = args.embed_plugins;
    options.config.version_compatible = args.version_compatible;
    options.verbosity = match args.verbosity {
        Tells::None => Verbosity::None,
        Tells::Names => Verbosity::Names,
        Tells::Detailed => Verbosity::Detailed,
    };
    // An output that cannot be written is found before the build, not after it.
    let place = Plan::replacement(&args.output)?;
    let read = [
        Some(&args.model),
        options.timing_cache.as_ref(),
        model.backend.target.as_ref(),
        model.tune.replay_tactics.as_ref(),
    ];
    let read: Vec<&Path> = read.into_iter().flatten().map(PathBuf::as_path).collect();
    place
        .refuse_inputs(read.iter().copied())
        .map_err(|source| Failure::File { path: args.output.clone(), source })?;
    let record_place = match &model.tune.record_tactics {
        Some(path) => Some(record_place(path, &read, &place)?),
        None => None,
    };
    let network = Model::open(&args.model)?;
    model.io.apply(network.io_tensors(), &mut options.config)?;
    model.calibration.apply(&network, &mut options, &session.backends, out)?;
    let recorder = args.trace.as_ref().map(|_| trace::builds::Recorder::new());
    options.config.monitor = recorder.clone().map(Monitor::new);
    let built = subject::build(network, &options, &session, out)?;
    let accuracy = match &args.accuracy {
        Some(inputs) => Some(accuracy(args, inputs.clone(), &built, &options, &session, out)?),
        None => None,
    };
    let Built { plan, report, record, times, .. } = built;
    if let (Some(path), Some(recorder)) = (&args.trace, &recorder) {
        trace::builds::write(recorder, &report, &times, path)?;
    }
    subject::tell(&report, out);
    plan.write_into(place)?;
    if let Some(mut place) = record_place {
        let path = place.target().to_owned();
        let written = place.write_all(record.to_text().as_bytes()).and_then(|()| place.commit());
        written.map_err(|source| Failure::File { path, source })?;
    }
    let size = std::fs::metadata(&args.output)
        .map_err(|source| Failure::File { path: args.output.clone(), source })?
        .len();
    let mut value = report.to_json();
    value["engine"] = json!(args.output.display().to_string());
    value["bytes"] = json!(size);
    value["context_memory"] = json!(plan.header.context_memory);
    if let Some(accuracy) = &accuracy {
        value["accuracy"] = accuracy.to_json();
    }
    out.value(&value);
    let name = &plan.header.name;
    out.line(format!(
        "built \"{name}\" for {} ({}) in {}: {} kernels, {} tactics timed in {}, {} of activations",
        report.backend,
        report.target.device,
        time(report.spent.total.as_nanos() as f64),
        report.kernels(),
        report.timed,
        time(report.spent.timing.as_nanos() as f64),
        bytes(plan.header.context_memory),
    ));
    out.line(format!("wrote {} ({})", args.output.display(), bytes(size)));
    print_kernels(&report, args.layers, out);
    print_host(&report.host_layers, out);
    if let Some(accuracy) = &accuracy {
        accuracy.print(out);
    }
    Ok(())
}

/// Reserves the place of recorded tactics: no file that the build reads or writes.
fn record_place(path: &Path, read: &[&Path], engine: &Replacement) -> Result<Replacement, Failure> {
    let fail = |source| Failure::File { path: path.to_owned(), source };
    let place = Replacement::create(path, Some(RECORD)).map_err(fail)?;
    // The record may be made of one that is replayed.
    let read = read.iter().copied().filter(|r| *r != path);
    place.refuse_inputs(read).map_err(fail)?;
    if place.target() == engine.target() {
        return Err(Failure::Input(format!(
            "{} cannot be the engine and its recorded tactics",
            path.display()
        )));
    }
    Ok(place)
}

/// Errors of the layers of what was built.
fn accuracy(
    args: &Args,
    inputs: Option<PathBuf>,
    built: &Built,
    options: &BuildOptions,
    session: &Session,
    out: &Printer,
) -> Result<Accuracy, Failure> {
    let inputs = InputOptions { inputs, ..InputOptions::default() };
    let load = inputs.load.clone();
    let Prepared { model, inputs, .. } = Prepared::of(&args.model, &inputs, &args.model_options.shapes, out)?;
    Runner { model, session, load, inputs, out }.accuracy(built.clone(), options)
}

fn tactic(s: &kiln::report::StepReport) -> &str {
    if s.view { "view" } else { &s.tactic }
}

/// Prints the kernels that run: a line for each tactic, or for each layer.
pub fn print_kernels(report: &BuildReport, layers: bool, out: &Printer) {
    if layers {
        let head = ["#", "layer", "operators", "runs on", "tactic", "time", "candidates"];
        let row = |(i, s): (usize, &kiln::report::StepReport)| {
            vec![
                i.to_string(),
                s.name.clone(),
                s.ops.clone(),
                report.backend.clone(),
                tactic(s).to_owned(),
                s.ns.map_or_else(String::new, time),
                s.candidates.to_string(),
            ]
        };
        let by_shape = |s: &kiln::report::StepReport| {
            let row = |a: &kiln::report::AlternativeReport| {
                let (ns, shapes) = (a.ns.map_or_else(String::new, time), a.shapes.join(", "));
                let (backend, tactic) = (report.backend.clone(), a.tactic.clone());
                vec![
                    String::new(),
                    s.name.clone(),
                    format!("at {shapes}"),
                    backend,
                    tactic,
                    ns,
                    String::new(),
                ]
            };
            s.alternatives.iter().map(row).collect::<Vec<_>>()
        };
        let all = report.steps.iter().enumerate();
        let rows = all.flat_map(|(i, s)| std::iter::once(row((i, s))).chain(by_shape(s)));
        return out.table(&head, rows.collect());
    }
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    report.steps.iter().for_each(|s| *count.entry(tactic(s)).or_default() += 1);
    let row = |(tactic, n): (&str, usize)| vec![report.backend.clone(), tactic.to_owned(), n.to_string()];
    out.table(&["runs on", "tactic", "layers"], count.into_iter().map(row).collect());
}
