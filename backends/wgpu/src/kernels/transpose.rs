//! Transposes whose rows are columns of the input: by tiles of workgroup memory, or rows of few elements put between each other.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::views::coalesce;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{DType, Op};
use kiln_ops::util::strides;

const NAME: &str = "transpose.tiled";

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: NAME,
        ops: &["transpose"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics,
        source: |site, _| {
            let body = Body::of("transpose/tiled", vec![Entry::blocks("transpose_tiled", 256)]);
            Ok(body.with(site.alias("Value", site.out_dtype(0))))
        },
        launch,
    },
    Kernel {
        name: INTERLEAVED,
        ops: &["transpose"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: interleaved_tactics,
        source: |site, _| {
            let body = Body::of("transpose/interleaved", vec![Entry::threads("transpose_interleaved")]);
            Ok(body.with(site.alias("Value", site.out_dtype(0))))
        },
        launch: interleaved_launch,
    },
];

const INTERLEAVED: &str = "transpose.interleaved";

kiln_codegen::params! {
    /// Transposes that put rows of the input between each other.
    struct TransposeInterleavedParams {
        /// Elements of a row of the result: two or four.
        across: u32,
        /// Rows of the result, which are neighbours in the input.
        down: u32,
        /// Elements of the input from one element of a row to the next.
        step: u32,
        /// The other dimensions.
        dims: [u32],
        /// Strides of the input along them.
        strides: [u32],
        /// Strides of the result along them.
        out_strides: [u32],
    }
}

kiln_codegen::params! {
    /// Transposes by tiles.
    struct TransposeTiledParams {
        /// Elements of a row of the result.
        across: u32,
        /// Elements of a row of the input, which are a column of the result.
        down: u32,
        /// Elements of the input from one element of a row of the result to the next.
        step: u32,
        /// Elements of the result from one element of a row of the input to the next.
        pitch: u32,
        /// The other dimensions.
        dims: [u32],
        /// Strides of the input along them.
        strides: [u32],
        /// Strides of the result along them.
        out_strides: [u32],
    }
}

/// Elements of a tile, along the rows of the result and of the input, and those of workgroup memory that it takes.
const TILE: (usize, usize) = (64, 32);
const ELEMENTS: usize = 64 * 33;

/// Dimensions of a transpose's result, and strides of the input along them, without those that are one with the next.
fn moved(op: &Op, x: &[usize]) -> Result<(Vec<usize>, Vec<usize>), BackendError> {
    let perm = op.attrs().ints("perm").map_err(op_error)?;
    let axis = |&p: &i64| normalize_axis(p, x.len(), "perm").map_err(op_error);
    let order: Vec<usize> = match perm.is_empty() {
        true => (0..x.len()).rev().collect(),
        false => perm.iter().map(axis).collect::<Result<_, _>>()?,
    };
    let own = strides(x);
    let out: Vec<usize> = order.iter().map(|&p| x[p]).collect();
    let by: Vec<i64> = order.iter().map(|&p| own[p] as i64).collect();
    let (dims, by) = coalesce(&out, &by);
    Ok((dims, by.into_iter().map(|s| s as usize).collect()))
}

/// The parameters of a transpose whose rows are other than those of the input, and are whole fours.
fn tiles(op: &Op, x: &[usize]) -> Result<TransposeTiledParams, BackendError> {
    let (mut dims, mut by) = moved(op, x)?;
    let mut to = strides(&dims);
    let column = by.iter().position(|&s| s == 1).filter(|&d| d + 1 < dims.len());
    let (Some(column), Some(across), Some(step)) = (column, dims.pop(), by.pop()) else {
        return unsupported("a transpose that keeps rows, by tiles");
    };
    to.pop();
    if !across.is_multiple_of(4) {
        return unsupported(format!("rows of {across} elements by fours"));
    }
    let (down, pitch) = (dims.remove(column), to.remove(column));
    by.remove(column);
    Ok(TransposeTiledParams { across, down, step, pitch, dims, strides: by, out_strides: to })
}

/// The parameters of a transpose of short rows, which neighbours of the input are in.
fn interleaved(op: &Op, x: &[usize]) -> Result<TransposeInterleavedParams, BackendError> {
    let (mut dims, mut by) = moved(op, x)?;
    let mut to = strides(&dims);
    let last = (dims.pop(), by.pop(), to.pop());
    let (Some(across @ (2 | 4)), Some(step), _) = last else {
        return unsupported("rows of other than two or four elements between each other");
    };
    let (Some(down), Some(1), _) = (dims.pop(), by.pop(), to.pop()) else {
        return unsupported("rows whose elements are no neighbours between each other");
    };
    Ok(TransposeInterleavedParams { across, down, step, dims, strides: by, out_strides: to })
}

fn interleaved_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let x = site.input(0).and_then(|v| site.graph.ty(v).static_dims());
    let Some(x) = x else { return unsupported("rows of unknown shapes between each other") };
    if site.out_dtype(0).bits() < 8 {
        return unsupported("elements that share bytes");
    }
    interleaved(site.op()?, &x)?;
    Ok(vec![Tactic::plain(INTERLEAVED)])
}

fn interleaved_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = interleaved(cx.op()?, &cx.shape(0)?)?;
    let fours = p.down.div_ceil(4) * p.dims.iter().product::<usize>();
    Ok(vec![Launch::map(0, p.words()?).on(Grid::Threads(fours as u64))])
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let x = site.input(0).and_then(|v| site.graph.ty(v).static_dims());
    let Some(x) = x else { return unsupported("tiles of unknown shapes") };
    let number = |name| site.target.numbers.get(name).map_or(0, |&n| n as usize);
    let bytes = ELEMENTS * if site.out_dtype(0).bits() > 32 { 8 } else { 4 };
    // NVIDIA's driver loses truth values of neighbours that workgroup memory holds.
    if site.out_dtype(0) == DType::Bool {
        return unsupported("tiles of truth values");
    }
    if number("workgroup_threads") < 256 || number("shared_memory") < bytes || site.out_dtype(0).bits() < 8 {
        return unsupported("tiles that are larger than workgroups, or of elements that share bytes");
    }
    let p = tiles(site.op()?, &x)?;
    if p.across < 16 || p.down < 8 {
        return unsupported(format!("tiles for {} by {} elements", p.across, p.down));
    }
    let volume = x.iter().product::<usize>() as f64;
    let each = if site.target.has("software") { 4.0 } else { 0.002 };
    Ok(vec![Tactic { estimate_ns: Some(2000.0 + volume * each), ..Tactic::plain(NAME) }])
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = tiles(cx.op()?, &cx.shape(0)?)?;
    let groups = p.across.div_ceil(TILE.0) * p.down.div_ceil(TILE.1) * p.dims.iter().product::<usize>();
    Ok(vec![Launch::map(0, p.words()?).on(Grid::Groups(groups as u64))])
}
