//! Transposed convolutions, and columns put together to an image.

use super::windowed;
use crate::long::continued;
use crate::site::{Cx, op_error, unsupported};
use crate::window::{WindowsParams, groups, taps};
use crate::{Kernel, Launch};
use kiln_backend::BackendError;
use kiln_ir::Dim;
use kiln_ops::conv::window::dims;
use kiln_ops::conv::{col2im, transposed};
use kiln_ops::layout::Layout;

const FILE: &str = "conv/transposed";

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of(
        "conv_transpose",
        &["conv_transpose"],
        |s, _| Ok(windowed(s, FILE, ("conv_transpose", "conv_transpose_sum"))),
        conv_transpose,
    )
    .framed(),
    Kernel::of("col2im", &["col2im"], |s, _| Ok(windowed(s, FILE, ("col2im", "col2im_sum"))), columns)
        .framed(),
];

fn conv_transpose(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let attrs = cx.op()?.attrs();
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let axes = transposed::geometry(attrs, &dims(&x), &dims(&k)).map_err(op_error)?;
    let (x, y) = (Layout::of(attrs).to_linear(&x), Layout::of(attrs).to_linear(&y));
    let group_channels = x[1] / groups(cx)?;
    let params = WindowsParams {
        channels: x[1],
        out_channels: y[1],
        group_channels,
        group_out_channels: k[1],
        ..WindowsParams::of(&axes)?
    };
    // Each tap takes an iteration of an outer loop, and one more of the inner loop.
    let cost = 1 + 2usize.div_ceil(group_channels.max(1));
    continued(cx, params.words()?, group_channels * k[2..].iter().product::<usize>(), cost)
}

fn columns(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let y = cx.out_shape(0)?;
    let block: Vec<Dim> = cx.ints(2)?.unwrap_or_default().into_iter().map(Dim::new).collect();
    if block.len() > 3 {
        return unsupported(format!("{} spatial dimensions", block.len()));
    }
    let axes = col2im::geometry(cx.op()?.attrs(), &dims(&y[2..]), &block).map_err(op_error)?;
    continued(cx, WindowsParams::of(&axes)?.words()?, taps(&axes)?, 1)
}
