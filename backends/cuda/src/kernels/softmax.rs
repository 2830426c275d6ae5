//! Softmax of rows along the last axes, whole rows in registers; of longer rows, divided among blocks; and along other axes, by
//! neighbouring columns.

use super::norm::{launch_rows, row_body, tactics};
use super::shape::{from_end, input, moving, product, traffic};
use crate::frame::element;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::softmax::log;
use kiln_codegen::{Blocks, Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::softmax::LOG_SOFTMAX;

pub const KERNELS: &[Kernel] = &[
    kernel("softmax.rows", &["softmax"]),
    kernel("log_softmax.rows", &["log_softmax"]),
    long("softmax.parts", &["softmax"]),
    long("log_softmax.parts", &["log_softmax"]),
    across("softmax.columns", &["softmax"]),
    across("log_softmax.columns", &["log_softmax"]),
];

const fn kernel(name: &'static str, ops: &'static [&'static str]) -> Kernel {
    Kernel {
        name,
        ops,
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics,
        source: |site, _| {
            let of = site.op()?.is(LOG_SOFTMAX);
            Ok(row_body(site, "softmax/rows", "softmax_rows", false)?.with(log(site, of)))
        },
        launch: |cx| launch_rows(cx, |count, rows| SoftmaxRowParams { count, rows }.words()),
    }
}

kiln_codegen::params! {
    /// Rows along the last axes.
    struct SoftmaxRowParams {
        /// Elements of a row.
        count: u32,
        /// Number of rows.
        rows: u32,
    }
}

kiln_codegen::params! {
    /// Rows along the last axes, divided into parts.
    struct SoftmaxPartsParams {
        /// Elements of a row.
        count: u32,
        /// Parts of a row, a block each.
        parts: u32,
        /// Elements of a part.
        part: u32,
    }
}

kiln_codegen::params! {
    /// Lines along an axis in front of others.
    struct SoftmaxColumnsParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Vectors beside each other.
        columns: u32,
        /// Blocks beside each other.
        side: u32,
        /// Threads beside each other.
        wide: u32,
        /// Threads of a line.
        high: u32,
        /// Loads of registers that a line takes.
        tiles: u32,
    }
}

/// Threads of a block.
const THREADS: usize = 256;
/// Blocks that a large device runs at once.
const BLOCKS: usize = 528;
/// Rows that keep it busy with a block each.
const MANY: usize = 256;
/// Elements of a row that are worth several blocks.
const LONG: usize = 16_384;
/// Elements of a vector.
const WIDTH: usize = 8;
/// Rows that fit into registers of fewer threads are left to the kernels of rows.
const LEAST: usize = 1024;

const fn long(name: &'static str, ops: &'static [&'static str]) -> Kernel {
    Kernel {
        name,
        ops,
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| along(site, true),
        source: |site, _| {
            let written = ["whole_row", "apply_to_row"];
            let body = body(site, "softmax/parts", (&written, &["part_of_row"]), (THREADS, None))?;
            Ok(Body { scratch: true, ..body })
        },
        launch: parts,
    }
}

const fn across(name: &'static str, ops: &'static [&'static str]) -> Kernel {
    Kernel {
        name,
        ops,
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| along(site, false),
        source: |site, tactic| {
            let code = site.constant("CHUNKS", "u32", format_args!("{}u", chunks(site.first_dtype())));
            let entries = ["softmax_columns_8", "softmax_columns_1"];
            // Registers suffice for 512 threads of a multiprocessor.
            let threads = column_threads(tactic);
            let beside = (COLUMN_THREADS[0] / threads) as u32;
            Ok(body(site, "softmax/columns", (&entries, &[]), (threads, Some(beside)))?.with(code))
        },
        launch: columns,
    }
}

/// Threads of blocks of columns: many have more of a line at once, few leave room for other blocks beside them.
const COLUMN_THREADS: [usize; 2] = [512, 256];
/// Elements of lines that many threads are better at.
const MANY_ELEMENTS: usize = 32;
/// The parameter of a tactic of columns.
const THREADS_PARAM: &str = "threads";

fn column_threads(tactic: &Tactic) -> usize {
    let asked = tactic.params.get(THREADS_PARAM).and_then(|&n| usize::try_from(n).ok());
    asked.filter(|n| COLUMN_THREADS.contains(n)).unwrap_or(COLUMN_THREADS[0])
}

/// The tactics where the axis is the last (followed by dimensions of 1 alone), or where it is not.
fn along(site: &Site<'_>, last: bool) -> Result<Vec<Tactic>, BackendError> {
    let (t, op) = (site.first_dtype(), site.op()?);
    if t.bits() < 8 || !t.is_float() {
        return unsupported(format!("vectors of {t}"));
    }
    let Some(x) = input(site, 0) else { return unsupported("softmax of nothing") };
    let axis = op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, x.rank(), "axis").ok());
    let Some(axis) = axis else { return unsupported("softmax along an axis that is not there") };
    let ones = x.dims[axis + 1..].iter().all(|d| d.is(1));
    if ones != last {
        return unsupported("lines along another axis");
    }
    if last && product(&x.dims[axis..]).is_some_and(|n| n < LEAST) && from_end(x, 0).is_some() {
        return unsupported("short rows divided into parts");
    }
    let name = format!("{}.{}", op.name(), if last { "parts" } else { "columns" });
    let estimate = |more: f64| traffic(site).map(|bytes| moving(site.target, bytes, 1.6 + more) + 500.0);
    if last {
        return Ok(vec![Tactic { estimate_ns: estimate(0.0), ..Tactic::plain(&name) }]);
    }
    let long = product(&x.dims[axis..=axis]).is_none_or(|n| n >= MANY_ELEMENTS);
    let tactic = |threads: usize| {
        let more = if long == (threads == COLUMN_THREADS[0]) { 0.0 } else { 0.1 };
        let plain = Tactic { estimate_ns: estimate(more), ..Tactic::plain(&name) };
        plain.with(THREADS_PARAM, threads as i64)
    };
    Ok(COLUMN_THREADS.map(tactic).into())
}

fn body(
    site: &Site<'_>,
    file: &'static str,
    (written, silent): (&[&'static str], &[&'static str]),
    (threads, beside): (usize, Option<u32>),
) -> Result<Body, BackendError> {
    let block = |name: &&'static str| Entry::Blocks(Blocks { beside, ..Blocks::of(name, threads as u32) });
    let entries = written.iter().map(block).chain(silent.iter().map(|n| block(n).silent())).collect();
    let code = element("Cell", "wide", site.first_dtype())
        + &log(site, site.op()?.is(LOG_SOFTMAX))
        + &site.constant("NEAR", "bool", site.out_dtype(0).bits() == 16);
    Ok(Body::of(file, entries).with(code))
}

/// Vectors of a thread along a line, 32 registers.
fn chunks(t: DType) -> usize {
    if t.bits() > 16 { 4 } else { 8 }
}

fn parts(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    let (rows, count): (usize, usize) = (x[..axis].iter().product(), x[axis..].iter().product());
    if rows == 0 || count == 0 {
        return Ok(Vec::new());
    }
    let least = THREADS * WIDTH;
    let parts = (BLOCKS / rows).min(count.div_ceil(least)).max(1);
    let part = count.div_ceil(parts).next_multiple_of(WIDTH);
    let parts = count.div_ceil(part);
    let w = SoftmaxPartsParams { count, parts, part }.words()?;
    if rows >= MANY || count <= LONG {
        return Ok(vec![Launch::map(0, w).on(Grid::Groups(rows as u64))]);
    }
    let scratch = (rows * parts * 8) as u64;
    let first = Launch::map(2, w.clone()).on(Grid::Groups((rows * parts) as u64));
    let second = Launch::map(1, w).on(Grid::Groups((rows * parts) as u64));
    Ok(vec![first.scratch(scratch), second.scratch(scratch)])
}

fn columns(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    let product = |d: &[usize]| d.iter().product::<usize>();
    let (outer, count, inner) = (product(&x[..axis]), x[axis], product(&x[axis + 1..]));
    if outer * count * inner == 0 {
        return Ok(Vec::new());
    }
    let vectors = inner.is_multiple_of(WIDTH);
    let (width, least) = if vectors { (WIDTH, 8) } else { (1, 32) };
    let Some(fact) = cx.inputs.first().copied().flatten() else { return Ok(Vec::new()) };
    let chunks = chunks(fact.ty.dtype);
    let columns = inner / width;
    let need = count.div_ceil(chunks);
    let threads = column_threads(cx.tactic);
    let wide = (threads / need.min(threads)).max(least).min(columns);
    let high = (threads / wide).min(need);
    let side = columns.div_ceil(wide);
    let tiles = count.div_ceil(chunks * high);
    let params = SoftmaxColumnsParams { count, inner, columns, side, wide, high, tiles };
    let entry = usize::from(!vectors);
    Ok(vec![Launch::map(entry, params.words()?).on(Grid::Groups((outer * side) as u64))])
}
