//! Products of very few rows by weights along the depth, without tensor cores: a warp a few columns.

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

/// Warps of a block.
const WARPS: usize = 8;
/// The most rows: lanes multiply each of them by themselves.
const MOST_ROWS: usize = 4;
/// Vectors of weights that a lane has on their way.
const VECTORS: usize = 16;

/// Columns of a warp.
struct Outputs(usize);

/// A table of kernels, `"tactic" columns of a warp;`.
macro_rules! rows_kernels {
    ($($name:literal $outputs:literal;)*) => {
        /// The kernels.
        pub const KERNELS: &[Kernel] = &[$({
            const OUTPUTS: &Outputs = &Outputs($outputs);
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
    "matmul.rows_1" 1;
    "matmul.rows_2" 2;
    "matmul.rows_4" 4;
}

/// Rows, columns and depth; refuses products of more rows than a few, and weights that are not whole vectors along the depth.
fn sizes(site: &Site<'_>) -> Result<[usize; 3], BackendError> {
    let t = site.first_dtype();
    let floats = matches!(t, DType::F16 | DType::BF16 | DType::F32) && site.dtype(1) == Some(t);
    let attrs = site.op()?.attrs();
    let flag = |name| attrs.bool(name).map_err(op_error);
    if !floats || flag("trans_a")? || !flag("trans_b")? {
        return unsupported("single rows of other elements than floats, or across the depth");
    }
    let weights = input(site, 1).filter(|w| w.rank() == 2).and_then(|w| w.static_dims());
    let results = output(site, 0).and_then(|y| y.static_volume());
    let (Some(&[columns, depth]), Some(results)) = (weights.as_deref(), results) else {
        return unsupported("single rows by weights of unknown shape");
    };
    if columns * depth == 0 || !(depth * t.bits() as usize).is_multiple_of(128) {
        return unsupported("single rows that are not whole vectors of 16 bytes");
    }
    let rows = results as usize / columns;
    if !(1..=MOST_ROWS).contains(&rows) || site.rank(0).is_none_or(|r| r < 2) {
        return unsupported(format!("{rows} rows without tensor cores"));
    }
    Ok([rows, columns, depth])
}

fn tactics(site: &Site<'_>, name: &str, outputs: &Outputs) -> Result<Vec<Tactic>, BackendError> {
    /// Nanoseconds of a launch in a chain.
    const CHAINED_NS: f64 = 1500.0;
    /// Clocks of a warp around its sums, and of a multiprocessor for a product of a lane.
    const AROUND: f64 = 900.0;
    const PRODUCT: f64 = 0.022;
    /// Reached part of the memory's nominal bandwidth.
    const MEMORY: f64 = 0.8;
    let [rows, columns, depth] = sizes(site)?;
    let device = Device::of(site.target);
    let bytes = (columns * depth) as f64 * f64::from(site.first_dtype().bits()) / 8.0;
    let work = (columns * depth) as f64 * (1.0 + rows as f64) / device.sm_count * PRODUCT;
    let warps = columns.div_ceil(outputs.0) as f64 / device.sm_count;
    // Fewer warps than there is room for leave memory idle.
    let idle = (16.0 / warps).clamp(1.0, 3.0);
    let busy = (AROUND * (warps / 16.0).ceil() + work) / device.ghz;
    let estimate = CHAINED_NS + busy.max(bytes * idle / (device.bandwidth * MEMORY));
    Ok(vec![Tactic { estimate_ns: Some(estimate), ..Tactic::plain(name) }])
}

/// Returns the body: the kernel file, constants and the entry point.
fn source(site: &Site<'_>, outputs: &Outputs) -> Result<Body, BackendError> {
    let [rows, ..] = sizes(site)?;
    let numbers =
        [("WARPS", WARPS), ("ROWS", rows), ("OUTPUTS", outputs.0), ("AHEAD", VECTORS / outputs.0 / 2)];
    let code = constants(&numbers, &[]) + &element("Cell", "wide", site.first_dtype());
    let entry = Blocks { early: true, ..Blocks::of("rows", (WARPS * 32) as u32) };
    Ok(Body::of("matmul/rows", vec![Entry::Blocks(entry)]).with(code))
}

/// The launch of a few columns a warp.
fn launch(cx: &Cx<'_>, outputs: &Outputs) -> Result<Vec<Launch>, BackendError> {
    let &[columns, depth] = &cx.shape(1)?[..] else { return unsupported("single rows by vectors") };
    let params = RowsMatmulParams { columns, depth, constant: cx.constant(1) };
    let blocks = columns.div_ceil(outputs.0 * WARPS);
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}
