//! Reductions of neighbouring axes, read eight elements at a time.

use super::shape::{input, ints, moving, traffic};
use crate::frame::{cell, load};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::reduce::{Sum, hooks, reduce_op};
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;
use kiln_ops::reduce::{ReduceOp, mask};
use std::ops::Range;

pub mod argreduce;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "reduce.rows",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Whole,
        tactics: |site| tactics(site, true),
        source: |site, _| {
            let entries = ["reduce_warps", "reduce_blocks"].map(|n| Entry::blocks(n, 256));
            source(site, "reduce/rows", entries.into())
        },
        launch: rows,
    },
    Kernel {
        name: "reduce.columns",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Whole,
        tactics: |site| tactics(site, false),
        source: |site, _| {
            let [eights, ones] = ["columns_of_8", "columns_of_1"].map(|n| Entry::blocks(n, 256));
            let entries = vec![eights, ones, Entry::threads("reduce_parts")];
            Ok(Body { scratch: true, ..source(site, "reduce/columns", entries)? })
        },
        launch: columns,
    },
];

kiln_codegen::params! {
    /// Reductions of the last axes.
    struct ReduceRowsParams {
        /// Elements of a row.
        count: u32,
        /// Number of rows.
        rows: u32,
    }
}

kiln_codegen::params! {
    /// Reductions of axes before the last ones that are kept.
    struct ReduceColumnsParams {
        /// Elements of a result.
        elements: u32,
        /// Results side by side.
        columns: u32,
        /// Threads side by side, a power of two.
        wide: u32,
        /// The logarithm of that.
        wide_log2: u32,
        /// Parts that a result is summed up in.
        parts: u32,
        /// Elements of a part.
        part: u32,
        /// Blocks side by side.
        side: u32,
        /// Number of results.
        results: u32,
    }
}

/// The reduced axes, if they are neighbours.
fn span(mask: &[bool]) -> Option<Range<usize>> {
    let first = mask.iter().position(|&m| m)?;
    let end = mask.iter().rposition(|&m| m)? + 1;
    mask[first..end].iter().all(|&m| m).then_some(first..end)
}

fn tactics(site: &Site<'_>, rows: bool) -> Result<Vec<Tactic>, BackendError> {
    let op = reduce_op(site)?;
    let t = site.first_dtype();
    if op == ReduceOp::LogSumExp {
        return unsupported("a shifted sum by vectors");
    }
    if t.bits() < 8 || t == DType::Bool {
        return unsupported(format!("reductions of {t} by vectors"));
    }
    let Some(x) = input(site, 0) else { return unsupported("a reduction of nothing") };
    let axes = match input(site, 1) {
        None => None,
        Some(_) => match ints(site, 1) {
            None => return unsupported("reductions by vectors of axes that are not known"),
            known => known,
        },
    };
    let mask = mask(site.op()?.attrs(), axes.as_deref(), x.rank()).map_err(op_error)?;
    let Some(span) = span(&mask) else {
        return unsupported("reductions by vectors of axes that are no neighbours");
    };
    if rows != (span.end == x.rank()) {
        return unsupported(if rows {
            "rows along other than the last axes"
        } else {
            "columns that are rows"
        });
    }
    let more = if rows { 0.0 } else { 1000.0 };
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.4) + more);
    let name = if rows { "reduce.rows" } else { "reduce.columns" };
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

fn source(site: &Site<'_>, file: &'static str, entries: Vec<Entry>) -> Result<Body, BackendError> {
    let (t, from) = (site.out_dtype(0), site.first_dtype());
    let sum = Sum::of(reduce_op(site)?, t, site.target.has("i64"));
    let decoded = site.function("decoded", &[("v", cell(from))], register(from), &load(from, "(&v)", "0"));
    let code = hooks(site, &sum, t) + &format!("typedef {} Cell;\n", cell(from)) + &decoded;
    Ok(Body { inputs: Some(vec![0]), ..Body::of(file, entries).with(code) })
}

/// Results before the reduced axes, reduced elements of each, elements after them.
fn sizes(cx: &Cx<'_>) -> Result<[usize; 3], BackendError> {
    let x = cx.shape(0)?;
    let mask = mask(cx.op()?.attrs(), cx.ints(1)?.as_deref(), x.len()).map_err(op_error)?;
    let lost = || BackendError::Internal("a reduction of other axes than it was built for".into());
    let span = span(&mask).ok_or_else(lost)?;
    let product = |r: &[usize]| r.iter().product();
    Ok([product(&x[..span.start]), product(&x[span.clone()]), product(&x[span.end..])])
}

/// Fewer rows than these get a block each.
const FEW: usize = 2048;

fn rows(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [count, n, _] = sizes(cx)?;
    let w = ReduceRowsParams { count: n, rows: count }.words()?;
    let blocks = n > 4096 || (n > 512 && count < FEW);
    Ok(vec![match blocks {
        true => Launch::map(1, w).on(Grid::Groups(count as u64)),
        false => Launch::map(0, w).on(Grid::Groups(count.div_ceil(8) as u64)),
    }])
}

/// As many blocks keep a large device busy.
const BLOCKS: usize = 264;
/// Elements that a thread of a part has at least.
const LEAST: usize = 4;

fn columns(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [outer, n, columns] = sizes(cx)?;
    let last = cx.out_shape(0)?.last().copied().unwrap_or(1);
    let width = if last.is_multiple_of(8) { 8 } else { 1 };
    let results = outer * columns;
    if results == 0 {
        return Ok(Vec::new());
    }
    let wide = (columns / width).next_power_of_two().min(32);
    let side = (columns / width).div_ceil(wide);
    let high = 256 / wide;
    let parts = (BLOCKS / (outer * side)).clamp(1, (n / (high * LEAST)).max(1));
    let each = n.div_ceil(parts);
    let params = ReduceColumnsParams {
        elements: n,
        columns,
        wide,
        wide_log2: wide.ilog2() as usize,
        parts,
        part: each,
        side,
        results,
    };
    let w = params.words()?;
    let entry = usize::from(width == 1);
    let scratch = if parts > 1 { (parts * results * 8) as u64 } else { 0 };
    let groups = (outer * side * parts) as u64;
    let mut out = vec![Launch::map(entry, w.clone()).on(Grid::Groups(groups)).scratch(scratch)];
    if parts > 1 {
        out.push(Launch::map(2, w).on(Grid::Threads(results as u64)).scratch(scratch));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn reduced_axes_are_neighbours() {
        assert_eq!(span(&[false, true, true, false]), Some(1..3));
        assert_eq!(span(&[true, false, true]), None);
        assert_eq!(span(&[false, false]), None);
    }
}
