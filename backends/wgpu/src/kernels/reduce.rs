//! Reductions: one thread a result, or one workgroup a result.

mod columns;

use kiln_backend::BackendError;
use kiln_codegen::long::{continued, long_sum, repeated, spans, state};
use kiln_codegen::reduce::{Geometry, Sum, accumulator, by, geometry, group_tactics, hooks, reduce_op};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_ir::DType;
use kiln_ops::reduce::ReduceOp;

pub const KERNELS: &[Kernel] = &[
    columns::KERNEL,
    Kernel {
        name: "reduce.group",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: group_tactics,
        source: |site, _| group_source(site),
        launch: grouped,
    },
    Kernel {
        name: "reduce.serial",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |_| plain("reduce.serial"),
        source: |site, _| serial_source(site),
        launch: serial,
    },
];

fn sum(site: &Site<'_>) -> Result<Sum, BackendError> {
    let t = site.out_dtype(0);
    let op = reduce_op(site)?;
    // NVIDIA's compiler loses truth values that a loop carries as booleans.
    let acc = match accumulator(op, t, site.target.has("i64")) {
        DType::Bool => DType::I32,
        acc => acc,
    };
    Ok(by(op, t, acc))
}

fn group_source(site: &Site<'_>) -> Result<Body, BackendError> {
    let sum = sum(site)?;
    let entries = ["reduce_group", "reduce_group_part", "reduce_group_join"].map(|n| Entry::blocks(n, 64));
    let body = Body::of("reduce/reduce", entries.into());
    let code = state(site, sum.acc) + &hooks(site, &sum, site.out_dtype(0));
    Ok(Body { inputs: Some(vec![0]), scratch: true, ..body.with(code) })
}

fn serial_source(site: &Site<'_>) -> Result<Body, BackendError> {
    let sum = sum(site)?;
    let body = long_sum(site, "reduce/reduce", ("reduce", "reduce_part"), sum.acc);
    let mut body = body.with(hooks(site, &sum, site.out_dtype(0)));
    let shifted = reduce_op(site)? == ReduceOp::LogSumExp;
    body.entries.extend(shifted.then_some(Entry::threads("greatest").silent()));
    Ok(Body { inputs: Some(vec![0]), scratch: true, ..body })
}

/// Iterations that an element takes: a round, and a loop over the dimensions.
fn cost(g: &Geometry) -> usize {
    2 + g.rank
}

fn serial(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    let (cost, results, n) = (cost(&g), g.results, g.elements);
    let mut params = g.params;
    if ReduceOp::of(cx.op()?.attrs()).map_err(op_error)? != ReduceOp::LogSumExp {
        return continued(cx, params.words()?, n, cost);
    }
    // Sums first, then what they are shifted by.
    params.tops = results * 2;
    let w = params.words()?;
    let bytes = results as u64 * 12;
    let greatest = Launch::map(2, w.clone()).on(Grid::Threads(results as u64)).scratch(bytes);
    let mut out = repeated(cx, &greatest, (n, cost), 0)?;
    out.extend(continued(cx, w, n, cost)?.into_iter().map(|l| l.scratch(bytes)));
    Ok(out)
}

/// Elements of a part of a result at most.
const PART: usize = 64 * 4096;

fn grouped(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let g = geometry(cx)?;
    let (cost, results, n, w) = (cost(&g), g.results, g.elements, g.params.words()?);
    // The tree takes a few iterations too.
    let lane = (cx.rounds.saturating_sub(16) / cost).clamp(1, PART / 64);
    let parts = n.div_ceil(lane * 64);
    if parts <= 1 {
        return Ok(vec![Launch::map(0, w).on(Grid::Groups(results as u64))]);
    }
    spans(cx, parts.div_ceil(64), 1)?
        .get(1)
        .map_or(Ok(()), |_| unsupported(format!("a reduction of {n} elements in {parts} parts")))?;
    let all = (results * parts) as u64;
    let part = Launch::map(1, w.clone()).on(Grid::Groups(all)).scratch(all * 8);
    let join = Launch::map(2, w).on(Grid::Groups(results as u64)).scratch(all * 8);
    Ok(vec![part.span(lane * 64, parts)?, join.span(lane * 64, parts)?])
}
