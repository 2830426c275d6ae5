//! The trace of runs: calls on the host, runs and layers on the device, counters, and arrows between them.

use super::writer::{Note, Slice, Trace, Track};
use crate::failure::Failure;
use crate::print::dims;
use crate::query::{self, Moments};
use kiln::inspect::{Layer, LayerInfo, TensorInfo};
use kiln::{ExecutionContext, LayerTime, RuntimeError};
use std::path::Path;
use std::time::Instant;

/// Runs whose layers are timed for the trace.
const TIMED: usize = 10;

/// Measured runs that the trace shows at most.
const SHOWN: usize = 20_000;

/// A run with the times of its layers.
pub struct Timed {
    pub moments: Moments,
    pub layers: Vec<LayerTime>,
}

/// Runs a few times with layers timed. The moments follow those of an earlier measurement that ended at `after`.
pub fn timed(context: &mut ExecutionContext, after: f64) -> Result<Vec<Timed>, RuntimeError> {
    let since = Instant::now();
    let mut all = Vec::new();
    // The first run turns timing on.
    for i in 0..=TIMED {
        let mut moments = Moments::default();
        query::start(context, since, &mut moments)?;
        moments.input = [moments.enqueue[0]; 2];
        query::finish(context, since, true, &mut moments)?;
        let Ok(layers) = context.layer_times() else { return Ok(Vec::new()) };
        let moments = moments.later(0, after);
        if i > 0 {
            all.push(Timed { moments, layers });
        }
    }
    Ok(all)
}

/// Everything that a trace of runs shows.
pub struct Runs<'a> {
    /// Name of the engine, and of its backend.
    pub engine: &'a str,
    pub backend: &'a str,
    /// Runs without times of layers.
    pub plain: &'a [Moments],
    /// Runs with them.
    pub timed: &'a [Timed],
    /// The layers, as the inspector describes them.
    pub layers: &'a [Layer],
    /// Bytes of a context.
    pub memory: u64,
}

/// Tracks of one context.
struct Tracks {
    host: Track,
    device: Track,
}

/// Writes the trace, and returns notes on what it leaves out.
pub fn write(r: &Runs<'_>, path: &Path) -> Result<Vec<String>, Failure> {
    let mut trace = Trace::new(&format!("kiln: {} on {}", r.engine, r.backend));
    let contexts = r.plain.iter().map(|m| m.stream + 1).max().unwrap_or(1);
    let tracks: Vec<Tracks> = (0..contexts)
        .map(|i| Tracks {
            host: trace.track(&format!("context {i}: host")),
            device: trace.track(&format!("context {i}: {}", r.backend)),
        })
        .collect();
    let memory = trace.counter("memory of contexts", true);
    let queue = trace.counter("runs in flight", false);
    trace.count(memory, 0.0, i64::try_from(r.memory.saturating_mul(contexts as u64)).unwrap_or(i64::MAX));
    let shown = r.plain.len().min(SHOWN);
    let mut flow = 0;
    let mut all: Vec<(&Moments, &[LayerTime])> = r.plain[..shown].iter().map(|m| (m, &[][..])).collect();
    all.extend(r.timed.iter().map(|t| (&t.moments, t.layers.as_slice())));
    for (m, layers) in &all {
        let Some(t) = tracks.get(m.stream) else { continue };
        flow += 1;
        host(&mut trace, t.host, m, flow);
        device(&mut trace, t.device, m, flow, &tree(layers), r.layers);
    }
    in_flight(&mut trace, queue, all.iter().map(|(m, _)| *m));
    let mut notes = Vec::new();
    if r.timed.is_empty() {
        notes.push("the trace has no layers: the backend cannot time them on this device".to_owned());
    }
    let left_out = trace.write(path)? + r.plain.len() - shown;
    if left_out > 0 {
        notes.push(format!("the trace leaves out {left_out} slices or runs, as it is long enough"));
    }
    Ok(notes)
}

