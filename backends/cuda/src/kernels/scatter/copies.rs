//! Updates in order, after a copy by vectors: for few updates of large tensors, as a row of a cache.

use crate::frame::element;
use crate::kernels::alone;
use crate::kernels::shape::{input, moving, product, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::scatter::{elements, in_order, moved_updates, tuples};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ops::scatter::SCATTER_ND;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    alone(
        "scatter_elements.copy",
        &["scatter_elements"],
        tactics,
        |site, _| source(site, "scatter_elements"),
        |cx| launch(cx, elements(cx)?),
    )
    .framed(),
    alone(
        "scatter_nd.copy",
        &["scatter_nd"],
        tactics,
        |site, _| source(site, "scatter_nd"),
        |cx| launch(cx, tuples(cx)?),
    )
    .framed(),
];

kiln_codegen::params! {
    /// A copy of x.
    struct ScatterCopyParams {
        /// Elements of x.
        elements: u32,
    }
}

/// The launch that copies x.
const COPY: usize = 0;

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    moved_updates(site)?;
    let t = site.out_dtype(0);
    if !(8..=32).contains(&t.bits()) {
        return unsupported(format!("copies of {t} by vectors"));
    }
    let op = site.op()?;
    let nd = op.is(SCATTER_ND);
    let name = if nd { "scatter_nd.copy" } else { "scatter_elements.copy" };
    let estimate_ns = traffic(site).zip(in_turn(site, nd)?);
    let estimate_ns =
        estimate_ns.map(|(bytes, turns)| moving(site.target, bytes, 1.3) + 4000.0 + turns * TURN_NS);
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Nanoseconds of an update that waits for the one before.
const TURN_NS: f64 = 400.0;

/// The most updates of a thread; `None` where that is not known.
fn in_turn(site: &Site<'_>, nd: bool) -> Result<Option<f64>, BackendError> {
    let Some(indices) = input(site, 1) else { return Ok(None) };
    let turns = match nd {
        true => indices.dims.split_last().and_then(|(_, lead)| product(lead)),
        false => {
            let axis = site.op()?.attrs().int("axis").map_err(op_error)?;
            let axis = if axis < 0 { axis + indices.rank() as i64 } else { axis };
            usize::try_from(axis)
                .ok()
                .and_then(|a| indices.dims.get(a))
                .and_then(|d| product(std::slice::from_ref(d)))
        }
    };
    Ok(turns.map(|n| n as f64))
}

fn source(site: &Site<'_>, entry: &'static str) -> Result<Body, BackendError> {
    let mut body = in_order(site, entry)?;
    body.files.push("scatter/copy");
    body.entries[COPY] = Entry::threads("scatter_copy_8");
    body.checking = true;
    Ok(body.with(element("Cell", "wide", site.first_dtype()) + &site.constant("FUSED", "bool", false)))
}

fn launch(cx: &Cx<'_>, launches: Vec<Launch>) -> Result<Vec<Launch>, BackendError> {
    let elements: usize = cx.shape(0)?.iter().product();
    let params = ScatterCopyParams { elements }.words()?;
    let by_vectors = |l: Launch| match l.entry {
        COPY => Launch::map(COPY, params.clone()).on(Grid::Threads(elements.div_ceil(8) as u64)),
        _ => l,
    };
    Ok(launches.into_iter().map(by_vectors).collect())
}
