//! Matrix products with few rows by `wgmma`.

use super::across;
use crate::kernels::mma::Kind;
use crate::kernels::wgmma::few::{COLUMNS, PART_BYTES, Tile, along, chunk_of, weights};
use crate::kernels::wgmma::has_wgmma;
use crate::kernels::wgmma::operands::element_bytes;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Launch, Map};

kiln_codegen::params! {
    /// A matrix product with few rows.
    struct FewMatmulParams {
        /// Rows of the result, of all batches.
        rows: u32,
        /// Columns of the result.
        columns: u32,
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
    let kind = Kind::of(site)?;
    let (across_a, across_b) = across(site)?;
    if across_a || (across_b && kind.size != 2) {
        return unsupported("wgmma of operands that lie across the depth");
    }
    if site.rank(1) != Some(2) || site.rank(0).is_none_or(|r| r < 2) {
        return unsupported("few rows by other weights than a matrix");
    }
    let columns = weights(site).and_then(|d| *d.get(usize::from(across_b))?);
    if across_b && columns.is_none_or(|n| n == 0 || !(n * kind.size).is_multiple_of(16)) {
        return unsupported("TMA of rows that are not known to be multiples of 16 bytes");
    }
    tile.tactic(site, name, kind, depth(site, across_b))
}

/// The depth of a product by a matrix.
pub fn depth(site: &Site<'_>, across_b: bool) -> Option<usize> {
    let dims = weights(site)?;
    *dims.get(usize::from(!across_b))?
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let across_b = across(site)?.1;
    tile.body(site, "matmul/few", across_b, depth(site, across_b))
}

/// The launch of a tile a block, or a cluster.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (a, b) = (cx.shape(0)?, cx.shape(1)?);
    let trans = cx.op()?.attrs().bool("trans_b").map_err(op_error)?;
    let (&[.., k], &[r, c]) = (&a[..], &b[..]) else { return unsupported("few rows of vectors") };
    let n = if trans { r } else { c };
    let rows = a.iter().product::<usize>() / k.max(1);
    let size = element_bytes(cx);
    let step = PART_BYTES / size;
    let chunk = chunk_of(tile, k / step)?;
    let of_b = match trans {
        true => along(1, size, k, n, [COLUMNS, chunk]),
        false => Map {
            input: 1,
            size,
            dims: [n, k, 1].map(|d| d as u64).to_vec(),
            strides: [n, n * k].map(|d| d as u64).to_vec(),
            block: [COLUMNS, chunk * step, 1].map(|d| d as u32).to_vec(),
            windows: None,
            scratch: false,
        },
    };
    let params = FewMatmulParams { rows, columns: n, constant: cx.constant(1) };
    Ok(tile.launches(rows, n, params.words()?, vec![along(0, size, k, rows, [tile.rows, chunk]), of_b]))
}
