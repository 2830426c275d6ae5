//! Norms of rows along the last axes, whole rows in registers.

pub mod groups;

use super::shape::{from_end, input, moving, product, traffic};
use crate::frame::{cell, load};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::norm::affine;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{DType, Dim};
use kiln_ops::norm::layer_norm::LAYER_NORM;
use kiln_ops::norm::layer_norm::RMS_NORM;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "layer_norm.rows",
        ops: &["layer_norm"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics,
        source: |site, _| source(site, "layer_norm_rows"),
        launch,
    },
    Kernel {
        name: "rms_norm.rows",
        ops: &["rms_norm"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics,
        source: |site, _| source(site, "rms_norm_rows"),
        launch,
    },
];

kiln_codegen::params! {
    /// Rows along the last axes.
    struct NormRowParams {
        /// Elements of a row.
        count: u32,
        /// Number of rows.
        rows: u32,
        /// Summand of the mean of squares.
        epsilon: f32,
        /// Whether scale and bias are constant.
        constant: u32,
    }
}

/// Who has a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Neighbouring threads of one row.
    threads: usize,
    /// Chunks of a thread.
    chunks: usize,
    /// Elements of a chunk.
    width: usize,
}

/// Threads and chunks, for chunks of eight elements and of one; the smallest that holds a row is taken.
const EIGHTS: &[(usize, usize)] = &[
    (4, 1),
    (8, 1),
    (16, 1),
    (32, 1),
    (32, 2),
    (32, 3),
    (32, 4),
    (128, 2),
    (256, 2),
    (256, 4),
    (512, 4),
    (1024, 4),
];
const ONES: &[(usize, usize)] = &[
    (4, 2),
    (8, 2),
    (16, 2),
    (32, 2),
    (32, 4),
    (32, 8),
    (128, 4),
    (256, 4),
    (256, 8),
    (512, 8),
    (512, 16),
    (1024, 16),
];

impl Tile {
    /// For rows of `n` elements in tensors whose last dimension is `last`.
    fn of(n: usize, last: usize) -> Option<Tile> {
        let (list, width) = if last.is_multiple_of(8) { (EIGHTS, 8) } else { (ONES, 1) };
        let &(threads, chunks) = list.iter().find(|(t, k)| t * k * width >= n)?;
        (n > 0).then_some(Tile { threads, chunks, width })
    }

    fn block(self) -> usize {
        self.threads.max(64)
    }

    fn params(self) -> [(String, i64); 3] {
        [("threads", self.threads), ("chunks", self.chunks), ("width", self.width)]
            .map(|(name, n)| (name.to_owned(), n as i64))
    }
}

/// The first axis of a row, if rows lie along the last axes: of `dims`, by the attribute "axis".
fn first_axis(dims: &[Dim], axis: i64, one: bool) -> Option<usize> {
    let axis = normalize_axis(axis, dims.len(), "axis").ok()?;
    let rest = dims.get(axis + 1..)?;
    (!one || rest.iter().all(|d| d.is(1))).then_some(axis)
}

/// Elements of a row, and the last dimension.
fn row(site: &Site<'_>) -> Option<(usize, usize)> {
    let (x, attrs) = (input(site, 0)?, site.op().ok()?.attrs());
    let one = !matches!(site.op().ok()?.id(), LAYER_NORM | RMS_NORM);
    let axis = first_axis(&x.dims, attrs.int("axis").ok()?, one)?;
    Some((product(&x.dims[axis..])?, from_end(x, 0)?))
}

/// Whether a scale or bias has an element for each of a row, in order.
fn along_row(site: &Site<'_>, i: usize) -> Option<bool> {
    let Some(own) = input(site, i) else { return Some(true) };
    let (x, attrs) = (input(site, 0)?, site.op().ok()?.attrs());
    let axis = first_axis(&x.dims, attrs.int("axis").ok()?, false)?;
    let lead = own.dims.iter().take_while(|d| d.is(1)).count();
    let own = &own.dims[lead..];
    let row = &x.dims[axis..];
    let skipped = row.iter().take_while(|d| d.is(1)).count();
    Some(own == &row[skipped..])
}

