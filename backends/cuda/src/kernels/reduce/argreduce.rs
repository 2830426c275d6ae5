//! The position of the greatest or least element of lines, by several threads a line.

use crate::frame::{cell, load};
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::reduce::{argreduce::order, lines};
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "argreduce.lines",
    ops: &["argmax", "argmin"],
    epilogue: true,
    views: Views::Framed,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// The best elements of rows.
    struct ArgRowsParams {
        /// Elements of a row.
        count: u32,
        /// Number of rows.
        rows: u32,
        /// Parts of a row.
        parts: u32,
        /// Elements of a part.
        part: u32,
    }
}

kiln_codegen::params! {
    /// The best elements of columns.
    struct ArgColumnsParams {
        /// Elements of a column.
        count: u32,
        /// Columns side by side.
        inner: u32,
        /// Threads side by side, a power of two.
        wide: u32,
        /// The logarithm of that.
        wide_log2: u32,
        /// Parts of a column.
        parts: u32,
        /// Elements of a part.
        part: u32,
        /// Blocks side by side.
        side: u32,
        /// Number of results.
        results: u32,
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if site.first_dtype().bits() < 8 {
        return unsupported(format!("lines of {}, which shares bytes", site.first_dtype()));
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.3));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("argreduce.lines") }])
}

const QUADS: usize = 0;
const WARPS: usize = 1;
const ROW_BLOCKS: usize = 2;
const ROW_PARTS: usize = 3;
const COLUMNS: [usize; 2] = [4, 5];
const COLUMN_PARTS: usize = 6;
const WHOLE: [usize; 2] = [7, 8];

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let t = site.first_dtype();
    let last = site.op()?.attrs().bool("select_last").map_err(op_error)?;
    let code = order(site)?
        + &site.alias("Given", t)
        + &format!("typedef {} Cell;\n", cell(t))
        + &site.function("decoded", &[("v", cell(t))], register(t), &load(t, "(&v)", "0"))
        + &site.constant("LAST", "bool", last)
        + &site.constant("VECTORS", "bool", site.moves.is_empty());
    let block = |name| Entry::blocks(name, 256);
    let entries = vec![
        block("argreduce_quads"),
        block("argreduce_warps"),
        block("argreduce_blocks"),
        block("argreduce_parts"),
        block("arg_columns_of_8"),
        block("arg_columns_of_1"),
        Entry::threads("arg_column_parts"),
        Entry::threads("whole_columns_of_8"),
        Entry::threads("whole_columns_of_1"),
    ];
    Ok(Body { scratch: true, ..Body::of("reduce/argreduce_lines", entries).with(code) })
}

/// As many blocks keep a large device busy.
const BLOCKS: usize = 264;
/// Fewer rows than these get a block each.
const FEW: usize = 8192;
/// Elements of a row from which on it has a warp.
const SHORT: usize = 256;
/// Elements of a row from which on it has a block.
const LONG: usize = 1024;
/// Elements of a row's part at least.
const PART: usize = 8192;
/// Elements of a column that a thread has, however few columns there are.
const FLAT: usize = 8;
/// As many threads keep a large device busy.
const THREADS: usize = 1 << 17;
/// Elements of a column that a thread has at least.
const LEAST: usize = 8;

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    let (line, results) = lines(&x, axis);
    // Eight results that are stored together share a row of the last dimension where an expression follows.
    let even = !cx.fused || cx.out_shape(0)?.last().is_some_and(|n| n.is_multiple_of(8));
    match line.inner {
        _ if results == 0 => Ok(Vec::new()),
        1 => rows(line.count, results),
        inner => columns(line.count, inner, results, even),
    }
}

/// Warps, or blocks where rows are long or too few to keep the device busy.
fn rows(count: usize, rows: usize) -> Result<Vec<Launch>, BackendError> {
    let parts = (BLOCKS / rows).clamp(1, count.div_ceil(PART));
    let part = count.div_ceil(parts);
    let parts = count.div_ceil(part);
    let w = ArgRowsParams { count, rows, parts, part }.words()?;
    let warps = Grid::Groups(rows.div_ceil(8) as u64);
    if count < SHORT {
        return Ok(vec![Launch::map(QUADS, w).on(Grid::Groups(rows.div_ceil(64) as u64))]);
    }
    if count < LONG || (count < 4 * LONG && rows > FEW) {
        return Ok(vec![Launch::map(WARPS, w).on(warps)]);
    }
    let scratch = if parts > 1 { (rows * parts * 16) as u64 } else { 0 };
    let mut out =
        vec![Launch::map(ROW_BLOCKS, w.clone()).on(Grid::Groups((rows * parts) as u64)).scratch(scratch)];
    if parts > 1 {
        out.push(Launch::map(ROW_PARTS, w).on(warps).scratch(scratch));
    }
    Ok(out)
}

fn columns(count: usize, inner: usize, results: usize, even: bool) -> Result<Vec<Launch>, BackendError> {
    let width = if even && inner.is_multiple_of(8) { 8 } else { 1 };
    let outer = results / inner;
    let wide = (inner / width).next_power_of_two().min(32);
    let side = (inner / width).div_ceil(wide);
    let high = 256 / wide;
    let parts = (BLOCKS / (outer * side)).clamp(1, (count / (high * LEAST)).max(1));
    let part = count.div_ceil(parts);
    let parts = count.div_ceil(part);
    let wide_log2 = wide.ilog2() as usize;
    let w = ArgColumnsParams { count, inner, wide, wide_log2, parts, part, side, results }.words()?;
    let scratch = if parts > 1 { (parts * results * 16) as u64 } else { 0 };
    let kind = usize::from(width == 1);
    if count <= FLAT || results / width >= THREADS {
        return Ok(vec![Launch::map(WHOLE[kind], w).on(Grid::Threads((results / width) as u64))]);
    }
    let groups = Grid::Groups((outer * side * parts) as u64);
    let mut out = vec![Launch::map(COLUMNS[kind], w.clone()).on(groups).scratch(scratch)];
    if parts > 1 {
        out.push(Launch::map(COLUMN_PARTS, w).on(Grid::Threads(results as u64)).scratch(scratch));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn parts_cover_lines_and_none_is_empty() {
        for count in [1, 7, 1023, 1024, 8192, 8193, 100_003, 1 << 24] {
            for results in [1, 2, 60, 300, 5000] {
                let w = rows(count, results).unwrap()[0].words.clone();
                let (parts, part) = (w[2] as usize, w[3] as usize);
                assert!(parts * part >= count && (parts - 1) * part < count, "{count} {results}");
                for inner in [2, 8, 24, 100].into_iter().filter(|i| results % i == 0) {
                    let w = columns(count, inner, results, true).unwrap()[0].words.clone();
                    let (parts, part) = (w[4] as usize, w[5] as usize);
                    assert!(parts * part >= count && (parts - 1) * part < count, "{count} {inner} {results}");
                }
            }
        }
    }
}
