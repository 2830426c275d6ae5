//! Pooling of planes with channels last, eight channels a thread.

pub mod planes;

use super::constants::alias;
use super::shape::{from_end, input, moving, traffic};
use crate::frame::element;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ops::conv::window::{dims, known};
use kiln_ops::layout::Layout;
use kiln_ops::pool::{PoolOp, geometry};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "pool.channels",
    ops: &["pool"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// Windows over planes with channels last.
    struct PoolChannelsParams {
        /// Height of x.
        height: u32,
        /// Width of x.
        width: u32,
        /// Height of the result.
        rows: u32,
        /// Width of the result.
        columns: u32,
        /// Taps of a window down.
        kernel_down: u32,
        /// Taps of a window across.
        kernel_across: u32,
        /// Elements from one window to the next, down.
        stride_down: u32,
        /// Elements from one window to the next, across.
        stride_across: u32,
        /// Elements from one tap to the next, down.
        dilation_down: u32,
        /// Elements from one tap to the next, across.
        dilation_across: u32,
        /// Padding above.
        before_down: i32,
        /// Padding on the left.
        before_across: i32,
        /// Threads of a pixel.
        side: u32,
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let attrs = site.op()?.attrs();
    let Some(x) = input(site, 0).filter(|x| x.rank() == 4) else {
        return unsupported("pooling by channels of other than planes");
    };
    let eights = from_end(x, 0).is_some_and(|c| c > 0 && c.is_multiple_of(8));
    let sums = PoolOp::of(attrs) == PoolOp::Sum;
    if Layout::of(attrs) != Layout::ChannelsLast || !eights || !(sums || site.first_dtype().is_float()) {
        return unsupported("pooling by channels of floats or sums that lie otherwise, or not in eights");
    }
    let include = attrs.bool("count_include_pad").map_err(op_error)?;
    match PoolOp::of(attrs) {
        PoolOp::Max | PoolOp::Sum => {}
        PoolOp::Average if !include => {}
        _ => return unsupported("pooling by channels of norms, or averages with the padding"),
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.5));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("pool.channels") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let op = PoolOp::of(site.op()?.attrs());
    let code = element("Cell", "wide", site.first_dtype())
        + &alias("Sum", if op == PoolOp::Sum { "i32" } else { "f32" })
        + &site.constant("ADDS", "bool", op != PoolOp::Max)
        + &site.constant("AVERAGE", "bool", op == PoolOp::Average);
    Ok(Body::of("pool/channels", vec![Entry::threads("pool_channels")]).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let axes = known(&geometry(cx.op()?.attrs(), &dims(&x)).map_err(op_error)?).map_err(op_error)?;
    let (&[n, rows, columns, c], [down, across]) = (&y[..], &axes[..]) else {
        return Err(BackendError::Internal("pooling of no plane".into()));
    };
    let side = c / 8;
    let params = PoolChannelsParams {
        height: x[1],
        width: x[2],
        rows,
        columns,
        kernel_down: size(down.kernel)?,
        kernel_across: size(across.kernel)?,
        stride_down: size(down.stride)?,
        stride_across: size(across.stride)?,
        dilation_down: size(down.dilation)?,
        dilation_across: size(across.dilation)?,
        before_down: down.begin,
        before_across: across.begin,
        side,
    };
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Threads((n * rows * columns * side) as u64))])
}

/// A size of a window, which signed numbers of 32 bits can hold.
fn size(n: i64) -> Result<usize, BackendError> {
    let found = i32::try_from(n).ok().and_then(|n| usize::try_from(n).ok());
    found.ok_or_else(|| BackendError::Unsupported(format!("a window of size {n}")))
}
