//! `kiln bench`: latency percentiles, throughput, time by layer, and what happened after warm-up.

pub mod layers;
mod several;

use self::layers::{Ceilings, PROFILED, ceilings, layer_json, print_layers, profile};
use crate::arrays;
use crate::bench::{Limits, Stats, Times, measure, moments, rate, together};
use crate::cmd::host::{host_json, print_host};
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::{LimitOptions, ModelOptions};
use crate::print::{Printer, dims, time};
use crate::progress::Bar;
use crate::query::Moments;
use crate::subject::{self, Subject};
use crate::trace;
use kiln::{ExecutionContext, RunCounters};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Latencies that vary more are worth a warning.
const STEADY: f64 = 0.05;

/// Measure latency and throughput
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Engines that `kiln build` wrote, or ONNX models; - reads paths from standard input, one a line, as they come. With
    /// several, --json prints a line for each, and one that fails does not end the others
    #[arg(value_name = "MODEL_OR_ENGINE", required = true)]
    subjects: Vec<PathBuf>,
    /// Milliseconds of runs before anything counts
    #[arg(long, value_name = "MS", default_value_t = 200)]
    warm_up: u64,
    /// Runs at least
    #[arg(long, value_name = "N", default_value_t = 10)]
    iterations: usize,
    /// Seconds at least
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    duration: f64,
    /// Run so many contexts at once afterwards, each in a thread, and compare their throughput with that of one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=256))]
    contexts: Option<u16>,
    /// Leave inputs and outputs on the device: time runs without transfers
    #[arg(long)]
    no_transfers: bool,
    /// Show the time of each layer, and the bytes and operations a second that it reaches
    #[arg(long)]
    profile: bool,
    /// Limits of the device, as measured by a copy and by a large product: shows the share that each layer reaches of its
    /// roofline, the greater of its bytes by the one and its operations by the other
    #[arg(long, value_name = "TB/s,TFLOP/s", value_parser = ceilings)]
    ceilings: Option<Ceilings>,
    /// Store all outputs in an archive, by name; here and in --inputs {} stands for the path of the engine without its
    /// extension
    #[arg(long, value_name = "OUT.npz")]
    save_outputs: Option<PathBuf>,
    /// Store a trace of the runs, and of a few with each layer, for the viewer of Perfetto; {} as for --save-outputs
    #[arg(long, value_name = "OUT.pftrace", value_parser = trace::path)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    model: ModelOptions,
}

fn seconds(text: &str) -> Result<f64, String> {
    let s: f64 = text.parse().map_err(|_| "wanted seconds".to_owned())?;
    if (0.0..=1e6).contains(&s) { Ok(s) } else { Err("wanted 0 to 1000000 seconds".into()) }
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    match args.subjects.as_slice() {
        [one] if one.as_os_str() != "-" => {
            let (value, _) = measured(args, one, out)?;
            out.value(&value);
            Ok(())
        }
        several => several::run(several, out, |path| measured(args, path, out)),
    }
}

/// The path of a file of one engine: `{}` is the engine's path without its extension.
fn beside(pattern: &Path, subject: &Path) -> PathBuf {
    match pattern.to_str() {
        Some(text) if text.contains("{}") => {
            text.replace("{}", &subject.with_extension("").to_string_lossy()).into()
        }
        _ => pattern.to_owned(),
    }
}

/// Measures one engine, prints it for people, and returns it for programs.
fn measured(args: &Args, path: &Path, out: &Printer) -> Result<(Value, Subject), Failure> {
    let mut inputs = args.inputs.clone();
    inputs.random_inputs.get_or_insert(0);
    inputs.inputs = inputs.inputs.map(|pattern| beside(&pattern, path));
    let s = subject::open(path, &args.model, &inputs, out)?;
    let mut context = s.engine.create_context()?;
    context.set_profile(args.inputs.use_profile)?;
    let limits = Limits {
        warm_up: Duration::from_millis(args.warm_up),
        iterations: args.iterations,
        duration: Duration::from_secs_f64(args.duration),
        resident: args.no_transfers,
        profile: args.inputs.use_profile,
    };
    context.set_timeout(args.limits.timeout);
    let mut bar = Bar::default();
    let (times, warm) = measure(&mut context, &s.inputs, &limits, |n| bar.set("runs", n, n))?;
    drop(bar);
    let after = context.counters();
    // Before layers are timed: then the host is between them in any case.
    let host = context.host_layers().ok();
    let alone = Stats::of(&context.time_runs(times.latency.len().clamp(20, 1000) as u32).unwrap_or_default());
    let (layers, device) = profile(&mut context, PROFILED)?;
    let runs = times.latency.len();
    let throughput = runs as f64 / (times.wall / 1e9);
    let all = args.contexts.map(|n| together(&s.engine, &s.inputs, &limits, n.into())).transpose()?;
    let together = all.as_deref().map(rate);
    if let Some(pattern) = &args.trace {
        let plain = all.as_deref().map_or_else(|| times.moments.clone(), moments);
        traced(&s, &mut context, &plain, &beside(pattern, path), out)?;
    }
    let rows = [
        ("latency", Stats::of(&times.latency)),
        ("without transfers (device)", alone),
        ("enqueue (host)", Stats::of(&times.enqueue)),
        ("layers (device)", Stats::of(&device)),
    ];
    let key = ["latency_ns", "run_ns", "enqueue_ns", "device_ns"];
    let mut value = json!({
        "engine": s.engine.name(),
        "backend": s.engine.backend(),
        "device": s.engine.target().device,
        "inputs": s.inputs.iter().map(|(n, t)| json!({"name": n, "shape": t.shape()})).collect::<Vec<_>>(),
        "first_run_ns": times.first,
        "warm_up_runs": times.warm_ups,
        "transfers": !args.no_transfers,
        "runs": runs,
        "wall_ns": times.wall,
        "throughput_per_s": throughput,
        "contexts": args.contexts,
        "throughput_of_contexts_per_s": together,
        "after_warm_up": grown_json(&warm, &after),
        "layers": layers.iter().map(|l| layer_json(l, args.ceilings.as_ref())).collect::<Vec<_>>(),
        "host_layers": host_json(host.as_deref()),
        "build": s.report.as_ref().map(kiln::BuildReport::to_json),
    });
    for (k, (_, stats)) in key.iter().zip(&rows) {
        value[*k] = stats.map_or(Value::Null, stats_json);
    }
    print(&s, &times, throughput, &rows, out);
    if let (Some(n), Some(all)) = (args.contexts, together) {
        out.line(format!(
            "{n} contexts at once: {all:.2} runs/s, {:.2} times those of one",
            all / throughput
        ));
    }
    let grown: Vec<String> = grown(&warm, &after).iter().map(|(n, x)| format!("{n} {x}")).collect();
    out.line(format!("after warm-up: {}", grown.join(", ")));
    print_host(&host.unwrap_or_default(), out);
    if args.profile {
        print_layers(&layers, args.ceilings.as_ref(), out);
    }
    if let Some(pattern) = &args.save_outputs {
        context.enqueue()?;
        arrays::write_archive(&beside(pattern, path), &context.outputs()?)?;
    }
    drop(context);
    Ok((value, s))
}

