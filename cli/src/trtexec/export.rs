//! Files of results as JSON, with the keys that scripts read.

use super::stats::Summary;
use crate::cmd::bench::layers::LayerStats;
use crate::failure::Failure;
use crate::query::Moments;
use kiln::inspect::LayerTable;
use kiln::{Elems, Tensor};
use serde_json::{Value, json};
use std::path::Path;

/// Writes a file; nothing is left of it if that fails.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    kiln_files::replace(path, None, bytes).map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// Writes a value as JSON.
pub fn write_json(path: &Path, value: &Value) -> Result<(), Failure> {
    // Values with text keys always have a JSON form.
    write(path, serde_json::to_string_pretty(value).unwrap_or_default().as_bytes())
}

/// Times of all runs.
pub fn times(runs: &[Moments]) -> Value {
    let ms = |ns: f64| ns / 1e6;
    let one = |m: &Moments| {
        json!({
            "startEnqMs": ms(m.enqueue[0]), "endEnqMs": ms(m.enqueue[1]),
            "startH2dMs": ms(m.input[0]), "endH2dMs": ms(m.input[1]),
            "startComputeMs": ms(m.compute[0]), "endComputeMs": ms(m.compute[1]),
            "startD2hMs": ms(m.output[0]), "endD2hMs": ms(m.output[1]),
            "h2dMs": ms(m.input_ns()), "computeMs": ms(m.compute_ns()), "d2hMs": ms(m.output_ns()),
            "latencyMs": ms(m.latency_ns()),
        })
    };
    runs.iter().map(one).collect()
}

/// The layers as the inspector has them. Names of inputs and outputs have the key of version 11, and that of earlier ones.
pub fn layers(table: &LayerTable) -> Value {
    // A table with text keys always has a JSON form.
    let mut value = serde_json::to_value(table).unwrap_or_default();
    value["Bindings"] = json!(table.io);
    value
}

/// Name, time of all runs, mean, median and percentage of layers.
pub struct Row {
    pub name: String,
    pub time: f64,
    pub mean: f64,
    pub median: f64,
    pub share: f64,
}

/// Times of layers in milliseconds over so many runs. Layers in bodies of control flow are part of the layer around them.
pub fn rows(layers: &[LayerStats], runs: usize) -> Vec<Row> {
    let total: f64 = layers.iter().filter(|l| !l.inside).map(|l| l.stats.mean).sum();
    let row = |l: &LayerStats| Row {
        name: l.name.clone(),
        time: l.stats.mean * l.samples as f64 / 1e6,
        mean: l.stats.mean * l.samples as f64 / runs.max(1) as f64 / 1e6,
        median: l.stats.p50 / 1e6,
        share: 100.0 * l.stats.mean / total.max(f64::MIN_POSITIVE),
    };
    layers.iter().map(row).collect()
}

/// Times of layers: a count, then the layers.
pub fn profile(rows: &[Row], runs: usize) -> Value {
    let row = |r: &Row| {
        json!({
            "name": r.name, "timeMs": r.time, "averageMs": r.mean, "medianMs": r.median, "percentage": r.share,
        })
    };
    std::iter::once(json!({"count": runs})).chain(rows.iter().map(row)).collect()
}

/// Dimensions as these files write them.
pub fn dims(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// Outputs with all elements. Those without a JSON form (infinite, not a number) are null.
pub fn outputs(outputs: &[(String, Tensor)]) -> Value {
    let one = |(name, t): &(String, Tensor)| {
        let values = match t.elems() {
            Elems::F(v) => json!(v),
            Elems::I(v) => json!(v),
        };
        json!({"name": name, "dimensions": dims(t.shape()), "values": values})
    };
    outputs.iter().map(one).collect()
}

/// Statistics of values, for a line.
pub fn statistics(values: &[f64]) -> String {
    let numbers: Vec<f64> = values.iter().copied().filter(|x| !x.is_nan()).collect();
    match Summary::of(&numbers, &[]) {
        Some(s) => format!(
            "min {}, max {}, mean {}, {} not a number",
            s.min,
            s.max,
            s.mean,
            values.len() - numbers.len()
        ),
        None => format!("{} elements, none a number", values.len()),
    }
}
