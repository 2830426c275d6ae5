//! Products of a depth that is too small for tensor cores: threads multiply the elements of columns, which stay in registers, by rows.

use super::across;
use crate::frame::element;
use crate::kernels::constants::constants;
use crate::kernels::cost::{Device, Product};
use crate::kernels::shape::{input, moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::product;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;

/// The name of the tactic.
const NAME: &str = "matmul.shallow";
/// Threads of a block.
const THREADS: usize = 256;
/// The greatest depth.
const MOST: usize = 16;
/// The most rows of a thread, as long as there are this many blocks.
const ROWS: usize = 16;
const BLOCKS: usize = 528;
/// Columns of a thread: neighbours, where a row has whole vectors of them, several, or one.
const COLUMNS: [usize; 3] = [8, 4, 1];

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: NAME,
    ops: &["matmul"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// Products of a small depth, which is a constant. Offsets and strides count elements.
    struct ShallowMatmulParams {
        /// Rows of a result.
        rows: u32,
        /// Columns of a result.
        columns: u32,
        /// Threads of a row.
        wide: u32,
        /// Rows of a block that are computed at a time.
        high: u32,
        /// Rows of a thread.
        each: u32,
        /// Blocks that share the columns.
        across: u32,
        /// Blocks that share the rows.
        down: u32,
        /// Elements of A from one row to the next.
        a_row: u32,
        /// Elements of A from one column to the next.
        a_column: u32,
        /// Elements of B from one row to the next.
        b_row: u32,
        /// Elements of B from one column to the next.
        b_column: u32,
        /// Dimensions of the batch.
        batch: [u32],
        /// Elements of A from one to the next of each dimension of the batch.
        a_batch: [u32],
        /// Elements of B from one to the next of each dimension of the batch.
        b_batch: [u32],
    }
}

/// The depth of a site's product; refuses those that are not known to be small.
fn depth(site: &Site<'_>) -> Result<usize, BackendError> {
    let t = site.first_dtype();
    if !matches!(t, DType::F16 | DType::BF16 | DType::F32) || site.dtype(1) != Some(t) {
        return unsupported("products of a small depth of other elements than floats");
    }
    let dims = |i: usize| input(site, i).map(|t| t.dims.clone()).filter(|d| d.len() > 1);
    let (Some(a), Some(_)) = (dims(0), dims(1)) else { return unsupported("products of vectors") };
    let along = a.len() - if across(site)?.0 { 2 } else { 1 };
    match a[along].as_const().and_then(|k| usize::try_from(k).ok()) {
        Some(k @ 1..=MOST) => Ok(k),
        _ => unsupported(format!("a depth that is not known to be 1 to {MOST}")),
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    /// Clocks of a multiprocessor for a result of 32 threads: beside its products, and for each of them.
    const CLOCKS: [f64; 2] = [1.5, 0.4];
    let depth = depth(site)?;
    let device = Device::of(site.target);
    let busy = Product::of(site).map(|p| {
        let [m, n, _, count] = p.size;
        let wide = n.clamp(1.0, THREADS as f64);
        let filled = wide * (THREADS as f64 / wide).floor() / THREADS as f64;
        let clocks = CLOCKS[0] + CLOCKS[1] * depth as f64;
        m * n * count / 32.0 / filled * clocks / device.sm_count / device.ghz
    });
    let estimate_ns = busy.zip(traffic(site)).map(|(busy, bytes)| busy.max(moving(site.target, bytes, 1.3)));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(NAME) }])
}

/// Returns the body: the kernel file, constants and the entry point.
fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let code = constants(&[("DEPTH", depth(site)?)], &[]) + &element("Cell", "wide", site.first_dtype());
    let entries = ["shallow_runs", "shallow_4", "shallow_1"].map(|name| Entry::blocks(name, THREADS as u32));
    Ok(Body::of("matmul/shallow", entries.into()).with(code))
}

/// The launch: a block has some columns, and several times as many rows as its threads cover at a time.
fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = product(cx)?;
    if p.m * p.n * p.batch == 0 {
        return Ok(Vec::new());
    }
    let entry = match p.n {
        n if n.is_multiple_of(COLUMNS[0]) => 0,
        n if n >= THREADS => 1,
        _ => 2,
    };
    let threads = p.n.div_ceil(COLUMNS[entry]);
    let wide = threads.min(THREADS);
    let (high, across) = (THREADS / wide, threads.div_ceil(wide));
    let each = (p.m * across * p.batch / (high * BLOCKS)).clamp(1, ROWS);
    let down = p.m.div_ceil(high * each);
    let of = p.params;
    let params = ShallowMatmulParams {
        rows: p.m,
        columns: p.n,
        wide,
        high,
        each,
        across,
        down,
        a_row: of.a_row,
        a_column: of.a_column,
        b_row: of.b_row,
        b_column: of.b_column,
        batch: of.batch,
        a_batch: of.a_batch,
        b_batch: of.b_batch,
    };
    let blocks = across * down * p.batch;
    Ok(vec![Launch::map(entry, params.words()?).on(Grid::Groups(blocks as u64))])
}
