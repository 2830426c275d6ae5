//! Operators whose output sizes depend on data. The first launches list in scratch memory what is kept, and count it; the others
//! run once the host knows the sizes.

pub mod nms;
pub mod unique;

use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::alone("nonzero", &["nonzero"], nonzero_source, nonzero),
    Kernel::alone("compress", &["compress"], compress_source, compress),
];

crate::params! {
    /// A list of the numbers that are kept, made in runs.
    struct KeptRunsParams {
        /// Numbers to choose from.
        count: u32,
        /// Numbers of a run.
        run: u32,
        /// Runs, of which there is one at least.
        runs: u32,
        /// Word of scratch memory where their counts start.
        counts: u32,
    }
}

crate::params! {
    /// Indices of elements that are not zero.
    pub struct NonzeroParams {
        /// Elements that are not zero.
        columns: u32,
        /// Strides of the input.
        strides: [u32],
        /// Dimensions of the input.
        dims: [u32],
    }
}

crate::params! {
    /// Slices along an axis that are kept.
    pub struct CompressParams {
        /// Elements of a slice after the axis.
        inner: u32,
        /// Slices of the result.
        kept: u32,
        /// Slices of the input.
        whole: u32,
    }
}

/// Launches before and after the sizes are known; the latter only once all shapes are.
pub fn phases(
    cx: &Cx<'_>,
    first: Vec<Launch>,
    then: impl FnOnce() -> Result<Vec<Launch>, BackendError>,
    scratch: u64,
) -> Result<Vec<Launch>, BackendError> {
    let mut all: Vec<Launch> = first.into_iter().map(|l| Launch { counts: true, ..l }).collect();
    if cx.out_shape(0).is_ok() {
        all.extend(then()?);
    }
    Ok(all.into_iter().map(|l| l.scratch(scratch)).collect())
}

/// A body whose first entries count, in scratch memory, what the others are about.
pub fn counting(files: Vec<&'static str>, entries: Vec<Entry>) -> Body {
    Body { files, entries, scratch: true, sizes: true, ..Body::default() }
}

/// The function `is_kept(i)` of a `nonzero`.
pub fn nonzero_test(site: &Site<'_>) -> String {
    let test = match site.first_dtype() {
        DType::Bool => "x0(i)",
        // By the bits, so that NaN counts and subnormals do.
        t if t.is_float() => "fnonzero(x0(i))",
        DType::I64 => "x0(i) != i64(0)",
        _ => "x0(i) != 0",
    };
    site.function("is_kept", &[("i", "u32")], "bool", test)
}

/// The function `is_kept(i)` of a `compress`.
pub fn compress_test(site: &Site<'_>) -> String {
    site.function("is_kept", &[("i", "u32")], "bool", "x1(i)")
}

/// The entries that list numbers, by blocks that have a run each.
pub const LIST: [Entry; 2] =
    [Entry::blocks("count_runs", 256).silent(), Entry::blocks("list_runs", 256).silent()];

/// A list, and a map of output 0 by `element`.
fn listed(file: &'static str, element: &'static str, test: String) -> Body {
    let entries = LIST.into_iter().chain([Entry::Element(0, element)]).collect();
    counting(vec!["select/list", file], entries).with(test)
}

/// Numbers of a run at least, and runs at most: each run adds up the counts of all that are in front of it.
const RUN: usize = 8192;
const RUNS: usize = 2048;

/// Launches of [`LIST`], which are entries `entry` and following, for numbers below `n`; the counts of runs start at a word of
/// scratch memory. The bytes of the memory up to their end.
pub fn list(n: usize, entry: usize, counts: usize) -> Result<([Launch; 2], u64), BackendError> {
    let run = RUN.max(n.div_ceil(RUNS));
    let runs = n.div_ceil(run).max(1);
    let w = KeptRunsParams { count: n, run, runs, counts }.words()?;
    let launch = |k| Launch::map(entry + k, w.clone()).on(Grid::Groups(runs as u64));
    Ok(([launch(0), launch(1)], (counts + runs) as u64 * 4))
}

fn nonzero_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(listed("select/nonzero", "nonzero", nonzero_test(site)))
}

/// The shape whose indices a `nonzero` yields: a scalar may count as one element.
pub fn nonzero_shape(cx: &Cx<'_>) -> Result<Vec<usize>, BackendError> {
    let x = cx.shape(0)?;
    let one = x.is_empty() && cx.outputs.first().and_then(|f| f.ty.dims.first()?.as_const()) == Some(1);
    Ok(if one { vec![1] } else { x })
}

/// Parameters of a `nonzero` of this shape.
pub fn nonzero_params(cx: &Cx<'_>, x: &[usize]) -> Result<NonzeroParams, BackendError> {
    Ok(NonzeroParams { columns: cx.out_shape(0)?[1], strides: strides(x), dims: x.to_vec() })
}

fn nonzero(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = nonzero_shape(cx)?;
    let n: usize = x.iter().product();
    let maps = || Ok(vec![Launch::map(2, nonzero_params(cx, &x)?.words()?)]);
    let (first, scratch) = list(n, 0, n)?;
    phases(cx, first.into(), maps, scratch)
}

fn compress_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(listed("select/compress", "compress", compress_test(site)))
}

/// The slices of x: how many along the axis, elements after it and before it.
pub fn slices(cx: &Cx<'_>) -> Result<[usize; 3], BackendError> {
    let x = cx.shape(0)?;
    let a = cx.op()?.attrs();
    if a.bool("flatten").map_err(op_error)? {
        return Ok([x.iter().product(), 1, 1]);
    }
    let axis = normalize_axis(a.int("axis").map_err(op_error)?, x.len(), "axis").map_err(op_error)?;
    Ok([x[axis], x[axis + 1..].iter().product(), x[..axis].iter().product()])
}

/// Slices that the condition of a `compress` covers.
pub fn compress_count(cx: &Cx<'_>) -> Result<usize, BackendError> {
    let [whole, ..] = slices(cx)?;
    Ok(whole.min(cx.shape(1)?.iter().product()))
}

/// Parameters of a `compress`.
pub fn compress_params(cx: &Cx<'_>) -> Result<CompressParams, BackendError> {
    let [whole, inner, outer] = slices(cx)?;
    let kept = cx.out_shape(0)?.iter().product::<usize>().checked_div(inner * outer).unwrap_or(0);
    Ok(CompressParams { inner, kept, whole })
}

fn compress(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let n = compress_count(cx)?;
    let (first, scratch) = list(n, 0, n)?;
    let maps = || Ok(vec![Launch::map(2, compress_params(cx)?.words()?)]);
    phases(cx, first.into(), maps, scratch)
}
