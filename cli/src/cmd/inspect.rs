//! `kiln inspect`: what an engine file says of itself.

use crate::cmd::backends::target_json;
use crate::failure::Failure;
use crate::options::{Named, PluginOptions, named};
use crate::print::{Printer, bytes};
use crate::session::{Session, load_layers};
use kiln::RecipeReport;
use kiln::inspect::{Layer, LayerTable};
use kiln::{IoMode, IoTensor, Plan, PlanHeader, Profile, Requirement, Verbosity, verify_recipes};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show an engine: target, compatibility, inputs and outputs, profiles, memory, layers
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The engine
    #[arg(value_name = "E.kiln")]
    engine: PathBuf,
    /// Show all layers with their tactics
    #[arg(long)]
    layers: bool,
    /// Show the layers at these shapes of the inputs: name:1x3x224x224,…; those left out have their usual shapes
    #[arg(long, value_name = "NAME:DIMS", value_delimiter = ',', value_parser = named)]
    shapes: Vec<Named>,
    /// Show the layers with these elements of shape inputs: name:1x2x3,…
    #[arg(long, value_name = "NAME:VALUES", value_delimiter = ',', value_parser = named, allow_hyphen_values = true)]
    values: Vec<Named>,
    /// Read the header alone, and exit with 1 if no device here runs the engine: fast, whatever the engine's size
    #[arg(long, conflicts_with_all = ["layers", "shapes", "values", "verify_recipes"])]
    check: bool,
    /// Recompute every derived weight from its recipe and compare all bytes; exit code 1 if one differs
    #[arg(long)]
    verify_recipes: bool,
    #[command(flatten)]
    plugins: PluginOptions,
}

impl Args {
    /// Whether layers are shown: they are asked for, or shapes that matter for nothing else.
    fn shows_layers(&self) -> bool {
        self.layers || !self.shapes.is_empty() || !self.values.is_empty()
    }
}

/// Whether a device here can run the engine.
struct Verdict {
    device: String,
    refusal: Option<String>,
    warnings: Vec<String>,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.plugins)?;
    if args.check {
        return check(args, out);
    }
    let mut plan = Plan::open(&args.engine)?;
    if !args.shapes.is_empty() || !args.values.is_empty() {
        plan.layers = layers_at(args, &plan)?;
    }
    let h = &plan.header;
    let session = Session::with(&args.plugins, [h.target.backend.as_str()]);
    let verdicts = verdicts(h, &session);
    if args.verify_recipes && !h.absent.is_empty() {
        return Err(Failure::Input(format!(
            "{} is stripped of {} weights, so that nothing can be computed of them: fill it with `kiln refit`",
            args.engine.display(),
            h.absent.len()
        )));
    }
    if args.verify_recipes && !h.refittable {
        return Err(Failure::Input(format!(
            "{} keeps no recipes, as it was built without refit: build it with --refit",
            args.engine.display()
        )));
    }
    let recipes = args.verify_recipes.then(|| verify_recipes(&plan.program)).transpose()?;
    let weights: u64 = plan.program.weights().map(|(_, t)| t.bytes().len() as u64).sum();
    out.value(&value(&plan, weights, &verdicts, recipes.as_ref(), args.shows_layers()));
    header(h, weights, &plan, out);
    out.table(
        &["", "name", "type", "format", "dimensions", "shape input"],
        h.io.iter().map(io_row).collect(),
    );
    let plugins = h.plugins.iter().map(plugin_row).collect();
    out.table(&["plug-in", "version", "hash", "layers", "in runs", "in the engine"], plugins);
    let profiles = h.profiles.iter().enumerate().flat_map(|(i, p)| profile_rows(i, p)).collect();
    out.table(&["profile", "input", "of", "min", "opt", "max"], profiles);
    let row = |v: &Verdict| {
        let answer = v.refusal.clone().unwrap_or_else(|| "runs here".into());
        vec![v.device.clone(), answer, v.warnings.join("; ")]
    };
    out.table(&["device", "compatibility", "warnings"], verdicts.iter().map(row).collect());
    if args.shows_layers() && !out.json() {
        out.raw(&plan.layers.to_text());
    }
    match recipes {
        Some(report) => report_recipes(&report, out),
        None => Ok(()),
    }
}

