//! Scatters: a copy, then threads that own disjoint parts of the result write their updates in order.

use crate::long::repeated;
use crate::scalar::register;
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Grid, Kernel, Launch, plain};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        tactics: |site| moved_updates(site).and_then(|()| plain("scatter_elements")),
        ..Kernel::alone(
            "scatter_elements",
            &["scatter_elements"],
            |s, _| in_order(s, "scatter_elements"),
            elements,
        )
        .framed()
    },
    Kernel {
        tactics: |site| moved_updates(site).and_then(|()| plain("scatter_nd")),
        ..Kernel::alone("scatter_nd", &["scatter_nd"], |s, _| in_order(s, "scatter_nd"), tuples).framed()
    },
];

/// The input that is the updates.
const UPDATES: usize = 2;

/// Refuses moves in front of other inputs than the updates: x may be the result's own memory, and checks read indices as they lie.
pub fn moved_updates(site: &Site<'_>) -> Result<(), BackendError> {
    match site.moves.iter().enumerate().find(|(i, moves)| *i != UPDATES && !moves.is_empty()) {
        Some((i, _)) => unsupported(format!("a scatter whose input {i} was moved")),
        None => Ok(()),
    }
}

crate::params! {
    /// Updates of single elements along an axis.
    struct ScatterElementsParams {
        /// The axis.
        axis: u32,
        /// Elements of x along it.
        size: u32,
        /// Updates of a line.
        updates: u32,
        /// Dimensions of the indices, 1 for the axis.
        lines: [u32],
        /// Strides of the indices.
        index_strides: [u32],
        /// Strides of x.
        strides: [u32],
    }
}

crate::params! {
    /// Updates of slices by tuples of indices.
    struct ScatterNdParams {
        /// Number of tuples.
        tuples: u32,
        /// Elements of a slice.
        slice: u32,
        /// Dimensions of x that a tuple's indices are of.
        sizes: [u32],
        /// Strides of x along them.
        strides: [u32],
    }
}

/// The function `combine(old, update)`.
pub fn combine(site: &Site<'_>) -> Result<String, BackendError> {
    let t = site.out_dtype(0);
    let combined = match (site.op()?.attrs().str("reduction").map_err(op_error)?, t.is_float(), t) {
        ("add", _, _) => "old + update",
        ("mul", _, _) => "old * update",
        ("max", true, _) => "kmax(old, update)",
        ("min", true, _) => "kmin(old, update)",
        ("max", _, DType::Bool) => "(old || update)",
        ("min", _, DType::Bool) => "(old && update)",
        ("max", _, _) => "max(old, update)",
        ("min", _, _) => "min(old, update)",
        _ => "update",
    };
    let r = register(t);
    Ok(site.function("combine", &[("old", r), ("update", r)], r, combined))
}

/// A copy of x, then the function that makes updates in order.
pub fn in_order(site: &Site<'_>, entry: &'static str) -> Result<Body, BackendError> {
    Ok(Body {
        code: site.alias("Value", site.out_dtype(0))
            + &site.alias("Index", site.dtype(1).unwrap_or(DType::I32))
            + &combine(site)?,
        files: vec!["gather/gather", "scatter/scatter"],
        entries: vec![Entry::Element(0, "scatter_copy"), Entry::threads(entry)],
        ..Body::default()
    })
}

/// A copy, unless x and the result are one, then `count` updates of each thread of `cost` iterations each.
fn with_copy(
    cx: &Cx<'_>,
    words: Vec<u32>,
    threads: usize,
    (count, cost): (usize, usize),
) -> Result<Vec<Launch>, BackendError> {
    let scatter = Launch::map(1, words).on(Grid::Threads(threads as u64));
    let mut out = Vec::new();
    if !cx.aliased(0, 0) {
        out.push(Launch::map(0, Vec::new()));
    }
    out.extend(repeated(cx, &scatter, (count, cost), 0)?);
    Ok(out)
}

/// The launches of `scatter_elements`; the first copies x, unless x and the result are one.
pub fn elements(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let axis = cx.axis(x.len())?;
    let updates = i[axis];
    let (index_strides, mut lines) = (strides(&i), i);
    lines[axis] = 1;
    let count = if updates == 0 { 0 } else { lines.iter().product() };
    let params =
        ScatterElementsParams { axis, size: x[axis], updates, lines, index_strides, strides: strides(&x) };
    with_copy(cx, params.words()?, count, (updates, 1))
}

/// The launches of `scatter_nd`; the first copies x, unless x and the result are one.
pub fn tuples(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let Some((&depth, lead)) = i.split_last() else { return Ok(Vec::new()) };
    let tuples: usize = lead.iter().product();
    let slice: usize = x[depth..].iter().product();
    let params =
        ScatterNdParams { tuples, slice, sizes: x[..depth].to_vec(), strides: strides(&x)[..depth].to_vec() };
    with_copy(cx, params.words()?, if tuples == 0 { 0 } else { slice }, (tuples, 2 + depth))
}
