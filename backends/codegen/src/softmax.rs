//! Softmax, its logarithm, hardmax, and softmax of rows of unequal lengths.

use crate::reduce::{LineParams, lines};
use crate::site::{Cx, Site};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::BackendError;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("softmax", &["softmax"], |s, _| Ok(blocks(s, false)), along_axis).framed(),
    Kernel::of("log_softmax", &["log_softmax"], |s, _| Ok(blocks(s, true)), along_axis).framed(),
    Kernel::of(
        "hardmax",
        &["hardmax"],
        |_, _| Ok(Body::of("softmax/hardmax", vec![Entry::threads("hardmax")])),
        |cx| {
            let (params, count) = axis_lines(cx)?;
            Ok(vec![Launch::map(0, params.words()?).on(Grid::Threads(count as u64))])
        },
    )
    .framed(),
    Kernel::of(
        "ragged_softmax",
        &["ragged_softmax"],
        |_, _| Ok(Body::of("softmax/ragged_softmax", vec![Entry::blocks("ragged_softmax", THREADS)])),
        |cx| {
            let (params, rows) = ragged(cx)?;
            Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(rows as u64))])
        },
    )
    .framed(),
];

/// Threads of a block that has a row.
pub const THREADS: u32 = 256;

crate::params! {
    /// Softmax of rows of unequal lengths.
    pub struct RaggedSoftmaxParams {
        /// Elements of a row, whether they count or not.
        count: u32,
    }
}

/// Whether the logarithm is computed, as a constant of the kernel.
pub fn log(site: &Site<'_>, of: bool) -> String {
    site.constant("LOG", "bool", of)
}

fn blocks(site: &Site<'_>, of: bool) -> Body {
    Body::of("softmax/softmax", vec![Entry::blocks("softmax", THREADS)]).with(log(site, of))
}

/// Lines along the attribute "axis", and how many there are.
pub fn axis_lines(cx: &Cx<'_>) -> Result<(LineParams, usize), BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    Ok(lines(&x, axis))
}

/// A block for each line along the attribute "axis".
pub fn along_axis(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, count) = axis_lines(cx)?;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(count as u64))])
}

/// Rows along the last axis, and how many there are.
pub fn ragged(cx: &Cx<'_>) -> Result<(RaggedSoftmaxParams, usize), BackendError> {
    let x = cx.shape(0)?;
    let (&count, lead) = x.split_last().unwrap_or((&0, &[0]));
    Ok((RaggedSoftmaxParams { count }, lead.iter().product()))
}