fn tile(site: &Site<'_>) -> Result<Tile, BackendError> {
    let Some((n, last)) = row(site) else {
        return unsupported("rows in registers that are not known or not along the last axes");
    };
    let fits = [1, 2].iter().all(|&i| along_row(site, i) == Some(true));
    match Tile::of(n, last) {
        _ if site.op()?.attrs().int("axis").is_err() || !fits => {
            unsupported("rows in registers with a scale or bias that is not that of a row")
        }
        _ if site.first_dtype().bits() < 8 || !site.first_dtype().is_float() => {
            unsupported(format!("rows of {} in registers", site.first_dtype()))
        }
        None => unsupported(format!("rows of {n} elements in registers")),
        Some(t) => Ok(t),
    }
}

/// One tactic, whose parameters say which tile has a row.
pub fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let tile = tile(site)?;
    let name = format!("{}.rows", site.op()?.name());
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.2));
    Ok(vec![Tactic { estimate_ns, params: tile.params().into(), ..Tactic::plain(&name) }])
}

/// A type in memory and the function that decodes it.
fn decoded(site: &Site<'_>, i: usize, name: &str, of: &str) -> String {
    let t = site.dtype(i).unwrap_or(DType::F32);
    let value = load(t, "(&v)", "0");
    format!("typedef {} {of};\n", cell(t)) + &site.function(name, &[("v", cell(t))], "f32", &value)
}

/// The body of a kernel of rows in registers. An `early` one waits by itself for the kernel in front.
pub fn row_body(
    site: &Site<'_>,
    file: &'static str,
    entry: &'static str,
    early: bool,
) -> Result<Body, BackendError> {
    let tile = tile(site)?;
    let sizes = [("T", tile.threads), ("CHUNKS", tile.chunks), ("V", tile.width)];
    let constants: String =
        sizes.iter().map(|(name, n)| site.constant(name, "u32", format_args!("{n}u"))).collect();
    let entry = Entry::Blocks(Blocks { early, ..Blocks::of(entry, tile.block() as u32) });
    let body = Body::of(file, vec![entry]);
    Ok(body.with(constants + &decoded(site, 0, "decoded", "Cell")))
}

fn source(site: &Site<'_>, entry: &'static str) -> Result<Body, BackendError> {
    let operands = decoded(site, 1, "scale", "Scale") + &decoded(site, 2, "bias", "Bias");
    Ok(row_body(site, "norm/rows", entry, true)?.with(affine(site) + &operands))
}

/// A tile for each row: of `words(elements, rows)`.
pub fn launch_rows(
    cx: &Cx<'_>,
    words: impl FnOnce(usize, usize) -> Result<Vec<u32>, BackendError>,
) -> Result<Vec<Launch>, BackendError> {
    let (x, attrs) = (cx.shape(0)?, cx.op()?.attrs());
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, x.len(), "axis").map_err(op_error)?;
    let n: usize = x[axis..].iter().product();
    let Some(tile) = Tile::of(n, x.last().copied().unwrap_or(1)) else { return Ok(Vec::new()) };
    let rows: usize = x[..axis].iter().product();
    let groups = rows.div_ceil(tile.block() / tile.threads);
    Ok(vec![Launch::map(0, words(n, rows)?).on(Grid::Groups(groups as u64))])
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let epsilon = cx.op()?.attrs().float("epsilon").map_err(op_error)? as f32;
    let constant = (1..=2).filter(|&i| cx.has(i)).map(|i| cx.constant(i)).min().unwrap_or(1);
    launch_rows(cx, |count, rows| NormRowParams { count, rows, epsilon, constant }.words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_hold_rows_and_leave_no_thread_without_a_warp() {
        for n in 1..=16_384 {
            for last in [n, 8, 7] {
                let t = Tile::of(n, last).unwrap_or_else(|| panic!("{n}"));
                assert!(
                    t.threads * t.chunks * t.width >= n && t.block().is_multiple_of(t.threads),
                    "{n}: {t:?}"
                );
            }
        }
        assert_eq!(Tile::of(0, 8), None);
        assert_eq!(Tile::of(768, 768), Some(Tile { threads: 32, chunks: 3, width: 8 }));
    }
}
