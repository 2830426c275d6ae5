//! Convolutions of images with channels last and few windows by `wgmma`.

use super::Geometry;
use super::wgmma::{image, params, windows};
use crate::kernels::wgmma::few::{COLUMNS, PART_BYTES, Tile, along, chunk_of, weights};
use crate::kernels::wgmma::operands::element_bytes;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Launch};

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    let (kind, channels) = windows(site)?;
    if !(channels * kind.size).is_multiple_of(PART_BYTES) {
        return unsupported("channels that are no multiple of 128 bytes");
    }
    tile.tactic(site, name, kind, depth(site))
}

/// The depth of a convolution: taps by channels.
fn depth(site: &Site<'_>) -> Option<usize> {
    weights(site)?.get(1..)?.iter().try_fold(1usize, |p, d| p.checked_mul((*d)?))
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    tile.body(site, "conv/few", false, depth(site))
}

/// The launch of a tile a block, or a cluster.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let g = Geometry::of(cx)?;
    let (&[_, kh, kw, channels], &[images, oh, ow, outputs]) = (&k[..], &y[..]) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    let (rows, depth, size) = (images * oh * ow, kh * kw * channels, element_bytes(cx));
    let image = image(&x, &y, &g, size, tile.rows)?;
    let chunk = chunk_of(tile, depth * size / PART_BYTES)?;
    let lines = along(1, size, depth, outputs, [COLUMNS, chunk]);
    Ok(tile.launches(rows, outputs, params(cx, &g, rows)?.words()?, vec![image, lines]))
}
