//! `kiln report`: a page about an engine, or about two of them side by side.

use crate::bench::{Limits, Stats, measure};
use crate::cmd::bench::layers::{PROFILED, profile};
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::ModelOptions;
use crate::print::{Printer, bytes, time};
use crate::report::data::{Alternative, Build, Considered, Measured, Report, Roofline};
use crate::report::{html, pair};
use crate::session::{Session, load_layers};
use crate::subject::{self, run_profile, session_for};
use kiln::cache::{Entry, TimingCache};
use kiln::{BuildReport, Built, Engine, HostLayer, Model, Plan, PlanHeader};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The largest report of a build that is read.
const MAX_REPORT: u64 = 1 << 30;

/// Write a page about an engine, or about two engines side by side
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An engine, or a model that is built first; of two the layers are shown side by side
    #[arg(value_name = "ENGINE_OR_MODEL", required = true, num_args = 1..=2)]
    subjects: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "OUT.html")]
    output: PathBuf,
    /// Run the engine with random inputs, and show measured times and rates of layers
    #[arg(long)]
    measure: bool,
    /// The report of the engine's build, as `kiln build --json` printed it: times, rewrites, and with --timing-cache all
    /// tactics that were timed. Once for each engine
    #[arg(long, value_name = "FILE")]
    build_report: Vec<PathBuf>,
    /// Limits of the device: GB/s of a copy, and GFLOP/s of products, for the share of its roofline that a layer reaches
    #[arg(long, value_name = "GB/s,GFLOP/s", value_parser = roofline)]
    ceilings: Option<Roofline>,
    #[command(flatten)]
    model: ModelOptions,
}

fn roofline(text: &str) -> Result<Roofline, String> {
    let wanted = || "wanted two positive numbers, as 4270,650000".to_owned();
    let number = |t: &str| t.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    let (bandwidth, rate) = text.split_once(',').ok_or_else(wanted)?;
    match (number(bandwidth), number(rate)) {
        (Some(bandwidth), Some(rate)) => Ok(Roofline { bandwidth, rate: Some(rate) }),
        _ => Err(wanted()),
    }
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    load_layers(&args.model.plugins)?;
    if args.build_report.len() > args.subjects.len() {
        return Err(Failure::Input("--build-report is given more often than there are engines".into()));
    }
    let place = kiln_files::Replacement::create(&args.output, None);
    let fail = |source| Failure::File { path: args.output.clone(), source };
    let mut place = place.map_err(fail)?;
    let inputs = args.subjects.iter().chain(&args.build_report);
    place.refuse_inputs(inputs.map(PathBuf::as_path)).map_err(fail)?;
    let mut reports = Vec::new();
    for (i, path) in args.subjects.iter().enumerate() {
        reports.push(report(args, i, path, out)?);
    }
    let page = match reports.as_slice() {
        [a, b] => pair::report(a, b),
        all => all.first().map(html::report).unwrap_or_default(),
    };
    std::io::Write::write_all(&mut place, page.as_bytes()).map_err(fail)?;
    place.commit().map_err(fail)?;
    out.value(&serde_json::json!({"report": args.output.display().to_string(), "bytes": page.len()}));
    out.line(format!("wrote {} ({})", args.output.display(), bytes(page.len() as u64)));
    Ok(())
}

fn report(args: &Args, i: usize, path: &Path, out: &Printer) -> Result<Report, Failure> {
    let opened = Model::open(path)?;
    let (plan, mut build, session) = match opened.plan() {
        Some(header) => {
            refuse_building(args, path)?;
            let session = Session::with(&args.model.plugins, [header.target.backend.as_str()]);
            (Plan::open(path)?, Build::default(), session)
        }
        None => built(args, opened, out)?,
    };
    if let Some(path) = args.build_report.get(i) {
        build = stored(path, args.model.tune.timing_cache.as_deref())?;
    }
    let mut facts = facts(&plan);
    let measured = match args.measure {
        true => Some(measured(args, &plan, &session, out)?),
        false => None,
    };
    if let Some(m) = &measured {
        let line = |s: &Stats| format!("{} (90 %: {}, 99 %: {})", time(s.p50), time(s.p90), time(s.p99));
        facts.extend(m.latency.as_ref().map(|s| (format!("latency, median of {} runs", m.runs), line(s))));
    }
    let mut report = Report::of(&plan, facts, build, measured);
    report.roofline = args.ceilings.or(report.roofline);
    Ok(report)
}

