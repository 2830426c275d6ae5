//! `kiln refit`: other weights for an engine file, without a build and without a device.

use crate::failure::Failure;
use crate::print::{Printer, bytes};
use kiln::weights::{FileWeights, set_from_file};
use kiln::{NamedWeight, Plan, RefitReport, Refitter};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Replace the weights of an engine, or list them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The engine, built with --refit or --strip-weights
    #[arg(value_name = "E.kiln")]
    engine: PathBuf,
    /// Weights by name: an archive of NumPy, safetensors, or an ONNX model of the same graph [repeatable]
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    weights: Vec<PathBuf>,
    /// Path of the engine with the new weights
    #[arg(short, long, value_name = "E.kiln", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// List the weights with types, shapes, layers and roles, and those that are missing
    #[arg(long)]
    list: bool,
    /// Skip checks of elements: whether they are those of the build where the engine wants that, and whether they overflow
    #[arg(long)]
    no_validation: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let place = match &args.output {
        Some(path) => {
            let place = Plan::replacement(path)?;
            let fail = |source| Failure::File { path: path.clone(), source };
            place.refuse_inputs(args.weights.iter().map(PathBuf::as_path)).map_err(fail)?;
            Some(place)
        }
        None => None,
    };
    let plan = Plan::open(&args.engine)?;
    let mut refitter = Refitter::of_plan(plan)?;
    refitter.set_validation(!args.no_validation);
    let mut found = FileWeights::default();
    for path in &args.weights {
        let FileWeights { set, unused, fixed, .. } = set_from_file(&mut refitter, path)?;
        if !unused.is_empty() {
            out.note(format!(
                "{}: the engine has no weights {}; not used",
                path.display(),
                unused.join(", ")
            ));
        }
        found.set.extend(set);
        found.unused.extend(unused);
        found.fixed.extend(fixed);
    }
    if args.list {
        list(&refitter, out);
    }
    let Some(place) = place else { return Ok(()) };
    let report = refitter.refit()?;
    report.warnings.iter().for_each(|w| out.note(w));
    let path = place.target().to_owned();
    refitter.into_plan().write_into(place)?;
    let size = std::fs::metadata(&path).map_err(|source| Failure::File { path: path.clone(), source })?.len();
    let RefitReport { replaced, derived, warnings } = report;
    if !args.list {
        out.value(&json!({
            "engine": path.display().to_string(), "bytes": size, "replaced": replaced, "derived": derived,
            "set": found.set, "unused": found.unused, "fixed": found.fixed, "warnings": warnings,
        }));
    }
    out.line(format!("replaced {replaced} weights, and {derived} that are derived of them"));
    out.line(format!("wrote {} ({})", path.display(), bytes(size)));
    Ok(())
}

fn list(refitter: &Refitter, out: &Printer) {
    let missing = refitter.get_missing();
    out.value(&weights_json(refitter));
    let row = |w: &NamedWeight| {
        let uses: Vec<String> = w.uses.iter().map(|(layer, role)| format!("{layer} ({role})")).collect();
        let state = match &w.fixed {
            Some(why) => format!("fixed: {why}"),
            None if missing.contains(&w.name) => "missing".into(),
            None if refitter.get(&w.name).is_some() => "set".into(),
            None => String::new(),
        };
        vec![w.name.clone(), w.dtype.to_string(), format!("{:?}", w.shape), uses.join(", "), state]
    };
    out.table(&["weight", "type", "shape", "layers", ""], refitter.weights().map(row).collect());
}

/// The weights that can be replaced, and those that cannot, for programs.
pub fn weights_json(refitter: &Refitter) -> Value {
    let missing = refitter.get_missing();
    let weight = |w: &NamedWeight| {
        let uses: Vec<Value> =
            w.uses.iter().map(|(layer, role)| json!({"layer": layer, "role": role.name()})).collect();
        json!({
            "name": w.name, "type": w.dtype.name(), "shape": w.shape, "uses": uses, "fixed": w.fixed,
            "missing": missing.contains(&w.name),
        })
    };
    refitter.weights().map(weight).collect()
}
