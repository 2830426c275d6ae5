//! Data of a report: the layers of an engine with their times, its memory over time, and notes of its build.

use super::lifetimes::{self, Lifetime};
use crate::bench::Stats;
use crate::cmd::bench::layers::LayerStats;
use kiln::inspect::{Layer, LayerInfo, LayerTable, TensorInfo};
use kiln::{HostLayer, Plan, Profile};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Words between the names of layers that one kernel runs.
pub const JOINT: &str = " + ";

/// Words between the name of a step of control flow and of a layer in its body.
pub const BODY: &str = " / ";

/// Operators that only move or convert elements.
const MOVES: &[&str] = &["transpose", "cast", "reshape", "expand", "copy", "identity", "slice", "concat"];

/// Operators whose layers change the type or format for a neighbour, if the build added them.
const REFORMATS: &[&str] = &["transpose", "cast", "reshape", "copy"];

/// A tensor as a report shows it.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: String,
    pub format: String,
    pub shape: String,
}

/// A time of a tactic.
#[derive(Clone, Debug)]
pub struct Alternative {
    pub tactic: String,
    pub ns: f64,
}

/// One layer.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub index: usize,
    pub name: String,
    /// Names of the network's layers that it runs.
    pub origins: Vec<String>,
    pub ops: String,
    pub tactic: String,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub workspace: u64,
    /// Number of elements of its weights.
    pub weights: usize,
    /// Median time in nanoseconds: of runs if they were measured, else of the build.
    pub ns: Option<f64>,
    pub bytes: Option<u64>,
    pub operations: Option<u64>,
    /// Tactics that were timed, the fastest first.
    pub alternatives: Vec<Alternative>,
    /// Note of the backend on the tactic.
    pub note: String,
}

impl Row {
    /// Whether it is in a body of control flow.
    pub fn inside(&self) -> bool {
        self.name.contains(BODY)
    }

    /// Element type of what it makes.
    pub fn dtype(&self) -> &str {
        self.outputs.first().map_or("", |t| &t.dtype)
    }

    /// Whether it only moves or converts elements.
    pub fn moves(&self) -> bool {
        !self.ops.is_empty() && self.ops.split(JOINT).all(|op| MOVES.contains(&op))
    }
}

/// A layer that the build added to change a type or a format.
#[derive(Clone, Debug)]
pub struct Reformat {
    pub layer: String,
    pub from: String,
    pub to: String,
    pub cause: String,
    pub ns: Option<f64>,
}

/// A rewrite that the build considered.
#[derive(Clone, Debug, Default)]
pub struct Considered {
    pub rewrite: String,
    pub layer: String,
    pub taken: bool,
    pub why: String,
    pub without_ns: Option<f64>,
    pub with_ns: Option<f64>,
}

/// Report of the engine's build, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Build {
    /// By name of the layer: time, note, timed tactics.
    pub layers: HashMap<String, (Option<f64>, String, Vec<Alternative>)>,
    pub considered: Vec<Considered>,
    pub notes: Vec<String>,
    pub host: Option<Vec<HostLayer>>,
}

/// Results of runs of the engine.
#[derive(Debug)]
pub struct Measured {
    pub latency: Option<Stats>,
    pub runs: usize,
    pub layers: Vec<LayerStats>,
    pub host: Option<Vec<HostLayer>>,
}

/// Limits of the device, for the share of its roofline that a layer reaches.
#[derive(Clone, Copy, Debug)]
pub struct Roofline {
    /// Gigabytes a second.
    pub bandwidth: f64,
    /// Giga operations a second, if known.
    pub rate: Option<f64>,
}

/// All of a report.
#[derive(Debug)]
pub struct Report {
    pub name: String,
    /// Names and values of the summary.
    pub facts: Vec<(String, String)>,
    pub profiles: Vec<Profile>,
    pub rows: Vec<Row>,
    pub lifetimes: Vec<Lifetime>,
    /// Bytes of memory of a context, and steps that it is planned for.
    pub arena: u64,
    pub steps: usize,
    pub build: Build,
    pub host: Option<Vec<HostLayer>>,
    pub measured: bool,
    pub roofline: Option<Roofline>,
}