/// Refuses options that say how to build an engine that is built. A timing cache is read beside the report of its build.
fn refuse_building(args: &Args, path: &Path) -> Result<(), Failure> {
    let mut asked = args.model.clone();
    if !args.build_report.is_empty() {
        asked.tune.timing_cache = None;
    }
    match asked.building() {
        Some(option) => Err(Failure::Input(format!(
            "{option} says how to build, and {} is built: give the model instead",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Builds a model, with all that its build reports.
fn built(args: &Args, model: Model, out: &Printer) -> Result<(Plan, Build, Session), Failure> {
    let asked = &args.model;
    let session = session_for(asked, [asked.backend.backend.as_deref(), asked.backend.fallback.as_deref()]);
    let mut options = asked.build()?;
    asked.io.apply(model.io_tensors(), &mut options.config)?;
    asked.calibration.apply(&model, &mut options, &session.backends, out)?;
    let Built { plan, report, times, .. } = subject::build(model, &options, &session, out)?;
    subject::tell(&report, out);
    Ok((plan, of_report(&report, &times), session))
}

fn alternatives(entry: Option<&Entry>) -> Vec<Alternative> {
    let all = entry.into_iter().flat_map(|e| &e.candidates);
    let mut all: Vec<Alternative> =
        all.map(|(tactic, c)| Alternative { tactic: tactic.clone(), ns: c.median() }).collect();
    all.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    all
}

fn of_report(r: &BuildReport, times: &TimingCache) -> Build {
    let entry = |key: &Option<String>| key.as_deref().and_then(|k| times.get(k));
    Build {
        layers: r
            .steps
            .iter()
            .map(|s| (s.name.clone(), (s.ns, s.note.clone(), alternatives(entry(&s.key)))))
            .collect(),
        considered: r
            .considered
            .iter()
            .map(|c| Considered {
                rewrite: c.rewrite.to_owned(),
                layer: c.layer.clone(),
                taken: c.taken,
                why: c.why.clone(),
                without_ns: c.without_ns,
                with_ns: c.with_ns,
            })
            .collect(),
        notes: r.notes.clone(),
        host: Some(r.host_layers.clone()),
    }
}

/// The report of a build from its file.
fn stored(path: &Path, cache: Option<&Path>) -> Result<Build, Failure> {
    let read = |path: &Path| {
        kiln_files::read_regular(path, MAX_REPORT)
            .map_err(|source| Failure::File { path: path.to_owned(), source })
    };
    let wrong =
        |message: String| Failure::Input(format!("{} is not a report of a build: {message}", path.display()));
    let value: Value = serde_json::from_slice(&read(path)?).map_err(|e| wrong(e.to_string()))?;
    if !value["layers"].is_array() {
        return Err(wrong("it has no layers; wanted the output of `kiln build --json`".into()));
    }
    let times = match cache {
        Some(path) => {
            let text = String::from_utf8_lossy(&read(path)?).into_owned();
            let read = TimingCache::from_text(&text);
            read.map_err(|message| Failure::Cache { path: path.to_owned(), message })?
        }
        None => TimingCache::new(),
    };
    let list = |key: &str| value[key].as_array().into_iter().flatten();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let layer = |l: &Value| {
        let entry = l["cache_key"].as_str().and_then(|k| times.get(k));
        (text(&l["name"]), (l["ns"].as_f64(), text(&l["note"]), alternatives(entry)))
    };
    let considered = |c: &Value| Considered {
        rewrite: text(&c["rewrite"]),
        layer: text(&c["layer"]),
        taken: c["taken"] == true,
        why: text(&c["why"]),
        without_ns: c["without_ns"].as_f64(),
        with_ns: c["with_ns"].as_f64(),
    };
    let host =
        |h: &Value| HostLayer { name: text(&h["name"]), why: text(&h["why"]), advice: text(&h["advice"]) };
    Ok(Build {
        layers: list("layers").map(layer).collect::<HashMap<_, _>>(),
        considered: list("considered").map(considered).collect(),
        notes: list("notes").map(text).collect(),
        host: value["host_layers"].as_array().map(|all| all.iter().map(host).collect()),
    })
}

fn facts(plan: &Plan) -> Vec<(String, String)> {
    let h: &PlanHeader = &plan.header;
    let t = &h.target;
    let weights: u64 = plan.program.weights().map(|(_, w)| w.bytes().len() as u64).sum();
    let io = |input: bool| {
        let tensors: Vec<_> = if input { h.inputs().collect() } else { h.outputs().collect() };
        let one = |t: &&kiln::IoTensor| format!("{} {} {} [{}]", t.name, t.dtype, t.format(), t.dims_text());
        tensors.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let yes = |b: bool| if b { "yes" } else { "no" }.to_owned();
    let all = [
        ("backend", format!("{} {}", t.backend, t.version)),
        ("built for", format!("{} ({})", t.device, t.arch)),
        ("fingerprint of the target", t.fingerprint()),
        ("features", t.features.join(" ")),
        ("inputs", io(true)),
        ("outputs", io(false)),
        ("layers", plan.program.steps.len().to_string()),
        ("weights", bytes(weights)),
        ("memory of a context", bytes(h.context_memory)),
        ("refittable", yes(h.refittable)),
        ("version-compatible", yes(h.version_compatible)),
        ("portable", yes(plan.network.is_some())),
    ];
    all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

/// Runs an engine with random inputs.
fn measured(args: &Args, plan: &Plan, session: &Session, out: &Printer) -> Result<Measured, Failure> {
    let mut builder = Engine::builder().backends(session.backends.clone());
    if let Some(device) = &args.model.backend.device {
        builder = builder.device(device.clone());
    }
    let engine = builder.build(plan.clone())?;
    let at = run_profile(&engine, &args.model.shapes.request(), None)?;
    let random = InputOptions { random_inputs: Some(0), ..InputOptions::default() };
    let inputs = random.complete(Default::default(), engine.io_tensors(), &at)?;
    let mut context = engine.create_context()?;
    let limits = Limits {
        warm_up: Duration::from_millis(100),
        iterations: 10,
        duration: Duration::from_secs(1),
        resident: false,
        profile: None,
    };
    let (times, _) = measure(&mut context, &inputs, &limits, |_| {})?;
    let host = context.host_layers().ok();
    let (layers, _) = profile(&mut context, PROFILED)?;
    if layers.is_empty() {
        out.note("the backend cannot time layers on this device");
    }
    Ok(Measured { latency: Stats::of(&times.latency), runs: times.latency.len(), layers, host })
}
