//! `kiln bench`: latency percentiles, throughput, time by layer, and what happened after warm-up.

use crate::bench::{Limits, Stats, Times, measure, together};
use crate::cmd::build::report_json;
use crate::cmd::host::{host_json, print_host};
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::{LimitOptions, ModelOptions};
use crate::print::{Printer, dims, time};
use crate::progress::Bar;
use crate::subject::{self, Subject};
use kiln::ExecutionContext;
use kiln::{LayerTime, RunCounters};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Runs in which layers are timed.
const PROFILED: usize = 10;
/// Latencies that vary more are worth a warning.
const STEADY: f64 = 0.05;

/// Measure latency and throughput
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An engine that `kiln build` wrote, or an ONNX model
    #[arg(value_name = "MODEL_OR_ENGINE")]
    subject: PathBuf,
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
    /// Show the time of each layer
    #[arg(long)]
    profile: bool,
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

/// Time of one layer over several runs.
struct LayerStats {
    name: String,
    tactic: String,
    /// Times that it ran in one run of the network, on average: in a loop once an iteration.
    runs: f64,
    /// Whether it is in a body of control flow, so that the time of another layer includes its own.
    inside: bool,
    stats: Stats,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let mut inputs = args.inputs.clone();
    inputs.random_inputs.get_or_insert(0);
    let s = subject::open(&args.subject, &args.model, &inputs, out)?;
    let mut context = s.engine.create_context()?;
    let limits = Limits {
        warm_up: Duration::from_millis(args.warm_up),
        iterations: args.iterations,
        duration: Duration::from_secs_f64(args.duration),
        resident: args.no_transfers,
    };
    context.set_timeout(args.limits.timeout);
    let mut bar = Bar::default();
    let (times, warm) = measure(&mut context, &s.inputs, &limits, |n| bar.set("runs", n, n))?;
    drop(bar);
    let after = context.counters();
    // Before layers are timed: then the host is between them in any case.
    let host = context.host_layers().ok();
    let alone = Stats::of(&context.time_runs(times.latency.len().clamp(20, 1000) as u32).unwrap_or_default());
    let (layers, device) = profile(&mut context)?;
    let runs = times.latency.len();
    let throughput = runs as f64 / (times.wall / 1e9);
    let together = args.contexts.map(|n| together(&s.engine, &s.inputs, &limits, n.into())).transpose()?;
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
        "layers": layers.iter().map(layer_json).collect::<Vec<_>>(),
        "host_layers": host_json(host.as_deref()),
        "build": s.report.as_ref().map(report_json),
    });
    for (k, (_, stats)) in key.iter().zip(&rows) {
        value[*k] = stats.map_or(Value::Null, stats_json);
    }
    out.value(&value);
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
        print_layers(&layers, out);
    }
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

fn print_layers(layers: &[LayerStats], out: &Printer) {
    if layers.is_empty() {
        return out.note("the backend cannot time layers on this device");
    }
    let total: f64 = layers.iter().filter(|l| !l.inside).map(|l| l.stats.mean).sum();
    let row = |l: &LayerStats| {
        let share = 100.0 * l.stats.mean / total.max(f64::MIN_POSITIVE);
        let (mean, median) = (time(l.stats.mean), time(l.stats.p50));
        vec![
            l.name.clone(),
            l.tactic.clone(),
            format!("{:.0}", l.runs),
            mean,
            median,
            format!("{share:.1} %"),
        ]
    };
    out.table(&["layer", "tactic", "runs", "mean", "median", "share"], layers.iter().map(row).collect());
}

/// Times of the layers in a few further runs, and of all layers together in each. Empty where the device cannot tell.
fn profile(context: &mut ExecutionContext) -> Result<(Vec<LayerStats>, Vec<f64>), Failure> {
    let mut samples: Vec<(LayerTime, Vec<f64>)> = Vec::new();
    let mut sums = Vec::new();
    // The first run is not timed on every backend: asking for times turns them on.
    for i in 0..=PROFILED {
        context.enqueue()?;
        context.outputs()?;
        let Ok(times) = context.layer_times() else { return Ok((Vec::new(), Vec::new())) };
        if i == 0 {
            continue;
        }
        sums.push(times.iter().filter(|t| !t.inside).map(|t| t.ns).sum());
        for t in times {
            // Layers of a branch run in some runs only.
            match samples.iter_mut().find(|(s, _)| s.name == t.name && s.tactic == t.tactic) {
                Some((s, ns)) => {
                    s.runs += t.runs;
                    ns.push(t.ns);
                }
                None => samples.push((t.clone(), vec![t.ns])),
            }
        }
    }
    let layer = |(t, ns): (LayerTime, Vec<f64>)| {
        let LayerTime { name, tactic, runs, inside, .. } = t;
        Some(LayerStats { name, tactic, runs: runs as f64 / PROFILED as f64, inside, stats: Stats::of(&ns)? })
    };
    let layers: Vec<LayerStats> = samples.into_iter().filter_map(layer).collect();
    let sums = if layers.is_empty() { Vec::new() } else { sums };
    Ok((layers, sums))
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

fn layer_json(l: &LayerStats) -> Value {
    json!({
        "name": l.name, "tactic": l.tactic, "runs": l.runs, "inside": l.inside, "mean_ns": l.stats.mean,
        "median_ns": l.stats.p50,
    })
}
