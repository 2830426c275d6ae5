//! Convolutions whose groups have one channel of the input: maps of neighbouring results.

use super::geometry;
use crate::kernels::cost::Work;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::conv::{WINDOWS, hooks};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::window::channels_last;
use kiln_codegen::{Body, Kernel, Launch, Views};

const NAME: &str = "conv.depthwise";

pub const KERNEL: Kernel = Kernel {
    name: NAME,
    ops: &["conv"],
    epilogue: true,
    views: Views::Framed,
    side_results: false,
    tactics,
    source: |site, _| {
        let code = site.alias("Value", site.out_dtype(0)) + &hooks(site);
        let body = Body::element("conv/depthwise", "depthwise");
        Ok(Body { files: vec![WINDOWS, "conv/depthwise"], ..body.with(code) })
    },
    launch,
};

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let weights = site.input(1).map(|w| &site.graph.ty(w).dims);
    // Channels of a group are last beside places, else second.
    let at = if channels_last(site) { weights.map_or(0, |d| d.len().saturating_sub(1)) } else { 1 };
    let channels = weights.and_then(|d| d.get(at)?.as_const());
    let groups = site.op()?.attrs().int("groups").map_err(op_error)?;
    if channels != Some(1) || groups < 2 || !site.out_dtype(0).is_float() {
        return unsupported("single channels of other types than floats, or of groups of several");
    }
    let estimate_ns = Work::of(site).map(|w| w.shared_ns(site.target.has("software")));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(NAME) }])
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    // Taps take loops in loops; a thread has several results.
    let longest = g.depth.saturating_mul(4 * cx.lanes);
    if longest > cx.rounds {
        return unsupported(format!(
            "{} taps: loops of {longest} iterations, {} are possible",
            g.depth, cx.rounds
        ));
    }
    Ok(vec![Launch::map(0, g.words)])
}
