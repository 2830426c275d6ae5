//! Recurrences: a workgroup for each sequence and direction.

pub mod steps;

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::recurrent::{body, sizes};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_ops::recurrent::GRU;

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "recurrent",
    ops: &["rnn", "gru", "lstm"],
    epilogue: false,
    views: Views::Whole,
    side_results: false,
    tactics: |_| plain("recurrent"),
    source,
    launch,
}];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let wide = ["wide_start", "wide_reset", "wide_step", "wide_accept", "wide_finish"].map(Entry::threads);
    let entries = [Entry::blocks("recur", 64)].into_iter().chain(wide);
    body(site, entries.collect())
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let s = sizes(cx)?;
    let (w, steps, groups, scratch) = (s.params.words()?, s.steps, s.sequences, s.scratch);
    // Gates, and elements of their products.
    let element = 4 * (s.inputs + s.hidden + 2);
    let rows = s.hidden.div_ceil(64);
    // The parts before the first step and behind the last one.
    let around = 2 * rows + 8;
    if (element + 3) * rows + around > cx.rounds {
        return wide(cx, w, steps, element, groups * s.hidden as u64, scratch);
    }
    let launch = Launch::map(0, w).on(Grid::Groups(groups)).scratch(scratch);
    let chunk = ((cx.rounds - around) / ((element + 3) * rows).max(1)).max(1);
    let starts = (0..steps.max(1)).step_by(chunk);
    starts.map(|from| launch.clone().span(from, (from + chunk).min(steps))).collect()
}

/// Launches for each part of each step.
fn wide(
    cx: &Cx<'_>,
    w: Vec<u32>,
    steps: usize,
    element: usize,
    threads: u64,
    scratch: u64,
) -> Result<Vec<Launch>, BackendError> {
    let op = cx.op()?;
    if element > cx.rounds {
        return unsupported(format!(
            "{} with loops of {element} iterations, {} are possible",
            op.name(),
            cx.rounds
        ));
    }
    let parts: &[usize] = if op.is(GRU) { &[2, 3, 4] } else { &[3, 4] };
    let of_step = |k: usize| parts.iter().map(move |&entry| (entry, k));
    let all = std::iter::once((1, 0)).chain((0..steps).flat_map(of_step)).chain([(5, steps)]);
    let launch =
        |(entry, k)| Launch::map(entry, w.clone()).on(Grid::Threads(threads)).scratch(scratch).span(k, k + 1);
    all.map(launch).collect()
}
