//! `kiln refit`: other weights for an engine file, without a build. It needs no device, unless the engine is to be refitted on one.

use crate::failure::Failure;
use crate::options::{PluginOptions, device};
use crate::print::{Printer, bytes, number};
use crate::session::{Session, discover, load_layers};
use crate::signals;
use kiln::weights::{FileWeights, set_from_file};
use kiln::{DeviceChoice, Engine, NamedWeight, Plan, RefitReport, RefitTimes, Refitter};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Replace the weights of an engine, or list them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The engine, built with --refit or --strip-weights
    #[arg(value_name = "E.kiln")]
    engine: PathBuf,
    /// Weights by name: an archive of NumPy, safetensors, or an ONNX model of the same graph [repeatable]
    #[arg(long, value_name = "FILE", required_unless_present_any = ["list", "dynamic_range"])]
    weights: Vec<PathBuf>,
    /// The least and the greatest value of a tensor whose 8-bit codes follow from them: relu1:0:6 [repeatable]
    #[arg(long, value_name = "TENSOR:LEAST:GREATEST", value_parser = range)]
    dynamic_range: Vec<Range>,
    /// Path of the engine with the new weights
    #[arg(short, long, value_name = "E.kiln", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// List the weights with types, shapes, layers and roles, those that are missing, and dynamic ranges
    #[arg(long)]
    list: bool,
    /// Skip checks of elements: whether they are those of the build where the engine wants that, and whether they overflow
    #[arg(long)]
    no_validation: bool,
    /// Load the engine on a device of its backend, and refit it there: an error if the device, its memory or the backend refuses the new
    /// weights. Times of all phases are reported
    #[arg(long)]
    on_device: bool,
    /// The device for --on-device, by its number as in `kiln backends`, or by (the first characters of) its UUID; default: the first one
    /// that runs the engine
    #[arg(long, value_name = "N|UUID", value_parser = device, requires = "on_device")]
    device: Option<DeviceChoice>,
    #[command(flatten)]
    plugins: PluginOptions,
}

/// The dynamic range of a tensor.
#[derive(Clone, Debug)]
struct Range {
    tensor: String,
    ends: [f32; 2],
}

/// Reads `relu1:0:6`.
fn range(text: &str) -> Result<Range, String> {
    let wanted = || "wanted TENSOR:LEAST:GREATEST, as relu1:0:6".to_owned();
    let mut parts = text.rsplitn(3, ':');
    let mut number = || parts.next()?.parse::<f32>().ok().filter(|x| x.is_finite());
    let (greatest, least) = (number().ok_or_else(wanted)?, number().ok_or_else(wanted)?);
    let tensor = parts.next().filter(|name| !name.is_empty()).ok_or_else(wanted)?.to_owned();
    Ok(Range { tensor, ends: [least, greatest] })
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
    load_layers(&args.plugins)?;
    let engine = args.on_device.then(|| loaded(args)).transpose()?;
    let mut refitter = match &engine {
        Some(engine) => engine.refitter()?,
        None => Refitter::of_plan(Plan::open(&args.engine)?)?,
    };
    refitter.set_validation(!args.no_validation);
    let mut found = FileWeights::default();
    for path in &args.weights {
        signals::check()?;
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
    for Range { tensor, ends: [least, greatest] } in &args.dynamic_range {
        refitter.set_dynamic_range(tensor, *least, *greatest)?;
    }
    if args.list {
        list(&refitter, out);
    }
    let Some(place) = place else { return Ok(()) };
    let report = signals::scope(|| refitter.refit())?;
    signals::check()?;
    report.warnings.iter().for_each(|w| out.note(w));
    let path = place.target().to_owned();
    let times = refitter.times();
    let plan = refitter.into_plan();
    signals::check()?;
    plan.write_into(place)?;
    let size = std::fs::metadata(&path).map_err(|source| Failure::File { path: path.clone(), source })?.len();
    let RefitReport { replaced, derived, warnings } = report;
    if !args.list {
        out.value(&json!({
            "engine": path.display().to_string(), "bytes": size, "replaced": replaced, "derived": derived,
            "set": found.set, "unused": found.unused, "fixed": found.fixed, "warnings": warnings,
            "on_device": engine.as_ref().map(|e| on_device_json(e, times)),
        }));
    }
    out.line(format!("replaced {replaced} weights, and {derived} that are derived of them"));
    if let Some(e) = &engine {
        out.line(format!("refitted on {} ({}): {times}", e.backend(), e.target().device));
    }
    out.line(format!("wrote {} ({})", path.display(), bytes(size)));
    Ok(())
}

/// The engine on a device of its backend.
fn loaded(args: &Args) -> Result<Engine, Failure> {
    let plan = Plan::open(&args.engine)?;
    let session = Session::with(&args.plugins, [plan.header.target.backend.as_str()]);
    let mut builder = Engine::builder().backends(session.backends).plugins(discover(&args.plugins));
    if let Some(device) = &args.device {
        builder = builder.device(device.clone());
    }
    Ok(signals::scope(|| builder.build(plan))?)
}

/// The device of a refit, and milliseconds of its phases.
fn on_device_json(engine: &Engine, times: RefitTimes) -> Value {
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    json!({
        "backend": engine.backend(), "device": engine.target().device, "uuid": engine.target().uuid,
        "read_ms": ms(times.read), "derived_ms": ms(times.derived), "checked_ms": ms(times.checked),
        "loaded_ms": ms(times.loaded),
    })
}

/// Dynamic ranges that can be set.
fn ranges(refitter: &Refitter) -> Vec<(String, [f32; 2])> {
    let all = refitter.tensors_with_dynamic_range().into_iter();
    all.filter_map(|tensor| Some((tensor.clone(), refitter.dynamic_range(&tensor)?))).collect()
}

fn list(refitter: &Refitter, out: &Printer) {
    let missing = refitter.get_missing();
    out.value(&list_json(refitter));
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
    let row = |(tensor, [least, greatest]): (String, [f32; 2])| {
        vec![tensor, number(least.into()), number(greatest.into())]
    };
    out.table(&["tensor", "least", "greatest"], ranges(refitter).into_iter().map(row).collect());
}

/// The weights that can be replaced, and those that cannot, then dynamic ranges, for programs.
fn list_json(refitter: &Refitter) -> Value {
    let missing = refitter.get_missing();
    let weight = |w: &NamedWeight| {
        let uses: Vec<Value> =
            w.uses.iter().map(|(layer, role)| json!({"layer": layer, "role": role.name()})).collect();
        json!({
            "name": w.name, "type": w.dtype.name(), "shape": w.shape, "uses": uses, "fixed": w.fixed,
            "missing": missing.contains(&w.name),
        })
    };
    let range = |(tensor, [least, greatest]): (String, [f32; 2])| json!({"range_of": tensor, "least": least, "greatest": greatest});
    refitter.weights().map(weight).chain(ranges(refitter).into_iter().map(range)).collect()
}
