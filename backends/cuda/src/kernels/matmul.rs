//! Matrix products on tensor cores.

pub mod codes;
pub mod codes_floats;
pub mod codes_rows;
pub mod codes_wgmma;
pub mod few;
pub mod gated;
pub mod mma;
pub mod normed;
pub mod rows;
pub mod shallow;
pub mod small;
pub mod sparse;
pub mod sparse_wgmma;
pub mod wgmma;

use kiln_backend::BackendError;
use kiln_codegen::site::{Site, op_error};
use kiln_ops::matmul::gated::GATED_MATMUL;
use kiln_ops::matmul::normed::NORM_MATMUL;

/// Whether A and B are laid out across the depth; a vector is laid out along it.
pub fn across(site: &Site<'_>) -> Result<(bool, bool), BackendError> {
    let attrs = site.op()?.attrs();
    let trans = |name| attrs.bool(name).map_err(op_error);
    let matrix = |i| site.rank(i).is_some_and(|r| r > 1);
    if [NORM_MATMUL, GATED_MATMUL].iter().any(|op| site.op().is_ok_and(|own| own.is(*op))) {
        return Ok((false, !trans("trans_b")?));
    }
    Ok((matrix(0) && trans("trans_a")?, matrix(1) && !trans("trans_b")?))
}
