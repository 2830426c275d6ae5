//! Operators along an axis by one workgroup a line: positions of extrema, running sums and products.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::reduce::argreduce::order;
use kiln_codegen::reduce::cumulative::hooks;
use kiln_codegen::reduce::lines;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_ir::Fact;
use kiln_ir::infer::normalize_axis;
use kiln_ops::reduce::cumulative::CUMULATIVE;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "argreduce.group",
        ops: &["argmax", "argmin"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| tactics(site, "argreduce.group"),
        source: |site, _| {
            let code = order(site)? + &site.alias("Element", site.first_dtype());
            Ok(body("reduce/argreduce_group", "argreduce_group").with(code))
        },
        launch: |cx| {
            let rank = cx.shape(0)?.len();
            launch(cx, cx.axis(rank)?)
        },
    },
    Kernel {
        name: "cumulative.group",
        ops: &["cumulative"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| tactics(site, "cumulative.group"),
        source: |site, _| Ok(body("reduce/cumulative_group", "cumulative_group").with(hooks(site)?)),
        launch: |cx| {
            let rank = cx.shape(0)?.len();
            let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
            launch(cx, normalize_axis(axis, rank, "axis").map_err(op_error)?)
        },
    },
];

/// Threads of a workgroup.
const THREADS: u32 = 256;
/// The fewest elements of a line for which it has a workgroup, and the most: loops of so many rounds run on every device.
const ELEMENTS: std::ops::RangeInclusive<usize> = 64..=1 << 20;

fn body(file: &'static str, entry: &'static str) -> Body {
    Body { inputs: Some(vec![0]), ..Body::of(file, vec![Entry::blocks(entry, THREADS)]) }
}

/// Offers a workgroup a line where lines are known to be neither short nor too long.
fn tactics(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
    let Some((_, node)) = site.anchor else { return unsupported("a region without an anchor") };
    let fact = |i: usize| node.inputs.get(i).copied().flatten().map(|v| &site.graph.value(v).fact);
    let shape = fact(0).and_then(|f| f.ty.static_dims()).unwrap_or_default();
    let axis = match node.op.is(CUMULATIVE) {
        true => fact(1).and_then(Fact::as_const).and_then(|t| t.scalar_i64()),
        false => Some(node.op.attrs().int("axis").map_err(op_error)?),
    };
    let axis = axis.and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    match axis.and_then(|a| shape.get(a)) {
        Some(n) if ELEMENTS.contains(n) => plain(name),
        Some(n) => unsupported(format!("workgroups for lines of {n} elements")),
        None => unsupported("workgroups for lines of unknown length"),
    }
}

/// A workgroup a line along the axis.
fn launch(cx: &Cx<'_>, axis: usize) -> Result<Vec<Launch>, BackendError> {
    let (params, count) = lines(&cx.shape(0)?, axis);
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(count as u64))])
}