/// The layers at the shapes that the options give, completed by the usual ones of the first profile.
fn layers_at(args: &Args, plan: &Plan) -> Result<LayerTable, Failure> {
    let mut at = plan.header.profiles.first().cloned().unwrap_or_default();
    for (given, shapes) in [(&args.shapes, true), (&args.values, false)] {
        for Named { name, numbers } in given {
            match shapes {
                true => at.set_shape(name, numbers, numbers, numbers),
                false => at.set_values(name, numbers, numbers, numbers),
            }
            .map_err(kiln::Error::from)?;
        }
    }
    let usual = |r: &mut kiln::Range| (r.min, r.max) = (r.opt.clone(), r.opt.clone());
    at.shapes.values_mut().chain(at.values.values_mut()).for_each(usual);
    Ok(plan.layers_at(&at).map_err(kiln::Error::from)?)
}

/// The header's part of the description, and whether a device here runs the engine.
fn check(args: &Args, out: &Printer) -> Result<(), Failure> {
    let h = PlanHeader::peek(&args.engine)?;
    let session = Session::with(&args.plugins, [h.target.backend.as_str()]);
    let verdicts = verdicts(&h, &session);
    out.value(&header_value(&h, &verdicts));
    out.table(
        &["", "name", "type", "format", "dimensions", "shape input"],
        h.io.iter().map(io_row).collect(),
    );
    let row = |v: &Verdict| {
        vec![v.device.clone(), v.refusal.clone().unwrap_or_else(|| "runs here".into()), v.warnings.join("; ")]
    };
    out.table(&["device", "compatibility", "warnings"], verdicts.iter().map(row).collect());
    match verdicts.iter().find_map(|v| v.refusal.clone()) {
        Some(reason) if verdicts.iter().all(|v| v.refusal.is_some()) => Err(Failure::Mismatch(reason)),
        _ => Ok(()),
    }
}

fn header(h: &PlanHeader, weights: u64, plan: &Plan, out: &Printer) {
    let t = &h.target;
    let told = match h.verbosity {
        Verbosity::None => "nothing of its layers",
        Verbosity::Names => "names of layers",
        Verbosity::Detailed => "all of its layers",
    };
    let refittable = match (h.refittable, h.identical) {
        (false, _) => "no",
        (true, false) => "yes",
        (true, true) => "by identical weights",
    };
    let rows = [
        ("network", h.name.clone()),
        ("backend", format!("{} {}", t.backend, t.version)),
        ("built for", format!("{} ({})", t.device, t.arch)),
        ("features", t.features.join(" ")),
        ("layers", plan.program.steps.len().to_string()),
        ("weights", bytes(weights)),
        ("activations of a context", bytes(h.context_memory)),
        ("refittable", refittable.into()),
        ("weights left out", h.absent.len().to_string()),
        ("version-compatible", if h.version_compatible { "yes" } else { "no" }.into()),
        ("limits", if h.limit.is_none() { "none".into() } else { h.limit.to_string() }),
        ("portable", if plan.network.is_some() { "yes" } else { "no" }.into()),
        ("tells", told.into()),
    ];
    out.table(&["engine", ""], rows.into_iter().map(|(k, v)| vec![k.to_owned(), v]).collect());
}

fn verdicts(h: &PlanHeader, session: &Session) -> Vec<Verdict> {
    let name = &h.target.backend;
    let missing =
        |why: String| vec![Verdict { device: name.clone(), refusal: Some(why), warnings: Vec::new() }];
    let backend = match session.backends.get(name) {
        Ok(b) => b,
        Err(e) => return missing(e.to_string()),
    };
    match backend.targets() {
        Err(e) => missing(e.to_string()),
        Ok(t) if t.is_empty() => missing("the backend has no device here".into()),
        Ok(targets) => targets
            .iter()
            .map(|t| {
                let c = h.check_compatibility(t);
                Verdict { device: t.device.clone(), refusal: c.refusal, warnings: c.warnings }
            })
            .collect(),
    }
}

fn io_row(t: &IoTensor) -> Vec<String> {
    let mode = if t.mode == IoMode::Input { "input" } else { "output" };
    let shape = if t.is_shape_input { "yes" } else { "" };
    let format = t.format().to_string();
    vec![
        mode.into(),
        t.name.clone(),
        t.dtype.to_string(),
        format,
        format!("[{}]", t.dims_text()),
        shape.into(),
    ]
}

