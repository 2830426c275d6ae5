//! Elements picked by an index each along an axis, eight neighbours of the result at a time.

use crate::dialect::CUDA;
use crate::frame::cell;
use crate::kernels::divisor::{Dims, WIDTH, copied, tactics};
use crate::kernels::shape::{moving, output};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::limits::{is_far, near_or_far};
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::views::coalesce;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;
use kiln_ops::util::strides;

macro_rules! kernel {
    ($name:literal, $entries:expr, $width:expr, $times:expr) => {
        Kernel {
            name: $name,
            ops: &["gather_elements"],
            epilogue: true,
            views: Views::Whole,
            side_results: false,
            tactics: |site| offers(site, $name),
            source: |site, tactic| source(site, tactic, $entries),
            launch: |cx| launch(cx, $width, $times),
        }
    };
}

/// The kernels: threads with eight elements, and those that take four times as many as have indices of 16 bytes.
pub const KERNELS: &[Kernel] = &[
    kernel!("gather_elements.runs", ["gather_run_8", "gather_run_1"], |_| WIDTH, 1),
    kernel!("gather_elements.near", ["gather_run_near", "gather_run_1"], near, 4),
];

/// Elements of a thread.
type Width = fn(&Cx<'_>) -> usize;

/// Elements whose indices have 16 bytes.
fn near(cx: &Cx<'_>) -> usize {
    let bits = cx.inputs.get(1).copied().flatten().map_or(64, |f| f.ty.dtype.bits() as usize);
    128 / bits.clamp(32, 64)
}

fn offers(site: &Site<'_>, name: &str) -> Result<Vec<Tactic>, BackendError> {
    // A line of memory is read for each element, of which mostly little is used.
    let volume = output(site, 0).and_then(|y| y.static_volume());
    let estimate_ns = volume.map(|n| moving(site.target, n as f64 * (32.0 + 8.0 + 2.0), 1.3));
    let all = tactics(site, name)?;
    Ok(all.into_iter().map(|t| near_or_far(site, Tactic { estimate_ns, ..t })).collect())
}

kiln_codegen::params! {
    /// Elements picked along an axis, by runs of the result; arrays and lists begin with its innermost dimension, in vectors.
    struct GatherRunsParams {
        /// Size of the axis in x.
        axis: u32,
        /// Elements of x from one to the next along the axis.
        stride: u32,
        /// Elements of x from one to the next of a run, beside those of its indices.
        step: u32,
        /// Vectors of the result.
        all: u32,
        /// Threads that share them.
        threads: u32,
        /// Number of dimensions in arrays.
        rank: u32,
        /// Dimensions of the result.
        sizes: [u32; 6],
        /// Factors of divisions by them.
        factors: [u32; 6],
        /// Shifts of divisions by them.
        shifts: [u32; 6],
        /// Strides of x along them.
        strides: [u32; 6],
        /// Further dimensions.
        more_sizes: [u32],
        /// Their strides.
        more_strides: [u32],
    }
}

fn source(site: &Site<'_>, tactic: &Tactic, entries: [&'static str; 2]) -> Result<Body, BackendError> {
    let at = if is_far(tactic) { "u64" } else { "u32" };
    let entries = entries.map(Entry::threads).into();
    let index = cell(site.dtype(1).unwrap_or(DType::I32));
    let code = copied(site) + &(CUDA.alias)("At", at) + &(CUDA.alias)("IndexCell", index);
    let far = if is_far(tactic) { vec![0] } else { Vec::new() };
    Ok(Body { far, checking: true, ..Body::of("gather/elements", entries) }.with(code))
}

fn launch(cx: &Cx<'_>, most: Width, times: usize) -> Result<Vec<Launch>, BackendError> {
    let most = most(cx);
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let total: usize = y.iter().product();
    if total == 0 {
        return Ok(Vec::new());
    }
    let (axis, own) = (cx.axis(x.len())?, strides(&x));
    let by: Vec<i64> = (0..y.len()).map(|d| if d == axis { 0 } else { own[d] as i64 }).collect();
    let (mut dims, by) = coalesce(&y, &by);
    let step = by.last().map_or(0, |&s| s as usize);
    let rows = y.last().is_some_and(|n| n.is_multiple_of(most)) || !cx.fused;
    let width = if rows && dims.last().is_some_and(|n| n.is_multiple_of(most)) { most } else { 1 };
    if let Some(n) = dims.last_mut() {
        *n /= width;
    }
    // Outermost dimensions along which x does not move, as the axis where it is the first one, take no division.
    let still = by.iter().take_while(|s| **s == 0).count();
    let dims: Vec<usize> = dims.into_iter().skip(still).rev().collect();
    let mut strides: Vec<usize> = by.into_iter().skip(still).rev().map(|s| s as usize).collect();
    if let Some(s) = strides.first_mut() {
        *s *= width;
    }
    let (all, of) = (total / width, Dims::new(&dims, &strides, total)?);
    let threads = if width == 1 { all } else { all.div_ceil(times) };
    let params = GatherRunsParams {
        axis: x[axis],
        stride: own[axis],
        step,
        all,
        threads,
        rank: of.rank,
        sizes: of.sizes,
        factors: of.factors,
        shifts: of.shifts,
        strides: of.strides,
        more_sizes: of.more_sizes,
        more_strides: of.more_strides,
    };
    let launch = Launch::map(usize::from(width == 1), params.words()?);
    Ok(vec![launch.on(Grid::Threads(threads as u64))])
}
