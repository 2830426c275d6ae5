//! Running sums and products of lines, by several threads a line.

use crate::frame::{cell, load};
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::reduce::{cumulative::hooks, lines};
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::infer::normalize_axis;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "cumulative.lines",
    ops: &["cumulative"],
    epilogue: true,
    views: Views::Framed,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// Scans of rows.
    struct ScanRowsParams {
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
    /// Scans of columns.
    struct ScanColumnsParams {
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
        /// Number of columns.
        results: u32,
        /// Whether scratch memory has the sums of the parts in front.
        given: u32,
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if site.first_dtype().bits() < 8 {
        return unsupported(format!("lines of {}, which shares bytes", site.first_dtype()));
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.5));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("cumulative.lines") }])
}

const ROWS: usize = 0;
const SUM_PARTS: usize = 1;
const PARTS: usize = 2;
const SUM_COLUMNS: [usize; 2] = [3, 4];
const COLUMNS: [usize; 2] = [5, 6];
const TOTALS: usize = 7;

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let t = site.first_dtype();
    let code = hooks(site)?
        + &format!("typedef {} Cell;\n", cell(t))
        + &site.function("decoded", &[("v", cell(t))], register(t), &load(t, "(&v)", "0"))
        + &site.constant("VECTORS", "bool", site.moves.is_empty());
    let block = |name| Entry::blocks(name, 256);
    let entries = vec![
        block("scan_warps"),
        block("sum_part").silent(),
        block("scan_part"),
        block("sum_columns_of_8").silent(),
        block("sum_columns_of_1").silent(),
        block("scan_columns_of_8"),
        block("scan_columns_of_1"),
        Entry::threads("scan_totals").silent(),
    ];
    Ok(Body { scratch: true, ..Body::of("reduce/scan_lines", entries).with(code) })
}

/// Elements of a row from which on it has a block.
const LONG: usize = 1024;
/// Elements of a row's part at least.
const PART: usize = 8192;
/// As many blocks keep a large device busy.
const BLOCKS: usize = 264;
/// Elements of a column that a thread has at least.
const LEAST: usize = 4;

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let axis = normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let (line, results) = lines(&x, axis);
    if line.count == 0 || results == 0 {
        return Ok(Vec::new());
    }
    // Eight results that are stored together share a row of the last dimension where an expression follows.
    let whole = !cx.fused || x.last().is_some_and(|n| n.is_multiple_of(8));
    match line.inner {
        1 => rows(line.count, results),
        inner => columns(line.count, inner, results, whole),
    }
}

/// Warps, or blocks where rows are long or too few to keep the device busy.
fn rows(count: usize, rows: usize) -> Result<Vec<Launch>, BackendError> {
    let parts = (2 * BLOCKS / rows).clamp(1, count.div_ceil(PART));
    // Parts begin at multiples of eight.
    let part = count.div_ceil(parts).next_multiple_of(8);
    let parts = count.div_ceil(part);
    let w = ScanRowsParams { count, rows, parts, part }.words()?;
    if count < LONG {
        return Ok(vec![Launch::map(ROWS, w).on(Grid::Groups(rows.div_ceil(8) as u64))]);
    }
    let groups = Grid::Groups((rows * parts) as u64);
    let scan = Launch::map(PARTS, w.clone()).on(groups);
    if parts == 1 {
        return Ok(vec![scan]);
    }
    let bytes = (rows * parts * 8) as u64;
    Ok(vec![Launch::map(SUM_PARTS, w).on(groups).scratch(bytes), scan.scratch(bytes)])
}

fn columns(count: usize, inner: usize, results: usize, whole: bool) -> Result<Vec<Launch>, BackendError> {
    let outer = results / inner;
    let eights = whole && inner.is_multiple_of(8) && outer * inner.div_ceil(256) >= BLOCKS / 2;
    let width = if eights { 8 } else { 1 };
    let wide = (inner / width).next_power_of_two().min(32);
    let side = (inner / width).div_ceil(wide);
    let high = 256 / wide;
    let parts = (BLOCKS / (outer * side)).clamp(1, (count / (high * LEAST)).max(1));
    let part = count.div_ceil(parts);
    let parts = count.div_ceil(part);
    let wide_log2 = wide.ilog2() as usize;
    let given = usize::from(parts > 1);
    let w = ScanColumnsParams { count, inner, wide, wide_log2, parts, part, side, results, given }.words()?;
    let groups = Grid::Groups((outer * side * parts) as u64);
    let entry = usize::from(width == 1);
    let scan = Launch::map(COLUMNS[entry], w.clone()).on(groups);
    if parts == 1 {
        return Ok(vec![scan]);
    }
    let bytes = (parts * results * 8) as u64;
    let all = [
        Launch::map(SUM_COLUMNS[entry], w.clone()).on(groups),
        Launch::map(TOTALS, w).on(Grid::Threads(results as u64)),
        scan,
    ];
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn parts_cover_lines_and_none_is_empty() {
        let covers = |count: usize, parts: u32, part: u32| {
            let (parts, part) = (parts as usize, part as usize);
            parts * part >= count && (parts - 1) * part < count
        };
        for count in [1, 7, 1023, 1024, 8192, 8193, 100_003, 1 << 24] {
            for results in [1, 2, 60, 300, 5000] {
                let w = rows(count, results).unwrap()[0].words.clone();
                assert!(covers(count, w[2], w[3]) && w[3].is_multiple_of(8), "{count} {results}");
                for inner in [2, 8, 24, 100].into_iter().filter(|i| results % i == 0) {
                    let w = columns(count, inner, results, true).unwrap()[0].words.clone();
                    assert!(covers(count, w[4], w[5]), "{count} {inner} {results}");
                }
            }
        }
    }
}