impl Report {
    /// Data of a plan, at the usual shapes of its first profile.
    pub fn of(plan: &Plan, facts: Vec<(String, String)>, build: Build, m: Option<Measured>) -> Report {
        let table = usual(plan).unwrap_or_else(|| plan.layers.clone());
        let mut rows: Vec<Row> = table.layers.iter().enumerate().map(|(i, l)| row(i, l)).collect();
        for r in &mut rows {
            if let Some((ns, note, alternatives)) = build.layers.get(&r.name) {
                (r.ns, r.note, r.alternatives) = (*ns, note.clone(), alternatives.clone());
            }
        }
        let measured = m.is_some();
        let mut host = build.host.clone();
        if let Some(m) = m {
            time(&mut rows, &m.layers);
            host = m.host.or(host);
        }
        let bandwidth = plan.header.target.numbers.get("bandwidth_gbs").map(|&n| n as f64);
        Report {
            name: plan.header.name.clone(),
            facts,
            profiles: plan.header.profiles.clone(),
            rows,
            lifetimes: lifetimes::of(&plan.program),
            arena: plan.program.memory.arena,
            steps: plan.program.steps.len(),
            build,
            host,
            measured,
            roofline: bandwidth.map(|bandwidth| Roofline { bandwidth, rate: None }),
        }
    }

    /// Time of all layers outside of bodies, in nanoseconds.
    pub fn total(&self) -> f64 {
        self.rows.iter().filter(|r| !r.inside()).filter_map(|r| r.ns).sum()
    }

    /// Percent of the roofline that a layer reaches.
    pub fn share_of_roofline(&self, r: &Row) -> Option<f64> {
        let (limit, ns) = (self.roofline?, r.ns.filter(|ns| *ns > 0.0)?);
        let by_bytes = r.bytes? as f64 / ns / limit.bandwidth;
        let by_work = limit.rate.zip(r.operations).map_or(0.0, |(rate, n)| n as f64 / ns / rate);
        Some(100.0 * by_bytes.max(by_work))
    }

    /// Layers that the build added to change types or formats, with what wants that.
    pub fn reformats(&self) -> Vec<Reformat> {
        let moves = |r: &&Row| !r.ops.is_empty() && r.ops.split(JOINT).all(|op| REFORMATS.contains(&op));
        let launched = self.rows.iter().filter(moves).filter(|r| r.tactic != "view");
        launched.filter_map(|r| self.reformat(r)).collect()
    }

    fn reformat(&self, r: &Row) -> Option<Reformat> {
        let (from, to) = (r.inputs.first()?, r.outputs.first()?);
        if (&from.dtype, &from.format) == (&to.dtype, &to.format) {
            return None;
        }
        let makes = |o: &&Row| o.outputs.iter().any(|t| t.name == from.name);
        let source = self.rows.iter().find(makes);
        let source = source.map_or_else(|| format!("input {}", from.name), |s| s.name.clone());
        let reads = |o: &&Row| o.inputs.iter().any(|t| t.name == to.name);
        let readers: Vec<&str> = self.rows.iter().filter(reads).map(|r| r.name.as_str()).collect();
        let readers = if readers.is_empty() { "the output".to_owned() } else { readers.join(", ") };
        let text = |t: &Tensor| format!("{} {}", t.dtype, t.format);
        Some(Reformat {
            layer: r.name.clone(),
            from: text(from),
            to: text(to),
            cause: format!("{source} makes {}, {readers} reads {}", text(from), text(to)),
            ns: r.ns,
        })
    }

    /// The layers for programs, as the page holds them.
    pub fn json(&self) -> Value {
        let tensor =
            |t: &Tensor| json!({"name": t.name, "type": t.dtype, "format": t.format, "shape": t.shape});
        let row = |r: &Row| {
            json!({
                "name": r.name, "origins": r.origins, "operators": r.ops, "tactic": r.tactic, "ns": r.ns,
                "inputs": r.inputs.iter().map(tensor).collect::<Vec<_>>(),
                "outputs": r.outputs.iter().map(tensor).collect::<Vec<_>>(),
                "alternatives": r.alternatives.iter().map(|a| json!({"tactic": a.tactic, "ns": a.ns})).collect::<Vec<_>>(),
                "bytes": r.bytes, "operations": r.operations, "workspace": r.workspace,
            })
        };
        json!({"engine": self.name, "measured": self.measured, "layers": self.rows.iter().map(row).collect::<Vec<_>>()})
    }
}

