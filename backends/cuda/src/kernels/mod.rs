//! Kernels that only this backend has, preferred over the generic ones.

/// A table of tiles, `name [operators] row;`. A row is a kernel of each of its operators, whose tactic is called
/// `<operator>.<prefix><name>`. The functions `tactics`, `source` and `launch` of the module of the operator's name make it.
macro_rules! tile_kernels {
    ($of:ty, $prefix:literal: $($name:literal [$($op:ident)*] $row:expr;)*) => {
        /// Names of tactics with their rows.
        #[allow(dead_code, reason = "not every table is part of the documentation")]
        pub const ROWS: &[(&str, &$of)] = &[$($((concat!(stringify!($op), ".", $prefix, $name), &$row),)*)*];

        /// The kernels of the rows.
        pub const KERNELS: &[Kernel] = &[$($({
            const NAME: &str = concat!(stringify!($op), ".", $prefix, $name);
            const ROW: &$of = &$row;
            Kernel {
                name: NAME,
                ops: &[stringify!($op)],
                epilogue: true,
                views: kiln_codegen::Views::Whole,
                side_results: $op::side_results(ROW),
                tactics: |site| $op::tactics(site, NAME, ROW),
                source: |site, _| $op::source(site, ROW),
                launch: |cx| $op::launch(cx, ROW),
            }
        },)*)*];
    };
}

pub mod attention;
mod constants;
pub mod conv;
mod cost;
mod divisor;
mod gather;
pub mod matmul;
pub mod mma;
mod norm;
mod pool;
pub mod recurrent;
mod reduce;
mod sample;
mod scatter;
mod shape;
mod slice;
mod softmax;
mod sort;
pub mod tables;
mod transpose;
pub mod wgmma;

use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Body, Kernel, Launch, Views};
use kiln_ir::infer::normalize_axis;

/// All of them, by family.
pub const FAMILIES: &[&[Kernel]] = &[
    attention::KERNELS,
    attention::rotary::KERNELS,
    wgmma::few_table::KERNELS,
    wgmma::table::KERNELS,
    mma::table::KERNELS,
    wgmma::sparse_table::KERNELS,
    mma::sparse_table::KERNELS,
    wgmma::codes_table::KERNELS,
    wgmma::floats_table::KERNELS,
    mma::codes_rows_table::KERNELS,
    mma::codes_table::KERNELS,
    matmul::rows::KERNELS,
    matmul::shallow::KERNELS,
    matmul::small::table::KERNELS,
    conv::groups::table::KERNELS,
    conv::lines::KERNELS,
    conv::depthwise::KERNELS,
    conv::grouped::KERNELS,
    slice::KERNELS,
    gather::KERNELS,
    gather::elements::KERNELS,
    slice::concat::KERNELS,
    slice::pad::KERNELS,
    norm::KERNELS,
    norm::groups::KERNELS,
    pool::KERNELS,
    pool::planes::KERNELS,
    recurrent::block::KERNELS,
    recurrent::KERNELS,
    reduce::KERNELS,
    reduce::argreduce::KERNELS,
    reduce::scan::KERNELS,
    sample::KERNELS,
    scatter::KERNELS,
    scatter::copies::KERNELS,
    scatter::sums::KERNELS,
    softmax::KERNELS,
    sort::select::KERNELS,
    sort::tiles::KERNELS,
    sort::radix::KERNELS,
];

/// A kernel of one source for all of its tactics, whose inputs lie as their shapes say, and behind which no layer follows.
pub const fn alone(
    name: &'static str,
    ops: &'static [&'static str],
    tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError>,
    source: fn(&Site<'_>, &Tactic) -> Result<Body, BackendError>,
    launch: fn(&Cx<'_>) -> Result<Vec<Launch>, BackendError>,
) -> Kernel {
    Kernel { name, ops, epilogue: false, views: Views::Whole, side_results: false, tactics, source, launch }
}

/// Factors of generic kernels' times over those of their bytes, by name; for others it is [`SLOW`].
const SLOWNESS: &[(&str, f64)] =
    &[("pointwise", 1.3), ("shape", 1.0), ("matmul_codes.few", 2.0), ("range", 1.3), ("reduce.serial", 60.0)];
const SLOW: f64 = 8.0;
/// Operators whose time is not that of their bytes.
const BY_ARITHMETIC: &[&str] = &[
    "attention",
    "deform_conv",
    "det",
    "dft",
    "einsum",
    "gru",
    "linear_attention",
    "lstm",
    "nms",
    "rnn",
    "stft",
];
/// Nanoseconds that a thread takes to read the next element of a line.
const STEP_NS: f64 = 150.0;

/// Estimated time of generic kernels that have a thread for a line, or for each element of one.
fn by_lines(site: &Site<'_>) -> Option<f64> {
    let (x, y) = (shape::input(site, 0)?, shape::output(site, 0)?);
    let all = x.static_volume()? as f64;
    let attrs = site.op().ok()?.attrs();
    let line = |axis: i64| {
        let axis = normalize_axis(axis, x.rank(), "axis").ok()?;
        Some(x.dims.get(axis)?.as_const()? as f64)
    };
    match site.op().ok()?.name() {
        "argmax" | "argmin" => Some(all / (y.static_volume()? as f64).max(1.0) * STEP_NS),
        "cumulative" => Some(line(*shape::ints(site, 1)?.first()?)? * STEP_NS),
        "scatter_elements" => {
            let axis = normalize_axis(attrs.int("axis").ok()?, x.rank(), "axis").ok()?;
            Some(shape::input(site, 1)?.dims.get(axis)?.as_const()? as f64 * STEP_NS)
        }
        "scatter_nd" => {
            let (_, tuples) = shape::input(site, 1)?.dims.split_last()?;
            Some(shape::product(tuples)? as f64 * STEP_NS)
        }
        "topk" => Some(all * line(attrs.int("axis").ok()?)? / 1000.0),
        _ => None,
    }
}

/// Estimated time of a generic kernel in nanoseconds, where sizes are known.
pub fn generic_ns(site: &Site<'_>, name: &str, target: &Target) -> Option<f64> {
    let tiled = match name {
        "matmul.tiled" | "matmul_codes.tiled" | "conv.tiled" => true,
        "matmul.naive"
        | "norm_matmul.naive"
        | "gated_matmul.naive"
        | "matmul_codes.naive"
        | "matmul_sparse.naive"
        | "conv.direct"
        | "conv_transpose" => false,
        _ if site.op().is_ok_and(|op| BY_ARITHMETIC.contains(&op.name())) => return None,
        _ => {
            let slowness = SLOWNESS.iter().find(|(n, _)| *n == name).map_or(SLOW, |(_, s)| *s);
            let bytes = shape::moving(target, shape::traffic(site)?, slowness);
            return Some(by_lines(site).map_or(bytes, |lines| bytes.max(lines)));
        }
    };
    Some(cost::Product::of(site)?.by_generic(target, tiled))
}
