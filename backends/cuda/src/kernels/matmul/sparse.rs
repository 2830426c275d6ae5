//! Matrix products by packed 2:4 sparse weights, by `mma.sp`.

use crate::frame::cell;
use crate::kernels::constants::{alias, constants};
use crate::kernels::cost::Product;
use crate::kernels::mma::sparse::{check_native, instruction, kind};
use crate::kernels::mma::{Kind, Tile};
use crate::kernels::shape::input;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::sparse::SparseParams;
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch};

kiln_codegen::params! {
    /// A product of rows by packed weights, by tiles of `mma.sp`.
    struct SparseMmaParams {
        /// Rows of the result.
        rows: u32,
        /// Columns of the result.
        columns: u32,
        /// Elements of a row.
        depth: u32,
        /// Chunks of 128 bytes of the depth.
        chunks: u32,
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    Kind::of(site)?;
    let kind = kind(site)?;
    check_native(site, kind)?;
    check_words(site, kind)?;
    tile.check_sparse(site, kind)?;
    let estimate_ns = Product::of(site).map(|p| tile.estimate_sparse(&p, site.target, kind));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Refuses places that are packed for elements of another size.
pub fn check_words(site: &Site<'_>, kind: Kind) -> Result<(), BackendError> {
    let words = input(site, 2).and_then(|t| t.dims.last()?.as_const());
    match words == Some(64 / kind.size as i64) {
        true => Ok(()),
        false => {
            unsupported(format!("places of 2:4 sparse weights that are not packed for {} bytes", kind.size))
        }
    }
}

/// Whether rows are known to be whole vectors of 16 bytes.
fn whole(site: &Site<'_>) -> bool {
    let row = input(site, 0).and_then(|t| Some(t.dims.last()?.as_const()? * i64::from(t.dtype.bits())));
    row.is_some_and(|bits| bits % 128 == 0)
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = kind(site)?;
    let of = |i| site.dtype(i).map_or("u8", cell);
    let code = tile.with_instruction(&instruction(kind), (false, false))
        + &constants(&[], &[("WHOLE", whole(site))])
        + &alias("CellX", of(0))
        + &alias("CellW", of(1));
    let entries = vec![Entry::blocks("sparse_gemm", tile.threads() as u32)];
    let shared = tile.shared_sparse(kind) as u32;
    Ok(Body { shared, ..Body::of("matmul/sparse_mma", entries) }.with(code))
}

/// The launch of a tile a block.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let SparseParams { n: columns, depth, chunks, .. } = SparseParams::of(cx)?;
    let x = cx.shape(0)?;
    let rows: usize = x.iter().take(x.len().saturating_sub(1)).product();
    let params = SparseMmaParams { rows, columns, depth, chunks };
    let blocks = rows.div_ceil(tile.m) * columns.div_ceil(tile.n);
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}
