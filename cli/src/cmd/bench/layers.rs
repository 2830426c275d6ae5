//! Times of layers over a few runs.

use crate::bench::Stats;
use crate::failure::Failure;
use crate::print::{Printer, time};
use kiln::{ExecutionContext, LayerCost, LayerTime};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Runs in which `kiln bench` times layers.
pub const PROFILED: usize = 10;

/// Time of one layer over several runs.
#[derive(Debug)]
pub struct LayerStats {
    pub name: String,
    pub tactic: String,
    /// Times that it ran in one run of the network, on average: in a loop once an iteration.
    pub runs: f64,
    /// Whether it is in a body of control flow, so that the time of another layer includes its own.
    pub inside: bool,
    /// Runs of the network in which it ran.
    pub samples: usize,
    pub stats: Stats,
    pub cost: Option<LayerCost>,
}

/// Measured limits of a device, for the share of them that a layer reaches.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// Terabytes a second of a copy, read and written.
    bandwidth: f64,
    /// Tera operations a second of products.
    rate: f64,
}

/// Reads `TB/s,TFLOP/s`.
pub fn ceilings(text: &str) -> Result<Ceilings, String> {
    let wanted =
        || "wanted two positive numbers, TB/s of a copy and TFLOP/s of products: 4.27,650".to_owned();
    let number = |t: &str| t.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    let (bandwidth, rate) = text.split_once(',').ok_or_else(wanted)?;
    match (number(bandwidth), number(rate)) {
        (Some(bandwidth), Some(rate)) => Ok(Ceilings { bandwidth, rate }),
        _ => Err(wanted()),
    }
}

impl LayerStats {
    /// Terabytes and tera operations a second, by the median.
    fn rates(&self) -> Option<[f64; 2]> {
        let cost = self.cost.filter(|_| self.stats.p50 > 0.0)?;
        Some([cost.bytes, cost.operations].map(|n| n as f64 / self.stats.p50 / 1e3))
    }

    /// Percent of the roofline that it reaches.
    fn share_of(&self, c: &Ceilings) -> Option<f64> {
        self.rates().map(|[bytes, operations]| 100.0 * (bytes / c.bandwidth).max(operations / c.rate))
    }
}

/// Times of the layers in a few further runs, and of all layers together in each. Empty where the device cannot tell.
pub fn profile(context: &mut ExecutionContext, timed: usize) -> Result<(Vec<LayerStats>, Vec<f64>), Failure> {
    let mut samples: Vec<(LayerTime, usize, Vec<f64>)> = Vec::new();
    let mut sums = Vec::new();
    // The first run is not timed on every backend: asking for times turns them on.
    for i in 0..=timed {
        context.enqueue()?;
        context.outputs()?;
        let Ok(times) = context.layer_times() else { return Ok((Vec::new(), Vec::new())) };
        if i == 0 {
            continue;
        }
        sums.push(times.iter().filter(|t| !t.inside).map(|t| t.ns).sum());
        // Layers may share a name, such as a pool and the reformat behind it: the second of a run is another one.
        let mut seen: HashMap<(String, String), usize> = HashMap::new();
        for t in times {
            let nth = seen.entry((t.name.clone(), t.tactic.clone())).or_default();
            *nth += 1;
            // Layers of a branch run in some runs only.
            match samples.iter_mut().find(|(s, n, _)| n == nth && s.name == t.name && s.tactic == t.tactic) {
                Some((s, _, ns)) => {
                    s.runs += t.runs;
                    ns.push(t.ns);
                }
                None => samples.push((t.clone(), *nth, vec![t.ns])),
            }
        }
    }
    let layer = |(t, _, ns): (LayerTime, usize, Vec<f64>)| {
        let LayerTime { name, tactic, runs, inside, cost, .. } = t;
        let runs = runs as f64 / timed as f64;
        Some(LayerStats { name, tactic, runs, inside, samples: ns.len(), stats: Stats::of(&ns)?, cost })
    };
    let layers: Vec<LayerStats> = samples.into_iter().filter_map(layer).collect();
    let sums = if layers.is_empty() { Vec::new() } else { sums };
    Ok((layers, sums))
}

/// Prints a row for each layer.
pub fn print_layers(layers: &[LayerStats], ceilings: Option<&Ceilings>, out: &Printer) {
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
            l.rates().map_or_else(String::new, |r| format!("{:.3}", r[0])),
            l.rates().filter(|r| r[1] > 0.0).map_or_else(String::new, |r| format!("{:.2}", r[1])),
            ceilings.and_then(|c| l.share_of(c)).map_or_else(String::new, |s| format!("{s:.0} %")),
        ]
    };
    let head = ["layer", "tactic", "runs", "mean", "median", "share", "TB/s", "TFLOP/s", "of roofline"];
    let shown = if ceilings.is_some() { head.len() } else { head.len() - 1 };
    let rows = layers.iter().map(row).map(|mut r| {
        r.truncate(shown);
        r
    });
    out.table(&head[..shown], rows.collect());
}

/// The layer for programs.
pub fn layer_json(l: &LayerStats, ceilings: Option<&Ceilings>) -> Value {
    let rates = l.rates();
    json!({
        "name": l.name, "tactic": l.tactic, "runs": l.runs, "inside": l.inside, "mean_ns": l.stats.mean,
        "median_ns": l.stats.p50, "bytes": l.cost.map(|c| c.bytes), "operations": l.cost.map(|c| c.operations),
        "terabytes_per_s": rates.map(|r| r[0]), "tera_operations_per_s": rates.map(|r| r[1]),
        "roofline_percent": ceilings.and_then(|c| l.share_of(c)),
    })
}
