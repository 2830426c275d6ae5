//! Reductions of one or two runs of neighbouring axes, read eight elements at a time. Few long rows are divided among blocks, whose sums a
//! second launch merges.

use super::shape::{input, ints, moving, traffic};
use crate::frame::element;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::reduce::{Sum, hooks, reduce_op};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;
use kiln_ops::reduce::mask;

pub mod argreduce;
pub mod scan;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "reduce.rows",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| tactics(site, true),
        source: |site, _| {
            source(site, "reduce/rows", &["rows_of_lanes_8", "rows_of_lanes_1", "rows_of_blocks_8"])
        },
        launch: rows,
    },
    Kernel {
        name: "reduce.columns",
        ops: &["reduce"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| tactics(site, false),
        source: |site, _| {
            let mut body = source(site, "reduce/columns", &["columns_of_8", "columns_of_1"])?;
            body.entries.extend(["short_columns_8", "short_columns_1"].map(Entry::threads));
            Ok(body)
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
        /// Elements of a result.
        elements: u32,
        /// Whether sums go to scratch memory.
        raw: u32,
        /// Lanes of a row, a power of two.
        lanes: u32,
        /// The logarithm of that.
        lanes_log2: u32,
        /// Parts of a row.
        parts: u32,
        /// Elements of a part.
        part: u32,
    }
}

kiln_codegen::params! {
    /// Reductions of axes before the last ones that are kept.
    struct ReduceColumnsParams {
        /// Elements of a column.
        elements: u32,
        /// Columns side by side.
        columns: u32,
        /// Threads side by side, a power of two.
        wide: u32,
        /// The logarithm of that.
        wide_log2: u32,
        /// Parts that a column is summed up in.
        parts: u32,
        /// Elements of a part.
        part: u32,
        /// Blocks side by side.
        side: u32,
        /// Number of columns.
        results: u32,
        /// Whether sums go to scratch memory.
        raw: u32,
    }
}

kiln_codegen::params! {
    /// Sums in scratch memory that are merged. Those of a result have two dimensions: heads, and the parts of each.
    struct ReduceMergeParams {
        /// Elements of a result.
        elements: u32,
        /// Number of results.
        results: u32,
        /// Heads of a result.
        heads: u32,
        /// Results between two heads.
        tails: u32,
        /// Parts of a head.
        parts: u32,
        /// Sums from one part to the next.
        part_step: u32,
        /// Sums from one result to the next.
        tail_step: u32,
    }
}

/// Axes of a reduction in the order of memory: kept, reduced (heads), kept, reduced, kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Runs {
    outer: usize,
    heads: usize,
    tails: usize,
    count: usize,
    columns: usize,
}

impl Runs {
    /// Sizes of the runs of reduced and kept axes; `None` if there are more.
    fn of(x: &[usize], mask: &[bool]) -> Option<Runs> {
        let mut runs = [1; 5];
        let mut at = 0;
        for (&n, &reduced) in x.iter().zip(mask) {
            if reduced != (at % 2 == 1) {
                at += 1;
            }
            *runs.get_mut(at)? *= n;
        }
        // A single run of reduced axes is the inner one.
        let [outer, heads, tails, count, columns] = runs;
        Some(match at < 3 {
            true => Runs { outer, heads: 1, tails: 1, count: heads, columns: tails },
            false => Runs { outer, heads, tails, count, columns },
        })
    }

    fn elements(&self) -> usize {
        self.heads * self.count
    }
}

/// Number of runs of reduced axes.
fn reduced_runs(mask: &[bool]) -> usize {
    let starts = |i: usize| mask[i] && (i == 0 || !mask[i - 1]);
    (0..mask.len()).filter(|&i| starts(i)).count()
}

