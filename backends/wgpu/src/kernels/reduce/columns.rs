//! Reductions that keep the last axis: threads sum four neighbouring results, so that loads are of whole words.

use super::{cost, sum};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::reduce::{geometry, hooks, reduce_op};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::Fact;
use kiln_ops::reduce::{ReduceOp, mask};

const NAME: &str = "reduce.columns";

pub const KERNEL: Kernel = Kernel {
    name: NAME,
    ops: &["reduce"],
    epilogue: true,
    views: Views::Framed,
    side_results: false,
    tactics,
    source,
    launch,
};

/// Results of a workgroup, and the threads of each four of them.
const RESULTS: usize = 128;
const SHARE: usize = 8;
/// Workgroups that keep a large device busy.
const BUSY: usize = 512;
/// The fewest elements of a thread of a part.
const ELEMENTS: usize = 16;

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if reduce_op(site)? == ReduceOp::LogSumExp {
        return unsupported("a shifted sum by columns");
    }
    let fact = |i: usize| site.input(i).map(|v| &site.graph.value(v).fact);
    let Some(x) = fact(0).and_then(|f| f.ty.static_dims()) else {
        return unsupported("columns of unknown length");
    };
    let axes = fact(1).and_then(Fact::as_const).map(|t| t.to_i64());
    let mask = mask(site.op()?.attrs(), axes.as_deref(), x.len()).map_err(op_error)?;
    let kept = mask.last() == Some(&false) && x.last().is_some_and(|n| n.is_multiple_of(4));
    let elements: usize = x.iter().zip(&mask).filter(|(_, m)| **m).map(|(n, _)| n).product();
    if !kept || elements < SHARE {
        return unsupported("few elements a result, or results that are not neighbours");
    }
    let volume = x.iter().product::<usize>() as f64;
    let each = if site.target.has("software") { 2.0 } else { 0.001 };
    Ok(vec![Tactic { estimate_ns: Some(4000.0 + volume * each), ..Tactic::plain(NAME) }])
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let sum = sum(site)?;
    let entries = vec![Entry::blocks("reduce_columns", 256), Entry::threads("join_columns")];
    let code = state(site, sum.acc) + &hooks(site, &sum, site.out_dtype(0));
    Ok(Body { inputs: Some(vec![0]), scratch: true, ..Body::of("reduce/columns", entries).with(code) })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    let (cost, results, n) = (cost(&g), g.results, g.elements);
    let mut params = g.params;
    if params.kept_strides.last() != Some(&1) || !results.is_multiple_of(4) {
        return unsupported("results that are not neighbours");
    }
    // Shifts that other kernels keep are not there: the word says how many results there are.
    params.tops = results;
    let strips = results.div_ceil(RESULTS);
    let most = n.div_ceil(SHARE * ELEMENTS).max(1);
    let longest = cx.rounds.saturating_sub(32) / cost;
    let parts = BUSY.div_ceil(strips.max(1)).min(most).max(n.div_ceil(SHARE * longest.max(1)));
    let part = n.div_ceil(parts).max(1);
    let parts = n.div_ceil(part).max(1);
    if longest == 0 || parts > cx.rounds {
        return unsupported(format!("a reduction of {n} elements in {parts} parts"));
    }
    let w = params.words()?;
    let bytes = if parts > 1 { (results * parts) as u64 * 8 } else { 8 };
    let groups = Grid::Groups((strips * parts) as u64);
    let mut all = vec![Launch::map(0, w.clone()).on(groups).scratch(bytes).span(part, parts)?];
    if parts > 1 {
        all.push(Launch::map(1, w).on(Grid::Threads(results as u64)).scratch(bytes).span(part, parts)?);
    }
    Ok(all)
}
