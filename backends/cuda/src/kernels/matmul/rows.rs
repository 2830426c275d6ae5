//! Products of very few rows by weights, without tensor cores: a warp a few columns that lie along the depth, or a block some that
//! lie across it.

use crate::frame::element;
use crate::kernels::constants::constants;
use crate::kernels::cost::Device;
use crate::kernels::shape::{input, output};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;

kiln_codegen::params! {
    /// A product of very few rows.
    struct RowsMatmulParams {
        /// Columns of the result.
        columns: u32,
        /// Products that are summed up.
        depth: u32,
        /// Whether the weights are constant.
        constant: u32,
    }
}

/// Warps of a block, whose columns lie along the depth or across it.
const WARPS: [usize; 2] = [8, 16];
/// The most rows: lanes multiply each of them by themselves.
const MOST_ROWS: usize = 4;
/// Vectors of weights that a lane has on their way.
const VECTORS: usize = 8;

/// Columns of a warp that lie along the depth, or of a block that lie across it.
struct Outputs {
    count: usize,
    across: bool,
}

/// A table of kernels, `"tactic" columns, across;`.
macro_rules! rows_kernels {
    ($($name:literal $count:literal, $across:literal;)*) => {
        /// The kernels.
        pub const KERNELS: &[Kernel] = &[$({
            const OUTPUTS: &Outputs = &Outputs { count: $count, across: $across };
            Kernel {
                name: $name,
                ops: &["matmul"],
                epilogue: true,
                views: Views::Whole,
                side_results: false,
                tactics: |site| tactics(site, $name, OUTPUTS),
                source: |site, _| source(site, OUTPUTS),
                launch: |cx| launch(cx, OUTPUTS),
            }
        },)*];
    };
}

rows_kernels! {
    "matmul.rows_1" 1, false;
    "matmul.rows_2" 2, false;
    "matmul.rows_4" 4, false;
    "matmul.rows_16_across" 16, true;
    "matmul.rows_32_across" 32, true;
    "matmul.rows_64_across" 64, true;
}

impl Outputs {
    /// Columns of a block.
    fn of_block(&self) -> usize {
        if self.across { self.count } else { self.count * WARPS[0] }
    }
}

/// Rows, columns and depth; refuses products of more rows than a few, and weights whose lines are not whole vectors.
fn sizes(site: &Site<'_>, across: bool) -> Result<[usize; 3], BackendError> {
    let t = site.first_dtype();
    let floats = matches!(t, DType::F16 | DType::BF16 | DType::F32) && site.dtype(1) == Some(t);
    let attrs = site.op()?.attrs();
    let flag = |name| attrs.bool(name).map_err(op_error);
    if !floats || flag("trans_a")? || flag("trans_b")? == across {
        return unsupported("single rows of other elements than floats, or by weights that lie otherwise");
    }
    let weights = input(site, 1).filter(|w| w.rank() == 2).and_then(|w| w.static_dims());
    let results = output(site, 0).and_then(|y| y.static_volume());
    let (Some(&[lines, line]), Some(results)) = (weights.as_deref(), results) else {
        return unsupported("single rows by weights of unknown shape");
    };
    let (columns, depth) = if across { (line, lines) } else { (lines, line) };
    if lines * line == 0 || !(line * t.bits() as usize).is_multiple_of(128) {
        return unsupported("single rows that are not whole vectors of 16 bytes");
    }
    let rows = results / columns;
    if !(1..=MOST_ROWS).contains(&rows) || site.rank(0).is_none_or(|r| r < 2) {
        return unsupported(format!("{rows} rows without tensor cores"));
    }
    Ok([rows, columns, depth])
}

fn tactics(site: &Site<'_>, name: &str, outputs: &Outputs) -> Result<Vec<Tactic>, BackendError> {
    /// Nanoseconds of a launch in a chain.
    const CHAINED_NS: f64 = 1200.0;
    /// Clocks of a warp around its sums, and of a multiprocessor for a product of a lane.
    const AROUND: f64 = 900.0;
    const PRODUCT: f64 = 0.022;
    /// Reached part of the memory's nominal bandwidth.
    const MEMORY: f64 = 0.9;
    let [rows, columns, depth] = sizes(site, outputs.across)?;
    let device = Device::of(site.target);
    let bytes = (columns * depth) as f64 * f64::from(site.first_dtype().bits()) / 8.0;
    let work = (columns * depth) as f64 * (1.0 + rows as f64) / device.sm_count * PRODUCT;
    let own = WARPS[usize::from(outputs.across)];
    let warps = (columns.div_ceil(outputs.of_block()) * own) as f64 / device.sm_count;
    // Fewer warps than there is room for leave memory idle.
    let idle = (16.0 / warps).clamp(1.0, 3.0);
    let busy = (AROUND * (warps / 16.0).ceil() + work) / device.ghz;
    let estimate = CHAINED_NS + busy.max(bytes * idle / (device.bandwidth * MEMORY));
    Ok(vec![Tactic { estimate_ns: Some(estimate), ..Tactic::plain(name) }])
}

/// Returns the body: the kernel file, constants and the entry point.
fn source(site: &Site<'_>, outputs: &Outputs) -> Result<Body, BackendError> {
    let [rows, ..] = sizes(site, outputs.across)?;
    let (name, warps, ahead) = match outputs.across {
        true => ("rows_across", WARPS[1], VECTORS),
        false => ("rows", WARPS[0], VECTORS / outputs.count),
    };
    let numbers = [("WARPS", warps), ("ROWS", rows), ("OUTPUTS", outputs.count), ("AHEAD", ahead)];
    let code = constants(&numbers, &[]) + &element("Cell", "wide", site.first_dtype());
    let entry = Blocks { early: true, ..Blocks::of(name, (warps * 32) as u32) };
    Ok(Body::of("matmul/rows", vec![Entry::Blocks(entry)]).with(code))
}

/// The launch of blocks of columns.
fn launch(cx: &Cx<'_>, outputs: &Outputs) -> Result<Vec<Launch>, BackendError> {
    let &[lines, line] = &cx.shape(1)?[..] else { return unsupported("single rows by vectors") };
    let (columns, depth) = if outputs.across { (line, lines) } else { (lines, line) };
    let params = RowsMatmulParams { columns, depth, constant: cx.constant(1) };
    let blocks = columns.div_ceil(outputs.of_block());
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}