fn tactics(site: &Site<'_>, rows: bool) -> Result<Vec<Tactic>, BackendError> {
    let t = site.first_dtype();
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
    if !(1..=2).contains(&reduced_runs(&mask)) {
        return unsupported("reductions by vectors of no axes, or of three that are no neighbours");
    }
    if rows != mask.last().is_some_and(|&last| last) {
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

/// Threads of a block.
const THREADS: usize = 256;

/// Entry points of a file, and those of merges behind them.
fn source(site: &Site<'_>, file: &'static str, entries: &[&'static str]) -> Result<Body, BackendError> {
    let (t, from) = (site.out_dtype(0), site.first_dtype());
    let sum = Sum::of(reduce_op(site)?, t, site.target.has("i64"));
    let near = site.constant("NEAR", "bool", t.is_float() && t.bits() == 16);
    let code = hooks(site, &sum, t) + &element("Cell", "wide", from) + &near;
    let block = |name: &'static str| Entry::blocks(name, THREADS as u32);
    let mut all: Vec<Entry> = entries.iter().map(|n| block(n)).collect();
    all.extend([Entry::threads("merge_by_thread"), block("merge_by_warp"), block("merge_by_block")]);
    Ok(Body { inputs: Some(vec![0]), scratch: true, ..Body::of(file, all).with(code) })
}

fn runs(cx: &Cx<'_>) -> Result<Runs, BackendError> {
    let x = cx.shape(0)?;
    let mask = mask(cx.op()?.attrs(), cx.ints(1)?.as_deref(), x.len()).map_err(op_error)?;
    let lost = || BackendError::Internal("a reduction of other axes than it was built for".into());
    Runs::of(&x, &mask).ok_or_else(lost)
}

/// Merges of sums in scratch memory, by the entry points behind `entries` others.
fn merged(
    r: &Runs,
    entries: usize,
    [parts, part_step, tail_step]: [usize; 3],
) -> Result<Launch, BackendError> {
    let tails = r.tails * r.columns;
    let results = r.outer * tails;
    let params = ReduceMergeParams {
        elements: r.elements(),
        results,
        heads: r.heads,
        tails,
        parts,
        part_step,
        tail_step,
    };
    let sums = r.heads * parts;
    let (entry, grid) = match results {
        n if n >= MANY || sums <= 16 => (entries, Grid::Threads(results as u64)),
        ..=BLOCKS if sums > THREADS / 2 => (entries + 2, Grid::Groups(results as u64)),
        _ => (entries + 1, Grid::Groups(results.div_ceil(THREADS / 32) as u64)),
    };
    Ok(Launch::map(entry, params.words()?).on(grid))
}

/// Launches of sums, if there are any, and of their merges.
fn both(sums: Launch, merges: Launch, count: usize, scratch: u64) -> Vec<Launch> {
    let sums = (count > 0).then_some(sums);
    sums.into_iter().chain([merges]).map(|l| l.scratch(scratch)).collect()
}

/// Results that keep a large device busy with a thread each.
const MANY: usize = 8192;
/// Rows that are left to a warp where there are so many.
const ROWS: usize = 2048;
/// Blocks that keep a large device busy.
const BLOCKS: usize = 792;
/// Elements of a vector.
const WIDTH: usize = 8;

fn rows(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let r = runs(cx)?;
    let (rows, count) = (r.outer * r.heads * r.tails, r.count);
    if r.outer * r.tails == 0 {
        return Ok(Vec::new());
    }
    let mut p =
        ReduceRowsParams { count, rows, elements: r.elements(), parts: 1, part: count, ..Default::default() };
    let vectors = count.is_multiple_of(WIDTH) || count >= 64;
    let few = count > 4096 || (count > 1024 && rows < ROWS);
    if few {
        p.parts = BLOCKS.div_ceil(rows.max(1)).min(count.div_ceil(THREADS * WIDTH * 2)).max(1);
        p.part = count.div_ceil(p.parts).next_multiple_of(WIDTH);
        p.parts = count.div_ceil(p.part);
    }
    let raw = r.heads != 1 || p.parts > 1;
    p.raw = usize::from(raw);
    let each = if vectors { count.div_ceil(2 * WIDTH) } else { count.div_ceil(4) };
    p.lanes = each.max(1).next_power_of_two().min(32);
    p.lanes_log2 = p.lanes.ilog2() as usize;
    let (parts, lanes) = (p.parts, p.lanes);
    let (entry, blocks) = match few {
        true => (2, rows * parts),
        false => (usize::from(!vectors), rows.div_ceil(THREADS / lanes)),
    };
    let first = Launch::map(entry, p.words()?).on(Grid::Groups(blocks as u64));
    if !raw {
        return Ok(vec![first]);
    }
    let scratch = (rows * parts * 8) as u64;
    let second = merged(&r, 3, [parts, 1, parts])?;
    Ok(both(first, second, rows, scratch))
}

/// Elements that a thread of a part has at least.
const LEAST: usize = 4;
/// Elements of a column that has one thread: always, and where there are many such threads.
const SHORT: usize = 16;
const SHORT_OF_MANY: usize = 128;
/// The entry points of short columns, behind three merges.
const SHORT_COLUMNS: usize = 5;

fn columns(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let r = runs(cx)?;
    let (outer, columns) = (r.outer * r.heads * r.tails, r.columns);
    if r.outer * r.tails * r.columns == 0 {
        return Ok(Vec::new());
    }
    let last = cx.out_shape(0)?.last().copied().unwrap_or(1);
    let width =
        if columns.is_multiple_of(WIDTH) && (!cx.fused || last.is_multiple_of(WIDTH)) { WIDTH } else { 1 };
    let results = outer * columns;
    let threads = results / width;
    let short = r.count <= if threads >= MANY { SHORT_OF_MANY } else { SHORT };
    let wide = (columns / width).next_power_of_two().min(32);
    let side = (columns / width).div_ceil(wide);
    let high = THREADS / wide;
    let most = (r.count / (high * LEAST)).max(1);
    let parts = if short { 1 } else { (BLOCKS / (outer * side).max(1)).clamp(1, most) };
    let each = r.count.div_ceil(parts);
    let raw = r.heads != 1 || parts > 1;
    let params = ReduceColumnsParams {
        elements: r.count,
        columns,
        wide,
        wide_log2: wide.ilog2() as usize,
        parts,
        part: each,
        side,
        results,
        raw: usize::from(raw),
    };
    let one = usize::from(width == 1);
    let (entry, grid) = match short {
        true => (SHORT_COLUMNS + one, Grid::Threads(threads as u64)),
        false => (one, Grid::Groups((outer * side * parts) as u64)),
    };
    let first = Launch::map(entry, params.words()?).on(grid);
    if !raw {
        return Ok(vec![first]);
    }
    let scratch = (parts * results * 8) as u64;
    let second = merged(&r, 2, [parts, results, 1])?;
    Ok(both(first, second, outer, scratch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_runs() {
        let of = |x: &[usize], mask: &[bool]| {
            let r = Runs::of(x, mask)?;
            Some([r.outer, r.heads, r.tails, r.count, r.columns])
        };
        assert_eq!(of(&[2, 3, 5, 7], &[false, true, true, false]), Some([2, 1, 1, 15, 7]));
        assert_eq!(of(&[2, 3, 5], &[false, true, true]), Some([2, 1, 1, 15, 1]));
        assert_eq!(of(&[2, 3], &[true, true]), Some([1, 1, 1, 6, 1]));
        assert_eq!(of(&[2, 3, 5], &[true, false, true]), Some([1, 2, 3, 5, 1]));
        assert_eq!(of(&[2, 3, 5, 7], &[true, false, true, false]), Some([1, 2, 3, 5, 7]));
        assert_eq!(of(&[2, 3, 5, 7, 11], &[true, false, true, false, true]), None);
        assert_eq!(reduced_runs(&[true, false, true, true]), 2);
        assert_eq!(reduced_runs(&[false, false]), 0);
    }
}