fn host(trace: &mut Trace, track: Track, m: &Moments, flow: u64) {
    if m.input_ns() > 0.0 {
        trace.slice(Slice::new(track, m.input, "copy inputs"), |_| {});
    }
    trace.slice(Slice { from: vec![flow], ..Slice::new(track, m.enqueue, "enqueue") }, |_| {});
    trace.slice(Slice::new(track, [m.enqueue[1], m.compute[1]], "wait"), |_| {});
    if m.output_ns() > 0.0 {
        trace.slice(Slice::new(track, m.output, "copy outputs"), |_| {});
    }
}

/// A layer with those of its bodies.
struct Node<'a> {
    time: &'a LayerTime,
    inside: Vec<Node<'a>>,
}

/// Layers with those of bodies inside of the step around them, whose name theirs begin with.
fn tree(layers: &[LayerTime]) -> Vec<Node<'_>> {
    let mut all: Vec<Node<'_>> = Vec::new();
    for time in layers {
        let mut to = &mut all;
        while let Some(at) =
            to.iter().rposition(|n| is_inside(&time.name, &n.time.name)).filter(|_| time.inside)
        {
            to = &mut to[at].inside;
        }
        to.push(Node { time, inside: Vec::new() });
    }
    all
}

fn is_inside(name: &str, outer: &str) -> bool {
    name.strip_prefix(outer).is_some_and(|rest| rest.starts_with(" / "))
}

fn device(trace: &mut Trace, track: Track, m: &Moments, flow: u64, layers: &[Node<'_>], table: &[Layer]) {
    let notes = match layers.is_empty() {
        true => Vec::new(),
        false => vec![Note::Text(
            "layers",
            "durations are measured; layers are shown one behind the other from the beginning of the run"
                .into(),
        )],
    };
    let run = Slice { to: vec![flow], notes, ..Slice::new(track, m.compute, "run") };
    trace.slice(run, |trace| row(trace, track, m.compute, layers, table));
}

/// Layers one behind the other. Where times of layers add up to more than the time they ran in, all are shown shorter.
fn row(trace: &mut Trace, track: Track, [begin, end]: [f64; 2], layers: &[Node<'_>], table: &[Layer]) {
    let sum: f64 = layers.iter().map(|n| n.time.ns.max(0.0)).sum();
    let scale = if sum > end - begin { (end - begin) / sum } else { 1.0 };
    let mut at = begin;
    for n in layers {
        let time = [at, (at + n.time.ns.max(0.0) * scale).min(end)];
        at = time[1];
        let slice = Slice { notes: notes(n.time, table), ..Slice::new(track, time, n.time.name.clone()) };
        trace.slice(slice, |trace| row(trace, track, time, &n.inside, table));
    }
}

fn notes(t: &LayerTime, table: &[Layer]) -> Vec<Note> {
    let mut all = vec![Note::Text("tactic", t.tactic.clone()), Note::Number("measured_ns", t.ns)];
    if t.runs != 1 {
        all.push(Note::Count("runs", t.runs));
    }
    if let Some(c) = t.cost {
        all.extend([Note::Count("bytes", c.bytes), Note::Count("operations", c.operations)]);
    }
    let found = table.iter().find_map(|l| match l {
        Layer::Detailed(l) if l.name == t.name => Some(l),
        _ => None,
    });
    all.extend(found.into_iter().flat_map(|l| described(l)));
    all
}

fn described(l: &LayerInfo) -> [Note; 3] {
    let tensors = |all: &[TensorInfo]| {
        let one = |t: &TensorInfo| format!("{} {} {} {}", t.name, t.dtype, t.layout, dims(&t.dims));
        all.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    [
        Note::Text("operators", l.ops.clone()),
        Note::Text("inputs", tensors(&l.inputs)),
        Note::Text("outputs", tensors(&l.outputs)),
    ]
}

/// The number of runs that were started and are not done.
fn in_flight<'a>(trace: &mut Trace, track: Track, runs: impl Iterator<Item = &'a Moments>) {
    let mut changes: Vec<(f64, i64)> = runs.flat_map(|m| [(m.compute[0], 1), (m.compute[1], -1)]).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut now = 0;
    for (at, change) in changes {
        now += change;
        trace.count(track, at, now);
    }
}
