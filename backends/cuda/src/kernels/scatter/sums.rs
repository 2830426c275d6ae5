//! Sums of floats at many places at once in f32, in the order in which threads come: not deterministic, but with half the traffic. Those
//! of f32 are made in the result.

use super::{Places, elements, moved, tuples};
use crate::dialect::CUDA;
use crate::frame::{cell, element};
use crate::kernels::alone;
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;
use kiln_ops::scatter::SCATTER_ND;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    alone(
        "scatter_elements.sums",
        &["scatter_elements"],
        tactics,
        |site, _| source(site),
        |cx| launch(cx, elements(cx)?),
    ),
    alone("scatter_nd.sums", &["scatter_nd"], tactics, |site, _| source(site), |cx| launch(cx, tuples(cx)?)),
];

/// Updates of a thread, and elements of the result of one, where they lie together.
const UPDATES: usize = 4;
const RESULTS: usize = 8;

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let op = site.op()?;
    let t = site.out_dtype(0);
    let adds = op.attrs().str("reduction").map_err(op_error)? == "add";
    if !adds || !matches!(t, DType::F16 | DType::BF16 | DType::F32) {
        return unsupported("sums in f32 of other than added floats");
    }
    let results = moved(site)?;
    let name = if op.is(SCATTER_ND) { "scatter_nd.sums" } else { "scatter_elements.sums" };
    let estimate_ns =
        traffic(site).map(|bytes| moving(site.target, results as f64 * 12.0 + bytes, 1.3) + 4000.0);
    Ok(vec![Tactic { estimate_ns, deterministic: false, ..Tactic::plain(name) }])
}

/// Whether sums are made where the results lie, which no thread has to round.
fn direct(t: DType) -> bool {
    t == DType::F32
}

const START: usize = 0;
const ADD_FOUR: usize = 1;
const ADD_ONE: usize = 2;
const FINISH_EIGHT: usize = 3;
const FINISH_ONE: usize = 4;

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t)
        + &element("Cell", "wide", t)
        + &(CUDA.alias)("IndexCell", cell(site.dtype(1).unwrap_or(DType::I64)))
        + &site.constant("TUPLES", "bool", site.op()?.is(SCATTER_ND))
        + &site.constant("DIRECT", "bool", direct(t));
    let adding = ["start_sums", "add_4_updates", "add_1_update"].map(Entry::threads);
    if direct(t) {
        return Ok(Body { checking: true, ..Body::of("scatter/sums", adding.into()) }.with(code));
    }
    let finish = ["finish_8_sums", "finish_1_sum"].map(Entry::threads);
    let entries = adding.map(Entry::silent).into_iter().chain(finish).collect();
    Ok(Body { scratch: true, checking: true, ..Body::of("scatter/sums", entries).with(code) })
}

fn launch(cx: &Cx<'_>, places: Places) -> Result<Vec<Launch>, BackendError> {
    let Places { params, updates, .. } = places;
    let results = params.results;
    if results == 0 {
        return Ok(Vec::new());
    }
    // Updates of a thread lie in one line of the result, one behind the other.
    let innermost = params.sizes.first().zip(params.strides.first());
    let lies_together = match cx.op()?.is(SCATTER_ND) {
        true => params.slice.is_multiple_of(UPDATES),
        false => innermost.is_some_and(|(n, step)| n.is_multiple_of(UPDATES) && *step == 1),
    };
    let (add, each) = if lies_together { (ADD_FOUR, UPDATES) } else { (ADD_ONE, 1) };
    let (finish, finished) =
        if results.is_multiple_of(RESULTS) { (FINISH_EIGHT, RESULTS) } else { (FINISH_ONE, 1) };
    let quads = results.div_ceil(4);
    let w = params.words()?;
    let direct = cx.outputs.first().is_some_and(|f| direct(f.ty.dtype));
    let scratch = if direct { 0 } else { quads as u64 * 16 };
    let step = |entry, threads: usize| {
        Launch::map(entry, w.clone()).on(Grid::Threads(threads as u64)).scratch(scratch)
    };
    let mut all = vec![step(START, quads)];
    if updates > 0 {
        all.push(step(add, updates / each));
    }
    if !direct {
        all.push(step(finish, results / finished));
    }
    Ok(all)
}
