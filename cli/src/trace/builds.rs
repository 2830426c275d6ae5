//! The trace of a build: phases, passes, and the timing of kernels with what was measured.

use super::writer::{Note, Slice, Trace, Track};
use crate::failure::Failure;
use kiln::cache::TimingCache;
use kiln::{BuildReport, ProgressMonitor};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Name of the phase whose steps are passes.
const PASSES: &str = "running passes";

/// Name of the phases whose steps are kernels that are timed, in front of the layer's.
const TIMING: &str = "timing \"";

/// A phase, from its beginning to its end.
#[derive(Debug)]
struct Phase {
    name: String,
    depth: usize,
    steps: usize,
    begin: f64,
    end: f64,
    /// Ends of its steps.
    done: Vec<f64>,
}

/// A monitor that notes when phases and steps begin and end.
#[derive(Debug)]
pub struct Recorder {
    since: Instant,
    phases: Vec<Phase>,
    open: Vec<usize>,
}

impl Recorder {
    /// A recorder whose time begins now.
    pub fn new() -> Arc<Mutex<Recorder>> {
        Arc::new(Mutex::new(Recorder { since: Instant::now(), phases: Vec::new(), open: Vec::new() }))
    }

    fn now(&self) -> f64 {
        self.since.elapsed().as_nanos() as f64
    }
}

impl ProgressMonitor for Recorder {
    fn phase_start(&mut self, phase: &str, _parent: Option<&str>, steps: usize) {
        let begin = self.now();
        let depth = self.open.len();
        self.open.push(self.phases.len());
        self.phases.push(Phase { name: phase.to_owned(), depth, steps, begin, end: begin, done: Vec::new() });
    }

    fn step_complete(&mut self, _phase: &str, _step: usize) -> bool {
        let now = self.now();
        if let Some(phase) = self.open.last().and_then(|&i| self.phases.get_mut(i)) {
            phase.done.push(now);
        }
        true
    }

    fn phase_finish(&mut self, _phase: &str) {
        let now = self.now();
        if let Some(phase) = self.open.pop().and_then(|i| self.phases.get_mut(i)) {
            phase.end = now;
        }
    }
}

/// Writes the trace of a build that is done.
pub fn write(
    recorder: &Mutex<Recorder>,
    report: &BuildReport,
    times: &TimingCache,
    path: &Path,
) -> Result<(), Failure> {
    let recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    let mut trace = Trace::new(&format!("kiln build for {}", report.backend));
    let phases = trace.track("phases");
    let kernels = trace.counter("kernels timed", false);
    let listed = listed(&recorder.phases, report.passes.len());
    nested(&mut trace, phases, &recorder.phases, &Names { report, times, listed });
    let mut timed = 0;
    trace.count(kernels, 0.0, 0);
    for p in recorder.phases.iter().filter(|p| p.name.starts_with(TIMING)) {
        for &at in &p.done {
            timed += 1;
            trace.count(kernels, at, timed);
        }
    }
    trace.write(path)?;
    Ok(())
}

/// Depth of phases whose passes the report of the build lists, one list behind the other.
const REPORTED: usize = 1;

/// Position of each phase's first pass in the report of the build, of phases that it lists.
fn listed(phases: &[Phase], passes: usize) -> HashMap<u64, usize> {
    let mut next = 0;
    let mut all = HashMap::new();
    for p in phases.iter().filter(|p| p.name == PASSES && p.depth == REPORTED && p.done.len() == p.steps) {
        if next + p.steps <= passes {
            all.insert(p.begin.to_bits(), next);
            next += p.steps;
        }
    }
    all
}

/// Sources of names for the parts of a build.
struct Names<'a> {
    report: &'a BuildReport,
    times: &'a TimingCache,
    /// Positions of passes by the beginning of their phase.
    listed: HashMap<u64, usize>,
}

/// Phases of one depth, with those inside of them.
fn nested(trace: &mut Trace, track: Track, phases: &[Phase], names: &Names<'_>) {
    let mut rest = phases;
    while let Some((first, behind)) = rest.split_first() {
        let inside = behind.iter().take_while(|p| p.depth > first.depth).count();
        let (inside, next) = behind.split_at(inside);
        let mut slice = Slice::new(track, [first.begin, first.end], first.name.clone());
        slice.notes.push(Note::Count("steps", first.steps as u64));
        slice.notes.extend(measured(&first.name, names));
        trace.slice(slice, |trace| {
            if inside.is_empty() {
                steps(trace, track, first, names);
            }
            nested(trace, track, inside, names);
        });
        rest = next;
    }
}

/// Steps of a phase without phases inside: passes by their name, others by their number.
fn steps(trace: &mut Trace, track: Track, phase: &Phase, names: &Names<'_>) {
    let first = names.listed.get(&phase.begin.to_bits());
    let mut begin = phase.begin;
    for (i, &end) in phase.done.iter().enumerate() {
        let pass = first.and_then(|f| names.report.passes.get(f + i));
        let name = pass.map_or_else(|| format!("step {}", i + 1), |p| p.pass.to_owned());
        trace.slice(Slice::new(track, [begin, end], name), |_| {});
        begin = end;
    }
}

/// Times of all candidates of the layer that a phase timed, and the choice.
fn measured(phase: &str, names: &Names<'_>) -> Vec<Note> {
    let layer = phase.strip_prefix(TIMING).and_then(|p| p.strip_suffix('"'));
    let Some(step) = layer.and_then(|l| names.report.steps.iter().find(|s| s.name == l)) else {
        return Vec::new();
    };
    let mut notes = vec![Note::Text("chosen", step.tactic.clone())];
    notes.extend(step.ns.map(|ns| Note::Number("chosen_ns", ns)));
    if let Some(entry) = step.key.as_deref().and_then(|k| names.times.get(k)) {
        let one = |(name, c): (&String, &kiln::cache::Candidate)| format!("{name}: {:.0} ns", c.median());
        notes.push(Note::Text("candidates", entry.candidates.iter().map(one).collect::<Vec<_>>().join("; ")));
    }
    notes
}
