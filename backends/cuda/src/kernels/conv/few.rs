//! Convolutions of images with channels last and few windows by `wgmma`.

use super::Geometry;
use super::wgmma::{image, params, windows};
use crate::kernels::wgmma::STAGE_BYTES;
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
    let (kind, channels) = windows(site, 4..5)?;
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
    let (images, g, bytes) = (cx.shape(0)?[0], Geometry::of(cx)?, element_bytes(cx));
    let params = params(cx, &g, images)?;
    let (rows, depth) = (params.windows, params.taps * g.channels);
    let image = image(images, &g, bytes, tile.rows, STAGE_BYTES);
    let chunk = chunk_of(tile, depth * bytes / PART_BYTES)?;
    let lines = along(1, bytes, depth, g.outputs, [COLUMNS, chunk]);
    Ok(tile.launches(rows, g.outputs, params.words()?, vec![image, lines]))
}
