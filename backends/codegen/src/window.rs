//! Sliding windows as kernels count them, for convolutions and pooling.

use crate::site::{Cx, Site, op_error};
use kiln_backend::BackendError;
use kiln_ir::Dim;
use kiln_ops::conv;
use kiln_ops::conv::window::{Axis, dims, known};
use kiln_ops::layout::Layout;

crate::params! {
    /// Sliding windows over three dimensions, the outermost (z) first. For transposed operators `input` is the result and
    /// `output` the operand.
    pub struct WindowsParams {
        /// Elements along z.
        z_input: i32,
        /// Windows along it.
        z_output: i32,
        /// Taps of a window.
        z_kernel: i32,
        /// Elements from one window to the next.
        z_stride: i32,
        /// Elements from one tap to the next.
        z_dilation: i32,
        /// Padding before the elements.
        z_begin: i32,
        /// Padding behind them.
        z_end: i32,
        /// Elements along y.
        y_input: i32,
        /// Windows along it.
        y_output: i32,
        /// Taps of a window.
        y_kernel: i32,
        /// Elements from one window to the next.
        y_stride: i32,
        /// Elements from one tap to the next.
        y_dilation: i32,
        /// Padding before the elements.
        y_begin: i32,
        /// Padding behind them.
        y_end: i32,
        /// Elements along x.
        x_input: i32,
        /// Windows along it.
        x_output: i32,
        /// Taps of a window.
        x_kernel: i32,
        /// Elements from one window to the next.
        x_stride: i32,
        /// Elements from one tap to the next.
        x_dilation: i32,
        /// Padding before the elements.
        x_begin: i32,
        /// Padding behind them.
        x_end: i32,
        /// Channels of x.
        channels: u32,
        /// Channels of the result.
        out_channels: u32,
        /// Channels of x of a group.
        group_channels: u32,
        /// Channels of the result of a group.
        group_out_channels: u32,
    }
}

impl WindowsParams {
    /// Windows over up to three dimensions, fewer led by windows of one element.
    pub fn of(axes: &[Axis<Dim>]) -> Result<WindowsParams, BackendError> {
        let axes = known(axes).map_err(op_error)?;
        let one = Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };
        let axis = |d: usize| (d + axes.len()).checked_sub(3).and_then(|d| axes.get(d)).unwrap_or(&one);
        let (z, y, x) = (axis(0), axis(1), axis(2));
        Ok(WindowsParams {
            z_input: z.input,
            z_output: z.output,
            z_kernel: z.kernel,
            z_stride: z.stride,
            z_dilation: z.dilation,
            z_begin: z.begin,
            z_end: z.end,
            y_input: y.input,
            y_output: y.output,
            y_kernel: y.kernel,
            y_stride: y.stride,
            y_dilation: y.dilation,
            y_begin: y.begin,
            y_end: y.end,
            x_input: x.input,
            x_output: x.output,
            x_kernel: x.kernel,
            x_stride: x.stride,
            x_dilation: x.dilation,
            x_begin: x.begin,
            x_end: x.end,
            ..WindowsParams::default()
        })
    }
}

/// Whether channels are the innermost dimension.
pub fn channels_last(site: &Site<'_>) -> bool {
    site.anchor.is_some_and(|(_, n)| Layout::of(n.op.attrs()) == Layout::ChannelsLast)
}

/// Groups of a convolution.
pub fn groups(cx: &Cx<'_>) -> Result<usize, BackendError> {
    Ok(cx.op()?.attrs().int("groups").map_err(op_error)?.max(1) as usize)
}

/// A convolution.
pub fn conv_params(cx: &Cx<'_>) -> Result<WindowsParams, BackendError> {
    let attrs = cx.op()?.attrs();
    let (x, k) = (cx.shape(0)?, cx.shape(1)?);
    let axes = conv::geometry(attrs, &dims(&x), &dims(&k)).map_err(op_error)?;
    let [x, k] = [&x, &k].map(|d| Layout::of(attrs).to_linear(d));
    Ok(WindowsParams {
        channels: x[1],
        out_channels: k[0],
        group_channels: k[1],
        group_out_channels: k[0] / groups(cx)?,
        ..WindowsParams::of(&axes)?
    })
}

/// Taps of a window.
pub fn taps(axes: &[Axis<Dim>]) -> Result<usize, BackendError> {
    Ok(known(axes).map_err(op_error)?.iter().map(|a| a.kernel.max(0) as usize).product())
}
