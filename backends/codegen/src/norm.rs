//! Norms: over rows and groups, with given statistics, and over neighbouring channels.

use crate::long::{continued, long_sum};
use crate::site::{Cx, Site, op_error};
use crate::softmax::{THREADS, along_axis};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::layout::Layout;
use kiln_ops::util::broadcast_strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of(
        "batch_norm",
        &["batch_norm"],
        |_, _| Ok(Body::element("norm/batch_norm", "batch_norm")),
        batch,
    )
    .framed(),
    Kernel::of("lrn", &["lrn"], |s, _| Ok(long_sum(s, "norm/lrn", ("lrn", "lrn_sum"), DType::F32)), lrn)
        .framed(),
    Kernel::of(
        "lp_norm",
        &["lp_norm"],
        |s, _| Ok(blocks("norm/lp_norm", "lp_norm").with(square(s)?)),
        along_axis,
    )
    .framed(),
    Kernel::of(
        "layer_norm",
        &["layer_norm"],
        |s, _| Ok(blocks("norm/layer_norm", "layer_norm").with(affine(s))),
        |cx| layer_rows(cx)?.launch(),
    )
    .framed(),
    Kernel::of(
        "rms_norm",
        &["rms_norm"],
        |s, _| Ok(blocks("norm/rms_norm", "rms_norm").with(affine(s))),
        |cx| layer_rows(cx)?.launch(),
    )
    .framed(),
    Kernel::of(
        "group_norm",
        &["group_norm"],
        |s, _| Ok(blocks("norm/group_norm", "group_norm").with(group_places(s)?)),
        |cx| group_rows(cx)?.launch(),
    )
    .framed(),
];

crate::params! {
    /// Batch normalization.
    struct BatchNormParams {
        /// Elements from one channel to the next.
        inner: u32,
        /// Number of channels.
        channels: u32,
        /// Added to the variance.
        epsilon: f32,
    }
}

crate::params! {
    /// Local response normalization.
    struct LrnParams {
        /// Elements from one channel to the next.
        inner: u32,
        /// Number of channels.
        channels: u32,
        /// Channels before an element's own that count.
        before: u32,
        /// Channels behind it.
        after: u32,
        /// Factor of the sum of squares.
        scale: f32,
        /// The power.
        beta: f32,
        /// Added to the scaled sum.
        bias: f32,
    }
}

crate::params! {
    /// Norms over the last axes.
    struct NormParams {
        /// Elements of a row.
        count: u32,
        /// Added to the mean of squares.
        epsilon: f32,
        /// The dimensions of the input.
        dims: [u32],
        /// Elements of the scale from one to the next of each dimension, 0 where it is spread.
        scale_strides: [u32],
        /// Strides of the bias.
        bias_strides: [u32],
    }
}

crate::params! {
    /// Norms over groups of channels.
    struct GroupNormParams {
        /// Elements of a group.
        count: u32,
        /// Added to the variance.
        epsilon: f32,
        /// Elements of a channel.
        inner: u32,
        /// Number of channels.
        channels: u32,
    }
}

fn blocks(file: &'static str, entry: &'static str) -> Body {
    Body::of(file, vec![Entry::blocks(entry, THREADS)])
}

/// Whether an `lp_norm` takes the root of the sum of squares, as a constant of the kernel.
pub fn square(site: &Site<'_>) -> Result<String, BackendError> {
    let square = site.op()?.attrs().int("p").map_err(op_error)? == 2;
    Ok(site.constant("SQUARE", "bool", square))
}

/// Constants of a norm's kernel: whether it has a scale, a bias, and results for each row.
pub fn affine(site: &Site<'_>) -> String {
    site.constant("HAS_SCALE", "bool", site.dtype(1).is_some())
        + &site.constant("HAS_BIAS", "bool", site.dtype(2).is_some())
        + &site.constant("STATISTICS", "bool", site.stored().len() > 1)
}

/// Whether channels are last, as a constant of the kernel.
pub fn group_places(site: &Site<'_>) -> Result<String, BackendError> {
    let last = Layout::of(site.op()?.attrs()) == Layout::ChannelsLast;
    Ok(site.constant("CHANNELS_LAST", "bool", last))
}

/// Rows that a norm is taken of.
pub struct Rows {
    /// The words of the parameters.
    pub words: Vec<u32>,
    /// Number of rows.
    pub count: usize,
    /// Elements of each.
    pub n: usize,
}

impl Rows {
    fn launch(self) -> Result<Vec<Launch>, BackendError> {
        Ok(vec![Launch::map(0, self.words).on(Grid::Groups(self.count as u64))])
    }
}

/// Rows over the last axes.
pub fn layer_rows(cx: &Cx<'_>) -> Result<Rows, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    let n: usize = x[axis..].iter().product();
    let count: usize = x[..axis].iter().product();
    let strides = |i| match cx.has(i) {
        true => Ok(broadcast_strides(&cx.shape(i)?, &x)),
        false => Ok::<_, BackendError>(vec![0; x.len()]),
    };
    let params = NormParams {
        count: n,
        epsilon: float(cx, "epsilon")?,
        scale_strides: strides(1)?,
        bias_strides: strides(2)?,
        dims: x,
    };
    Ok(Rows { words: params.words()?, count, n })
}

/// Rows of groups of channels.
pub fn group_rows(cx: &Cx<'_>) -> Result<Rows, BackendError> {
    let (x, _) = channels(cx)?;
    let inner: usize = x[2..].iter().product();
    let groups = match cx.op()?.attrs().int("groups").map_err(op_error)? {
        0 => x[1],
        n => n as usize,
    };
    let n = x[1].checked_div(groups).unwrap_or(0) * inner;
    let count = if n == 0 { 0 } else { x[0] * groups };
    let params = GroupNormParams { count: n, epsilon: float(cx, "epsilon")?, inner, channels: x[1] };
    Ok(Rows { words: params.words()?, count, n })
}

/// The shape of the first input with channels second, and how far the elements of a channel are apart: elements of
/// one channel in a row, or 1 with channels last.
pub fn channels(cx: &Cx<'_>) -> Result<(Vec<usize>, usize), BackendError> {
    let layout = Layout::of(cx.op()?.attrs());
    let x = layout.to_linear(&cx.shape(0)?);
    let inner = if layout == Layout::Linear { x.iter().skip(2).product() } else { 1 };
    Ok((x, inner))
}

fn float(cx: &Cx<'_>, name: &str) -> Result<f32, BackendError> {
    Ok(cx.op()?.attrs().float(name).map_err(op_error)? as f32)
}

fn batch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let channels = x.get(1).copied().unwrap_or(1);
    let params = BatchNormParams { inner, channels, epsilon: float(cx, "epsilon")? };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn lrn(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let channels = x.get(1).copied().unwrap_or(1);
    let a = cx.op()?.attrs();
    let size = a.int("size").map_err(op_error)?.clamp(1, 1 << 30);
    let params = LrnParams {
        inner,
        channels,
        before: ((size - 1) / 2) as usize,
        after: (size / 2) as usize,
        scale: (a.float("alpha").map_err(op_error)? / size as f64) as f32,
        beta: float(cx, "beta")?,
        bias: float(cx, "bias")?,
    };
    continued(cx, params.words()?, channels.min(size as usize), 1)
}
