//! Products by packed 2:4 sparse weights, one thread an element.

use crate::long::{continued, long_sum};
use crate::scalar::zero;
use crate::site::{Cx, Site};
use crate::{Body, Kernel, Launch};
use kiln_backend::BackendError;

/// The kernels.
pub const KERNELS: &[Kernel] =
    &[Kernel::of("matmul_sparse.naive", &["matmul_sparse"], |site, _| Ok(source(site)), launch).framed()];

crate::params! {
    /// A product of rows by packed weights.
    pub struct SparseParams {
        /// Columns of the result: rows of the weights.
        n: u32,
        /// Elements of a row.
        depth: u32,
        /// Values of a row of the weights.
        half: u32,
        /// Chunks of 128 bytes of the depth, whose places lie together.
        chunks: u32,
        /// Words of the places of 16 rows of a chunk: 32, or 64 for elements of 8 bits.
        words: u32,
    }
}

impl SparseParams {
    /// The sizes of a launch's product.
    pub fn of(cx: &Cx<'_>) -> Result<SparseParams, BackendError> {
        let (a, values, places) = (cx.shape(0)?, cx.shape(1)?, cx.shape(2)?);
        let at = |shape: &[usize], i: usize| shape.get(i).copied().unwrap_or(0);
        Ok(SparseParams {
            n: at(&values, 0),
            depth: a.last().copied().unwrap_or(0),
            half: at(&values, 1),
            chunks: at(&places, 1),
            words: at(&places, 2),
        })
    }
}

fn source(site: &Site<'_>) -> Body {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t) + &site.constant("ZERO", "Value", zero(t));
    long_sum(site, "matmul/sparse", ("sparse_product", "sparse_sum"), t).with(code)
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let params = SparseParams::of(cx)?;
    let half = params.half;
    continued(cx, params.words()?, half, 1)
}
