//! Matrix products by packed 2:4 sparse weights, by `wgmma.mma_async.sp`.

use super::sparse::check_words;
use super::wgmma::matrices;
use crate::kernels::cost::Product;
use crate::kernels::mma::Kind;
use crate::kernels::mma::sparse::kind;
use crate::kernels::shape::input;
use crate::kernels::wgmma::operands::element_bytes;
use crate::kernels::wgmma::sparse::Tile;
use crate::kernels::wgmma::{STAGE_BYTES, has_wgmma};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::sparse::SparseParams;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Launch};

kiln_codegen::params! {
    /// A product of rows by packed weights, by tiles of `wgmma.mma_async.sp`.
    struct SparseWgmmaParams {
        /// Rows of the result.
        rows: u32,
        /// Columns of the result.
        columns: u32,
        /// Chunks of 128 bytes of the depth.
        chunks: u32,
        /// Results.
        results: u32,
        /// Whether the weights are constant.
        constant: u32,
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    has_wgmma(site.target)?;
    Kind::of(site)?;
    let kind = kind(site)?;
    check_words(site, kind)?;
    let depth = input(site, 0).and_then(|t| t.dims.last()?.as_const()).unwrap_or(0);
    if depth <= 0 || depth * kind.size as i64 % 16 != 0 {
        return unsupported("TMA of rows that are not known to be multiples of 16 bytes");
    }
    tile.check(site, kind)?;
    let estimate_ns = Product::of(site).map(|p| tile.estimate(&p, site.target, kind));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    Ok(tile.body(site, kind(site)?))
}

/// The product, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let SparseParams { n: columns, depth, half, chunks, .. } = SparseParams::of(cx)?;
    let x = cx.shape(0)?;
    let rows: usize = x.iter().take(x.len().saturating_sub(1)).product();
    let size = element_bytes(cx);
    let step = STAGE_BYTES / size;
    let maps = vec![
        matrices(0, size, [depth, rows, 1], [step, tile.rows, 1]),
        matrices(1, size, [half, columns, 1], [step, tile.columns(), 1]),
    ];
    let results = rows * columns;
    let params =
        SparseWgmmaParams { rows, columns, chunks, results, constant: cx.constant(1).min(cx.constant(2)) };
    Ok(tile.launches(rows, columns, params.words()?, maps))
}
