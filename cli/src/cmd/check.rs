//! `kiln check`: all faults of a model at once, and which backend runs which layer.

use crate::failure::Failure;
use crate::options::{PluginOptions, ShapeOptions, TypeOptions};
use crate::print::Printer;
use crate::session::{Session, load_layers};
use kiln::{BuildConfig, BuildOptions, Engine, Model};
use kiln_onnx::OnnxError;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::PathBuf;

/// Check a model: refusals of the importer by node, and layers that backends refuse; exit code 1 if no backend runs it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ONNX model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The backends to ask; default: all that are found
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    backends: Vec<String>,
    /// Show all layers with the backends that run them
    #[arg(long)]
    layers: bool,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    types: TypeOptions,
    #[command(flatten)]
    plugins: PluginOptions,
}

/// Weight of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The model does not run.
    Exception,
    /// A backend does not run it, or something is changed.
    Warning,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Exception => "exception",
            Level::Warning => "warning",
        }
    }
}

/// One fault or remark.
#[derive(Debug)]
struct Entry {
    level: Level,
    source: String,
    message: String,
    nodes: Vec<String>,
}

/// A layer, and the reasons of the backends that refuse it.
#[derive(Debug, Default)]
struct Layer {
    operators: String,
    refused: BTreeMap<String, String>,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    let mut entries = Vec::new();
    let mut layers = Vec::new();
    let mut backends = Vec::new();
    match Model::open(&args.model) {
        Ok(model) => {
            entries.extend(model.notes().iter().map(|n| remark("importer", n)));
            (layers, backends) = ask(args, &model, &mut entries)?;
        }
        Err(kiln::Error::Import { source, .. }) => entries.extend(refusals(&source)),
        Err(e) => return Err(e.into()),
    }
    let failing: BTreeSet<&String> =
        entries.iter().filter(|e| e.level == Level::Exception).flat_map(|e| &e.nodes).collect();
    let passing = layers.iter().map(|(n, _): &(String, Layer)| n).filter(|n| !failing.contains(n));
    let entry = |e: &Entry| json!({"level": e.level.name(), "source": e.source, "message": e.message, "nodes": e.nodes});
    let layer = |(name, l): &(String, Layer)| json!({"layer": name, "operators": l.operators, "backends": taken(l, &backends), "refused": l.refused});
    out.value(&json!({
        "summary": {"passing": passing.collect::<Vec<_>>(), "failing": failing},
        "linting_entries": entries.iter().map(entry).collect::<Vec<_>>(),
        "backends": backends,
        "layers": layers.iter().map(layer).collect::<Vec<_>>(),
    }));
    let row =
        |e: &Entry| vec![e.level.name().to_owned(), e.source.clone(), e.nodes.join(", "), e.message.clone()];
    out.table(&["level", "source", "nodes", "message"], entries.iter().map(row).collect());
    if args.layers {
        let row = |(name, l): &(String, Layer)| {
            vec![name.clone(), l.operators.clone(), taken(l, &backends).join(", ")]
        };
        out.table(&["layer", "operators", "backends that run it"], layers.iter().map(row).collect());
    }
    let faults = entries.iter().filter(|e| e.level == Level::Exception).count();
    match faults {
        0 => {
            let count = entries.len();
            out.line(format!(
                "{} layers, {count} remarks, runs on {}",
                layers.len(),
                runs_on(&layers, &backends).join(", ")
            ));
            Ok(())
        }
        n => Err(Failure::Mismatch(format!("{n} faults in {}", args.model.display()))),
    }
}

fn remark(source: &str, message: &str) -> Entry {
    Entry { level: Level::Warning, source: source.into(), message: message.into(), nodes: Vec::new() }
}