/// The layers at the usual shapes; `None` of plans without profiles, and where shapes depend on more.
fn usual(plan: &Plan) -> Option<LayerTable> {
    let mut at = plan.header.profiles.first()?.clone();
    let usual = |r: &mut kiln::Range| (r.min, r.max) = (r.opt.clone(), r.opt.clone());
    at.shapes.values_mut().chain(at.values.values_mut()).for_each(usual);
    plan.layers_at(&at).ok()
}

fn row(index: usize, layer: &Layer) -> Row {
    let name = layer.name().to_owned();
    let own = name.rsplit_once(BODY).map_or(name.as_str(), |(_, own)| own);
    let origins = own.split(JOINT).map(origin).collect();
    let Layer::Detailed(l) = layer else { return Row { index, origins, name, ..Row::default() } };
    let LayerInfo { ops, tactic, tactic_params, .. } = &**l;
    let params: Vec<String> = tactic_params.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let tactic = if params.is_empty() { tactic.clone() } else { format!("{tactic}({})", params.join(",")) };
    Row {
        index,
        origins,
        ops: ops.clone(),
        tactic,
        inputs: l.inputs.iter().map(tensor).collect(),
        outputs: l.outputs.iter().map(tensor).collect(),
        workspace: l.workspace,
        weights: l.weights.iter().map(|w| w.count).sum(),
        name,
        ..Row::default()
    }
}

fn tensor(t: &TensorInfo) -> Tensor {
    Tensor { name: t.name.clone(), dtype: t.dtype.clone(), format: t.layout.clone(), shape: t.shape.clone() }
}

/// The name of the network's layer that a layer of the engine stands for: without what passes append.
fn origin(name: &str) -> String {
    let mut name = name;
    while let Some((front, end)) = name.rsplit_once('.') {
        if !matches!(end, "f16" | "bf16" | "f32" | "i8" | "f8e4m3" | "channels_last" | "channels_first") {
            break;
        }
        name = front;
    }
    name.to_owned()
}

/// Takes over measured times. Layers of one name are told apart by their order.
fn time(rows: &mut [Row], layers: &[LayerStats]) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for r in rows {
        let nth = seen.entry(r.name.clone()).or_default();
        if let Some(l) = layers.iter().filter(|l| l.name == r.name).nth(*nth) {
            r.ns = Some(l.stats.p50);
            r.bytes = l.cost.map(|c| c.bytes);
            r.operations = l.cost.map(|c| c.operations);
        }
        *nth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_names_of_the_network() {
        let of = |name: &str| row(0, &Layer::Name(name.to_owned())).origins;
        assert_eq!(of("/conv1/Conv.f16 + /Relu"), ["/conv1/Conv", "/Relu"]);
        assert_eq!(of("loop / body.1 + x.channels_last"), ["body.1", "x"]);
    }

    fn one(name: &str, ops: &str, input: [&str; 3], output: [&str; 3]) -> Row {
        let t = |[name, dtype, format]: [&str; 3]| Tensor {
            name: name.into(),
            dtype: dtype.into(),
            format: format.into(),
            shape: String::new(),
        };
        Row {
            name: name.into(),
            ops: ops.into(),
            inputs: vec![t(input)],
            outputs: vec![t(output)],
            ..Row::default()
        }
    }

    #[test]
    fn reformats_name_both_sides() {
        let rows = vec![
            one("conv", "conv", ["x", "f32", "hwc"], ["y", "f32", "hwc"]),
            one("y", "transpose", ["y", "f32", "hwc"], ["z", "f32", "linear"]),
            one("fc", "matmul", ["z", "f32", "linear"], ["o", "f32", "linear"]),
            one("user", "transpose", ["o", "f32", "linear"], ["p", "f32", "linear"]),
        ];
        let r = Report {
            name: String::new(),
            facts: Vec::new(),
            profiles: Vec::new(),
            rows,
            lifetimes: Vec::new(),
            arena: 0,
            steps: 0,
            build: Build::default(),
            host: None,
            measured: false,
            roofline: None,
        };
        let all = r.reformats();
        assert_eq!((all.len(), all[0].layer.as_str()), (1, "y"));
        assert_eq!(all[0].cause, "conv makes f32 hwc, fc reads f32 linear");
    }
}
