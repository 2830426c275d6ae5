//! Gated products: the tiles of products by `wgmma`, in which a thread has the sums of a gate and of its value.

use super::normed;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::Site;

/// Refuses normalized rows that stages do not hold.
fn check(site: &Site<'_>) -> Result<(), BackendError> {
    if crate::kernels::wgmma::moments::is(site) { normed::check(site) } else { Ok(()) }
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
    pub use crate::kernels::matmul::wgmma::{launch, side_results, source};
    use crate::kernels::wgmma::Tile;

    /// The tactic of a row of the table.
    pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
        check(site)?;
        crate::kernels::matmul::wgmma::tactics(site, name, tile)
    }
}
