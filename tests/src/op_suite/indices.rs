//! Index inputs with elements out of range: every backend answers with the error of the oracle, and the next run is right.

use super::guard::Guarded;
use super::problems;
use super::run::{Subject, wanted};
use kiln_backend::{BackendError, Context};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::{Elems, OpError, Tensor};
use std::sync::Arc;

/// Result of [`Subject::indices`].
#[derive(Debug, Default)]
pub struct Indices {
    /// Runs that had to fail, and did with the oracle's error.
    pub refused: usize,
    /// Runs whose indices happened to be in range.
    pub passed: usize,
    /// Failures.
    pub failed: Vec<String>,
}

impl Subject {
    /// Draws indices, partly out of range, for one of `every` problems of each operator with index inputs; runs each by every
    /// tactic, then the problem as it is.
    pub fn indices(&self, seed: u64, every: usize) -> Indices {
        let mut rng = Rng::new(seed);
        let mut found = Indices::default();
        let all = problems();
        for p in all.iter().filter(|p| p.op.def().ranges.is_some()).step_by(every.max(1)) {
            for bad in drawn(p, &mut rng) {
                if let Err(why) = self.index_problem(p, &bad, &mut found) {
                    found.failed.push(format!("{} {}: {why}", p.op.name(), p.label));
                }
            }
        }
        found
    }

    fn index_problem(&self, p: &Problem, bad: &Problem, found: &mut Indices) -> Result<(), String> {
        let text = |e: BackendError| e.to_string();
        let mut g = Guarded::new(p, &self.target.memory).map_err(text)?;
        let wrong = Guarded::new(bad, &self.target.memory).map_err(text)?;
        let region = g.program.region(&g.program.steps[Guarded::STEP]).map_err(text)?;
        let tactics = match self.backend.tactics(&region, &self.target) {
            Err(BackendError::Unsupported(_)) => return Ok(()),
            t => t.map_err(text)?,
        };
        let Some(device) = &self.device else { return Ok(()) };
        g.program.choose(&*self.backend, &self.target).map_err(text)?;
        for tactic in tactics.into_iter().filter(wanted) {
            let name = tactic.id();
            let text = |e: BackendError| format!("by {name}: {e}");
            let blob = self.backend.compile(&region, &tactic, &self.target).map_err(text)?;
            g.program.steps[Guarded::STEP].blob = blob.into();
            g.program.steps[Guarded::STEP].tactic = tactic.clone();
            let program = Arc::new(g.program.clone());
            let shapes = Arc::new(program.shapes(&g.inputs).map_err(text)?);
            let mut cx = device.load(program).and_then(|d| d.context()).map_err(text)?;
            let run = |cx: &mut dyn Context, inputs: &[Tensor]| {
                cx.enqueue(inputs, &shapes)?;
                cx.outputs()
            };
            let right = run(&mut *cx, &g.inputs).map_err(text)?;
            match (p.op.eval(&bad.inputs), run(&mut *cx, &wrong.inputs)) {
                (Err(OpError::Index { .. }), Ok(_)) => return Err(format!("by {name}: no error")),
                (
                    Err(OpError::Index { op, input, name: port, .. }),
                    Err(BackendError::Execution { message, .. }),
                ) => {
                    let known = outside(bad, input).any(|m| message.contains(&m));
                    if !known || !message.contains(&format!("{op}: element")) || !message.contains(&port) {
                        return Err(format!("by {name}: another error: {message}"));
                    }
                    found.refused += 1;
                }
                (Err(wanted), got) => return Err(format!("by {name}: {got:?}, wants {wanted}")),
                (Ok(_), got) => {
                    got.map_err(text)?;
                    found.passed += 1;
                }
            }
            let again = run(&mut *cx, &g.inputs).map_err(text)?;
            if again.iter().zip(&right).any(|(a, b)| a.bytes() != b.bytes()) {
                return Err(format!("by {name}: other results after an error"));
            }
        }
        Ok(())
    }
}

/// Texts of an error about each element that is out of range.
fn outside(p: &Problem, input: usize) -> impl Iterator<Item = String> {
    let sizes = |t: &Tensor| t.shape().iter().map(|&n| n as i64).collect();
    let dims: Vec<_> = p.inputs.iter().map(|t| t.as_ref().map(sizes)).collect();
    let ranges = p.op.index_ranges(&dims).unwrap_or_default().into_iter().filter(move |r| r.input == input);
    let values = p.inputs[input].as_ref().map(Tensor::to_i64).unwrap_or_default();
    ranges.flat_map(move |r| {
        let all = values.clone().into_iter().enumerate();
        all.filter_map(move |(at, v)| {
            let (least, greatest) = r.bounds[at % r.bounds.len()];
            let bad = !(least..=greatest).contains(&v) && r.except != Some(v);
            let says = format!("element {at} of input {} (", r.input);
            bad.then(|| format!("{says}\"{}\") is {v}, wants {least} to {greatest}", name(&r, p)))
        })
    })
}

fn name(r: &kiln_ir::IndexRange, p: &Problem) -> &'static str {
    p.op.def().inputs.get(r.input).map_or("", |p| p.name)
}

/// The problem with other indices: one out of range at the first and at the last place, and half of them anywhere near.
fn drawn(p: &Problem, rng: &mut Rng) -> Vec<Problem> {
    let sizes = |t: &Tensor| t.shape().iter().map(|&n| n as i64).collect();
    let dims: Vec<_> = p.inputs.iter().map(|t| t.as_ref().map(sizes)).collect();
    let mut out = Vec::new();
    for r in p.op.index_ranges(&dims).unwrap_or_default() {
        let Some(t) = p.inputs[r.input].as_ref().filter(|t| !t.is_empty()) else { continue };
        let mut with = |v: Vec<i64>| {
            let mut bad = p.clone();
            bad.inputs[r.input] = Tensor::from_elems(t.dtype(), t.shape(), &Elems::I(v));
            out.push(bad);
        };
        let bound = |at: usize| r.bounds[at % r.bounds.len()];
        for (at, above) in [(0, true), (t.len() - 1, false)] {
            let mut v = t.to_i64();
            v[at] = if above { bound(at).1 + 1 } else { bound(at).0 - 1 };
            with(v);
        }
        let near = |(at, v): (usize, i64)| {
            let (least, greatest) = bound(at);
            if rng.int(0, 1) == 0 { v } else { rng.int(least - 2, greatest + 2) }
        };
        let v: Vec<i64> = t.to_i64().into_iter().enumerate().map(near).collect();
        with(v);
    }
    out
}