/// The importer's refusals: one for each node, or the fault of the file.
fn refusals(e: &OnnxError) -> Vec<Entry> {
    let entry = |message: String, nodes: Vec<String>| Entry {
        level: Level::Exception,
        source: "importer".into(),
        message,
        nodes,
    };
    match e {
        OnnxError::Refused(all) => {
            let one = |n: &kiln_onnx::error::RefusedNode| {
                entry(format!("{} (version {}): {}", n.op, n.opset, n.reason), vec![n.node.clone()])
            };
            all.0.iter().map(one).collect()
        }
        OnnxError::BadNode { node, op, fault } => vec![entry(format!("{op}: {fault}"), vec![node.clone()])],
        OnnxError::Cycle { nodes, .. } => vec![entry(e.to_string(), nodes.clone())],
        OnnxError::UndefinedInput { node, .. } => vec![entry(e.to_string(), vec![node.clone()])],
        other => vec![entry(other.to_string(), Vec::new())],
    }
}

/// Layers with the backends that refuse them. What no backend runs is a fault, what some refuse a remark.
fn ask(
    args: &Args,
    model: &Model,
    entries: &mut Vec<Entry>,
) -> Result<(Vec<(String, Layer)>, Vec<String>), Failure> {
    let session = match args.backends.is_empty() {
        true => Session::all(&args.plugins),
        false => Session::with(&args.plugins, args.backends.iter().map(String::as_str)),
    };
    let names: Vec<String> = match args.backends.is_empty() {
        true => session.backends.names().map(str::to_owned).collect(),
        false => args.backends.clone(),
    };
    let mut layers: Vec<(String, Layer)> = Vec::new();
    let mut asked = Vec::new();
    for name in names {
        session.backends.get(&name)?;
        let mut options = BuildOptions::default();
        options.config = BuildConfig::default();
        args.types.apply(&mut options.config);
        options.shapes = args.shapes.request();
        options.profiles = args.shapes.opt_profile.clone();
        let builder = Engine::builder().options(options).backend(&name).backends(session.backends.clone());
        let support = match builder.network_support(model.clone()) {
            Ok(support) => support,
            Err(e) => {
                entries.push(remark(&name, &with_cause(&e)));
                continue;
            }
        };
        for l in support.layers {
            let at = match layers.iter().position(|(n, _)| *n == l.layer) {
                Some(at) => at,
                None => {
                    layers.push((l.layer, Layer { operators: l.operators, refused: BTreeMap::new() }));
                    layers.len() - 1
                }
            };
            layers[at].1.refused.extend(l.refused.map(|why| (name.clone(), why)));
        }
        asked.push(name);
    }
    if asked.is_empty() {
        let message = "no backend could be asked for the model's layers".to_owned();
        entries.push(Entry {
            level: Level::Exception,
            source: "backends".into(),
            message,
            nodes: Vec::new(),
        });
    }
    for (name, l) in &layers {
        let level = if taken(l, &asked).is_empty() { Level::Exception } else { Level::Warning };
        for (backend, why) in &l.refused {
            let (source, message) = (backend.clone(), format!("{}: {why}", l.operators));
            entries.push(Entry { level, source, message, nodes: vec![name.clone()] });
        }
    }
    Ok((layers, asked))
}

/// The backends that run a layer.
fn taken(l: &Layer, backends: &[String]) -> Vec<String> {
    backends.iter().filter(|b| !l.refused.contains_key(*b)).cloned().collect()
}

/// The backends that run all layers.
fn runs_on(layers: &[(String, Layer)], backends: &[String]) -> Vec<String> {
    backends.iter().filter(|b| layers.iter().all(|(_, l)| !l.refused.contains_key(*b))).cloned().collect()
}

fn with_cause(e: &dyn Error) -> String {
    match e.source() {
        Some(cause) => format!("{e}: {cause}"),
        None => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_files_have_no_nodes_and_faults_of_nodes_have() {
        let all = refusals(&OnnxError::MissingGraph);
        assert_eq!((all.len(), all[0].nodes.len(), all[0].level.name()), (1, 0, "exception"));
        let nodes = vec!["a".to_owned(), "b".to_owned(), "a".to_owned()];
        let all = refusals(&OnnxError::Cycle { graph: "g".into(), nodes: nodes.clone() });
        assert_eq!(all[0].nodes, nodes);
    }
}
