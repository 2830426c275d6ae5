//! Determinants by elimination in scratch memory.

use crate::site::Cx;
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::BackendError;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of(
    "det",
    &["det"],
    |_, _| Ok(Body { scratch: true, ..Body::of("matmul/det", vec![Entry::threads("det")]) }),
    launch,
)
.framed()];

crate::params! {
    /// Determinants.
    pub struct DetParams {
        /// Rows of a matrix, and columns.
        rows: u32,
    }
}

/// The parameters, how many matrices there are, and their elements.
pub fn matrices(cx: &Cx<'_>) -> Result<(DetParams, usize, usize), BackendError> {
    let x = cx.shape(0)?;
    let count: usize = cx.out_shape(0)?.iter().product();
    Ok((DetParams { rows: x.last().copied().unwrap_or(0) }, count, x.iter().product()))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, count, elements) = matrices(cx)?;
    let launch = Launch::map(0, params.words()?).on(Grid::Threads(count as u64));
    Ok(vec![launch.scratch(elements as u64 * 4)])
}
