//! Elements that indices pick.

use crate::limits::{is_far, near_or_far};
use crate::scalar::zero;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch, Launcher};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    picking("gather", &["gather"], |s, t| Ok(source(s, t, "gather")), gather),
    picking(
        "gather_elements",
        &["gather_elements"],
        |s, t| Ok(source(s, t, "gather_elements")),
        gather_elements,
    ),
    picking("gather_nd", &["gather_nd"], |s, t| Ok(source(s, t, "gather_nd")), gather_nd),
];

crate::params! {
    /// Slices along an axis.
    struct GatherParams {
        /// Elements along the axis.
        size: u32,
        /// Elements behind the axis.
        after: u32,
        /// Indices of one batch.
        picked: u32,
        /// Slices in front of the axis in one batch.
        before: u32,
    }
}

crate::params! {
    /// Single elements along an axis.
    struct GatherElementsParams {
        /// The axis.
        axis: u32,
        /// Elements along it.
        size: u32,
        /// Dimensions of the indices.
        dims: [u32],
        /// Strides of x.
        strides: [u32],
        /// Their upper halves, where positions have 64 bits.
        far_strides: [u32],
    }
}

crate::params! {
    /// Slices by tuples of indices.
    struct GatherNdParams {
        /// Elements of a slice.
        slice: u32,
        /// Tuples of a batch.
        tuples: u32,
        /// Elements of a batch.
        batch: u32,
        /// Its upper half, where positions have 64 bits.
        far_batch: u32,
        /// Dimensions of x that a tuple's indices are of.
        sizes: [u32],
        /// Strides of x along them.
        strides: [u32],
        /// Their upper halves, where positions have 64 bits.
        far_strides: [u32],
    }
}

/// A kernel that may count positions in its first input in 64 bits.
const fn picking(
    name: &'static str,
    ops: &'static [&'static str],
    source: crate::Source,
    launch: Launcher,
) -> Kernel {
    let tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError> =
        |site| Ok(vec![near_or_far(site, Tactic::plain(site.kernel_name()))]);
    Kernel { tactics, ..Kernel::of(name, ops, source, launch) }
}

/// A map by one of the functions of the file.
fn source(site: &Site<'_>, tactic: &Tactic, element: &'static str) -> Body {
    let far = is_far(tactic);
    let t = site.out_dtype(0);
    let code = site.alias("Value", t)
        + &site.alias("Index", site.dtype(1).unwrap_or(DType::I32))
        + &site.constant("GAP", "Value", zero(t))
        + &site.constant("FAR", "bool", far);
    let body = Body::element("gather/gather", element).with(code);
    Body { far: if far { vec![0] } else { Vec::new() }, ..body }
}

/// The lower halves of positions, and the upper ones where the kernel counts in 64 bits.
fn split(cx: &Cx<'_>, positions: &[usize]) -> (Vec<usize>, Vec<usize>) {
    match cx.far() {
        true => positions.iter().map(|&n| (n & 0xffff_ffff, n >> 32)).unzip(),
        false => (positions.to_vec(), Vec::new()),
    }
}

fn gather(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let axis = cx.axis(x.len())?;
    let batch = cx.op()?.attrs().int("batch_dims").map_err(op_error)? as usize;
    let params = GatherParams {
        size: x[axis],
        after: x[axis + 1..].iter().product(),
        picked: i[batch..].iter().product(),
        before: x[batch..axis].iter().product(),
    };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn gather_elements(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    let (low, high) = split(cx, &strides(&x));
    let params =
        GatherElementsParams { axis, size: x[axis], dims: cx.out_shape(0)?, strides: low, far_strides: high };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn gather_nd(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let batch = cx.op()?.attrs().int("batch_dims").map_err(op_error)? as usize;
    let Some((&depth, lead)) = i.split_last() else { return Ok(Vec::new()) };
    let whole: usize = x[batch..].iter().product();
    let (low, high) = split(cx, &strides(&x)[batch..batch + depth]);
    let (whole, far_whole) = split(cx, &[whole]);
    let params = GatherNdParams {
        slice: x[batch + depth..].iter().product(),
        tuples: lead[batch..].iter().product(),
        batch: whole.into_iter().sum(),
        far_batch: far_whole.into_iter().sum(),
        sizes: x[batch..batch + depth].to_vec(),
        strides: low,
        far_strides: high,
    };
    Ok(vec![Launch::map(0, params.words()?)])
}
