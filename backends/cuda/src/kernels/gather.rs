//! Slices picked by indices along an axis, eight neighbours at a time.

pub mod elements;

use super::divisor::{Divisor, WIDTH, copied, tactics};
use crate::dialect::CUDA;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::limits::{is_far, near_or_far};
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::infer::normalize_axis;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "gather.vectors",
    ops: &["gather"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics: |site| {
        let all = tactics(site, "gather.vectors")?;
        Ok(all.into_iter().map(|t| near_or_far(site, t)).collect())
    },
    source,
    launch,
}];

kiln_codegen::params! {
    /// Slices picked along an axis, their elements counted in vectors.
    struct GatherVectorsParams {
        /// Size of the axis.
        axis: u32,
        /// Vectors of a slice.
        after: u32,
        /// Factor of divisions by it.
        after_factor: u32,
        /// Shift of divisions by it.
        after_shift: u32,
        /// Indices of a batch.
        picked: u32,
        /// Factor of divisions by it.
        picked_factor: u32,
        /// Shift of divisions by it.
        picked_shift: u32,
        /// Slices in front of the axis in a batch.
        before: u32,
        /// Factor of divisions by it.
        before_factor: u32,
        /// Shift of divisions by it.
        before_shift: u32,
        /// Vectors of all slices behind one place in front of the axis.
        line: u32,
        /// Factor of divisions by it.
        line_factor: u32,
        /// Shift of divisions by it.
        line_shift: u32,
    }
}

/// Places in front of the axis for which a thread reads an index once.
const LINES: usize = 4;
/// Threads that keep a large device busy.
const THREADS: usize = 1 << 17;

fn source(site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
    let at = if is_far(tactic) { "u64" } else { "u32" };
    let entries = ["gather_8", "gather_1", "gather_lines_8", "gather_lines_1"].map(Entry::threads).into();
    let lines = site.constant("LINES", "u32", format_args!("{LINES}u"));
    let body = Body { checking: true, ..Body::of("gather/vectors", entries) };
    Ok(body.with(copied(site) + &(CUDA.alias)("At", at) + &lines))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, picks) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, x.len(), "axis").map_err(op_error)?;
    let batch = attrs.int("batch_dims").map_err(op_error)?.max(0) as usize;
    let total: usize = cx.out_shape(0)?.iter().product();
    let product = |d: &[usize]| d.iter().product::<usize>();
    let (Some(picked), Some(before), Some(batches)) =
        (picks.get(batch..), x.get(batch..axis), x.get(..batch))
    else {
        return Err(BackendError::Internal("a gather whose batch is no part of it".into()));
    };
    let after = product(&x[axis + 1..]);
    let rows = cx.out_shape(0)?.last().is_some_and(|n| n.is_multiple_of(WIDTH)) || !cx.fused;
    let width = if rows && after.is_multiple_of(WIDTH) { WIDTH } else { 1 };
    let line = Divisor::new(product(picked) * (after / width), total)?;
    let after = Divisor::new(after / width, total)?;
    let picked = Divisor::new(product(picked), total)?;
    let before = Divisor::new(product(before), total)?;
    let params = GatherVectorsParams {
        axis: x[axis],
        after: after.size,
        after_factor: after.factor,
        after_shift: after.shift,
        picked: picked.size,
        picked_factor: picked.factor,
        picked_shift: picked.shift,
        before: before.size,
        before_factor: before.factor,
        before_shift: before.shift,
        line: line.size,
        line_factor: line.factor,
        line_shift: line.shift,
    };
    let by_lines = line.size * before.size.div_ceil(LINES);
    let (entry, threads) =
        match total > 0 && product(batches) == 1 && before.size >= LINES && by_lines >= THREADS {
            true => (2, by_lines),
            false => (0, total / width),
        };
    let entry = entry + usize::from(width == 1);
    Ok(vec![Launch::map(entry, params.words()?).on(Grid::Threads(threads as u64))])
}
