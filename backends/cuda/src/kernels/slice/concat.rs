//! Inputs joined along an axis in one launch, eight neighbours at a time.

use crate::dialect::CUDA;
use crate::kernels::divisor::{Divisors, WIDTH, copied, tactics};
use crate::kernels::shape::input;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::infer::normalize_axis;
use std::fmt::Write;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "concat.vectors",
    ops: &["concat"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics: concat_tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// Inputs joined along an axis. Lists have a number for each input; slices are what is between two steps in front of the axis.
    struct ConcatVectorsParams {
        /// Elements of the result's slice.
        slice: u32,
        /// First block of an input.
        blocks: [u32],
        /// Threads of an input.
        threads: [u32],
        /// Start of an input in the result's slice.
        starts: [u32],
        /// Threads of an input's slice.
        sizes: [u32],
        /// Factors of divisions by them.
        factors: [u32],
        /// Shifts of divisions by them.
        shifts: [u32],
    }
}

/// The most inputs of one launch.
const MOST: usize = 32;
/// Threads of a block.
const THREADS: u32 = 256;

fn count(site: &Site<'_>) -> usize {
    site.anchor.map_or(0, |(_, n)| n.inputs.len())
}

fn concat_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let count = count(site);
    if count > MOST || input(site, 0).is_none() {
        return unsupported(format!("{count} inputs of one kernel"));
    }
    tactics(site, "concat.vectors")
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let count = count(site);
    let mut address = String::new();
    for i in 1..count {
        let _ = write!(address, "i == {}u ? bx{} : ", i - 1, i - 1);
    }
    let _ = write!(address, "bx{}", count.saturating_sub(1));
    let code = copied(site)
        + &site.constant("INPUTS", "u32", format_args!("{count}u"))
        + &(CUDA.function)("input", &[("i", "u32")], "const Cell*", &address);
    let entries = ["concat_8", "concat_1"].map(|name| Entry::blocks(name, THREADS)).into();
    Ok(Body::of("slice/concat_vectors", entries).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let attrs = cx.op()?.attrs();
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, out.len(), "axis").map_err(op_error)?;
    let total: usize = out.iter().product();
    let shapes = (0..cx.inputs.len()).map(|i| cx.shape(i)).collect::<Result<Vec<_>, _>>()?;
    let slices: Vec<usize> = shapes.iter().map(|x| x[axis..].iter().product()).collect();
    let width = if slices.iter().all(|n| n.is_multiple_of(WIDTH)) { WIDTH } else { 1 };
    let Divisors { sizes, factors, shifts } = Divisors::new(slices.iter().map(|n| n / width), total)?;
    let threads: Vec<usize> = shapes.iter().map(|x| x.iter().product::<usize>() / width).collect();
    let blocks = sums(threads.iter().map(|n| n.div_ceil(THREADS as usize)));
    let all = threads.iter().map(|n| n.div_ceil(THREADS as usize)).sum::<usize>();
    let slice = out[axis..].iter().product();
    let starts = sums(slices.iter().copied());
    let params = ConcatVectorsParams { slice, blocks, threads, starts, sizes, factors, shifts };
    Ok(vec![Launch::map(usize::from(width == 1), params.words()?).on(Grid::Groups(all as u64))])
}

/// The sum of what is in front of each number.
fn sums(all: impl Iterator<Item = usize>) -> Vec<usize> {
    all.scan(0, |sum, n| {
        *sum += n;
        Some(*sum - n)
    })
    .collect()
}