fn plugin_row(r: &Requirement) -> Vec<String> {
    let called = if r.called { "called" } else { "not needed" };
    let held = if r.embedded > 0 { bytes(r.embedded) } else { String::new() };
    let hash = r.digest.get(..16).unwrap_or(&r.digest);
    vec![r.name.clone(), r.version.clone(), hash.into(), r.layers.join("; "), called.into(), held]
}

fn profile_rows(i: usize, p: &Profile) -> Vec<Vec<String>> {
    let of = |what: &'static str| {
        move |(n, r): (&String, &kiln::Range)| {
            let text = |v: &[i64]| format!("{v:?}");
            vec![i.to_string(), n.clone(), what.to_owned(), text(&r.min), text(&r.opt), text(&r.max)]
        }
    };
    p.shapes.iter().map(of("shape")).chain(p.values.iter().map(of("values"))).collect()
}

fn report_recipes(r: &RecipeReport, out: &Printer) -> Result<(), Failure> {
    let RecipeReport { same, different, unknown } = r;
    let fault = |name: &String, why: &str| vec![name.clone(), why.to_owned()];
    let rows = different.iter().map(|n| fault(n, "is not what its recipe makes"));
    let rows = rows.chain(unknown.iter().map(|n| fault(n, "the engine does not keep its sources")));
    out.table(&["derived weight", "fault"], rows.collect());
    let bad = different.len() + unknown.len();
    if bad > 0 {
        return Err(Failure::Mismatch(format!(
            "{bad} of {} derived weights are not what their recipes make, or cannot be made again",
            bad + same
        )));
    }
    out.line(format!("recipes: all {same} derived weights are what their recipes make, byte for byte"));
    Ok(())
}

/// The header for programs.
fn header_value(h: &PlanHeader, verdicts: &[Verdict]) -> Value {
    let io = |t: &IoTensor| {
        json!({
            "name": t.name, "mode": if t.mode == IoMode::Input { "input" } else { "output" },
            "type": t.dtype.name(), "format": t.format().name(), "format_description": t.format_description(), "dims": t.dims_or_minus_one(), "shape": t.dims_text(),
            "shape_input": t.is_shape_input,
        })
    };
    let range = |r: &kiln::Range| json!({"min": r.min, "opt": r.opt, "max": r.max});
    let profile = |p: &Profile| {
        let map = |m: &std::collections::BTreeMap<String, kiln::Range>| -> Value {
            m.iter().map(|(n, r)| (n.clone(), range(r))).collect()
        };
        json!({"shapes": map(&p.shapes), "values": map(&p.values)})
    };
    json!({
        "name": h.name,
        "target": target_json(&h.target),
        "io": h.io.iter().map(io).collect::<Vec<_>>(),
        "profiles": h.profiles.iter().map(profile).collect::<Vec<_>>(),
        "plugins": h.plugins.iter().map(|r| json!({
            "name": r.name, "version": r.version, "hash": r.digest, "layers": r.layers, "called": r.called,
            "embedded": r.embedded,
        })).collect::<Vec<_>>(),
        "refittable": h.refittable,
        "refit_identical": h.identical,
        "version_compatible": h.version_compatible,
        "limit": {"sms": h.limit.sms, "memory": h.limit.memory},
        "absent_weights": h.absent.iter().map(|a| &a.name).collect::<Vec<_>>(),
        "context_memory": h.context_memory,
        "compatibility": verdicts.iter().map(|v| json!({
            "device": v.device, "runs": v.refusal.is_none(), "refusal": v.refusal, "warnings": v.warnings,
        })).collect::<Vec<_>>(),
    })
}

fn value(
    plan: &Plan,
    weights: u64,
    verdicts: &[Verdict],
    recipes: Option<&RecipeReport>,
    layers: bool,
) -> Value {
    let mut v = header_value(&plan.header, verdicts);
    v["portable"] = json!(plan.network.is_some());
    v["weights_bytes"] = json!(weights);
    v["layer_count"] = json!(plan.program.steps.len());
    v["layer_names"] = plan.layers.layers.iter().map(Layer::name).collect::<Vec<_>>().into();
    if layers {
        v["layers"] = serde_json::to_value(&plan.layers).unwrap_or(Value::Null);
    }
    if let Some(r) = recipes {
        v["recipes"] = json!({"same": r.same, "different": r.different, "unknown": r.unknown});
    }
    v
}
