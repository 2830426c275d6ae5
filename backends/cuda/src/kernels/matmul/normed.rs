//! Products of normalized rows: the tiles of products by `wgmma`, which add up the moments of rows beside them.

use super::across;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Site, unsupported};

/// Refuses rows whose moments stages do not hold: those of other elements than 16-bit floats, and those that end within a stage.
pub fn check(site: &Site<'_>) -> Result<(), BackendError> {
    /// Elements of 128 bytes.
    const STEP: usize = 64;
    let depth = crate::kernels::matmul::few::depth(site, across(site)?.1);
    if site.first_dtype().bits() != 16 || depth.is_none_or(|k| k == 0 || !k.is_multiple_of(STEP)) {
        return unsupported("moments of rows that are not 16-bit floats of whole stages");
    }
    Ok(())
}

/// Tiles of few rows.
pub mod few {
    use super::*;
    pub use crate::kernels::matmul::few::{launch, side_results, source};
    use crate::kernels::wgmma::few::Tile;

    /// The tactic of a row of the table.
    pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
        check(site)?;
        crate::kernels::matmul::few::tactics(site, name, tile)
    }
}

/// Tiles of many rows.
pub mod wgmma {
    use super::*;
    pub use crate::kernels::matmul::wgmma::{launch, source};
    use crate::kernels::wgmma::Tile;

    /// Whether a kernel of the table takes a side result.
    pub const fn side_results(_: &Tile) -> bool {
        false
    }

    /// The tactic of a row of the table.
    pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
        check(site)?;
        crate::kernels::matmul::wgmma::tactics(site, name, tile)
    }
}