/// Stores a trace of these runs, and of a few more in which layers are timed.
fn traced(
    s: &Subject,
    context: &mut ExecutionContext,
    plain: &[Moments],
    path: &Path,
    out: &Printer,
) -> Result<(), Failure> {
    let after = plain.iter().map(|m| m.output[1]).fold(0.0, f64::max);
    let timed = trace::runs::timed(context, after)?;
    let table = context.inspector()?;
    let runs = trace::runs::Runs {
        engine: &s.engine.name(),
        backend: s.engine.backend(),
        plain,
        timed: &timed,
        layers: &table.layers,
        memory: s.engine.context_memory(),
    };
    trace::runs::write(&runs, path)?.iter().for_each(|n| out.note(n));
    out.line(format!("wrote {}", path.display()));
    Ok(())
}

fn print(s: &Subject, times: &Times, throughput: f64, rows: &[(&str, Option<Stats>)], out: &Printer) {
    out.line(format!("{} on {} ({})", s.engine.name(), s.engine.backend(), s.engine.target().device));
    let shapes: Vec<String> = s.inputs.iter().map(|(n, t)| format!("{n}:{}", dims(t.shape()))).collect();
    out.line(format!("inputs {}", shapes.join(", ")));
    out.line(format!(
        "{} runs in {}: {throughput:.2} runs/s; before them {} to warm up, the first in {}",
        times.latency.len(),
        time(times.wall),
        times.warm_ups,
        time(times.first),
    ));
    let row = |(name, stats): &(&str, Option<Stats>)| {
        let s = (*stats)?;
        let mut row = vec![(*name).to_owned()];
        row.extend([s.min, s.mean, s.p50, s.p90, s.p95, s.p99, s.max].map(time));
        Some(row)
    };
    out.table(&["", "min", "mean", "p50", "p90", "p95", "p99", "max"], rows.iter().filter_map(row).collect());
    if let Some(v) = rows.iter().find_map(|(_, s)| s.map(|s| s.variation)).filter(|v| *v > STEADY) {
        out.note(format!(
            "latencies vary by {:.0} % (standard deviation over mean): close other programs, or run longer",
            100.0 * v
        ));
    }
}

/// Work of a context between two moments; all but runs should be 0 after warm-up.
fn grown(before: &RunCounters, after: &RunCounters) -> [(&'static str, u64); 6] {
    let (a, b) = (&before.backend, &after.backend);
    [
        ("runs", b.runs - a.runs.min(b.runs)),
        ("allocations", b.allocations - a.allocations.min(b.allocations)),
        ("compilations", b.compilations - a.compilations.min(b.compilations)),
        ("pipelines", b.pipelines - a.pipelines.min(b.pipelines)),
        ("host syncs", b.host_syncs - a.host_syncs.min(b.host_syncs)),
        ("shape inferences", after.shape_inferences - before.shape_inferences.min(after.shape_inferences)),
    ]
}

fn grown_json(before: &RunCounters, after: &RunCounters) -> Value {
    grown(before, after).into_iter().map(|(n, x)| (n.replace(' ', "_"), json!(x))).collect()
}

fn stats_json(s: Stats) -> Value {
    let Stats { min, mean, p50, p90, p95, p99, max, variation } = s;
    json!({
        "min": min, "mean": mean, "p50": p50, "p90": p90, "p95": p95, "p99": p99, "max": max, "variation": variation,
    })
}
