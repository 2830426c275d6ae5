//! Operators on lines of elements along an axis, and on channels: one thread a result, or a line.

use crate::long::{continued, long_sum, repeated, state};
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("argreduce", &["argmax", "argmin"], arg_source, arg),
    Kernel::of("cumulative", &["cumulative"], cumulative_source, cumulative),
];

crate::params! {
    /// Lines along an axis.
    pub struct LineParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
    }
}

/// Lines along an axis: the words (elements of a line, and of what lies inside the axis), and the number of lines.
pub fn along(x: &[usize], axis: usize) -> Result<(Vec<u32>, usize), BackendError> {
    let lines = x.iter().product::<usize>().checked_div(x[axis]).unwrap_or(0);
    Ok((words([x[axis], x[axis + 1..].iter().product()])?, lines))
}

/// The parameters of lines along an axis.
pub fn line(x: &[usize], axis: usize) -> LineParams {
    LineParams { count: x[axis], inner: x[axis + 1..].iter().product() }
}

/// A float attribute as a word.
pub fn attr(cx: &Cx<'_>, name: &str) -> Result<u32, BackendError> {
    Ok((cx.op()?.attrs().float(name).map_err(op_error)? as f32).to_bits())
}

fn arg_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let op = site.op()?;
    let t = site.first_dtype();
    let better = match (op.is("argmax"), t.is_float()) {
        (true, true) => "(is_nan(a) && !is_nan(b)) || flt(b, a)",
        (false, true) => "(is_nan(a) && !is_nan(b)) || flt(a, b)",
        (true, false) => "a > b",
        (false, false) => "a < b",
    };
    let last = op.attrs().bool("select_last").map_err(op_error)?;
    let replaces = if last { "!better(best, x)" } else { "better(x, best)" };
    let r = register(t);
    let code = site.function("better", &[("a", r), ("b", r)], "bool", better)
        + &site.function("replaces", &[("best", r), ("x", r)], "bool", replaces);
    Ok(long_sum(site, "reduce/argreduce", ("argreduce", "argreduce_part"), DType::I32).with(code))
}

fn arg(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = crate::moves::axis(cx, x.len())?;
    continued(cx, line(&x, axis).words()?, x[axis], 1)
}

fn cumulative_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let a = site.op()?.attrs();
    let prod = a.str("op").map_err(op_error)? == "prod";
    let reverse = a.bool("reverse").map_err(op_error)?;
    let exclusive = a.bool("exclusive").map_err(op_error)?;
    let t = site.out_dtype(0);
    let r = register(t);
    let code = state(site, t)
        + &site.alias("Value", t)
        + &site.constant("START", r, format_args!("{r}({})", u8::from(prod)))
        + &site.constant("REVERSE", "bool", reverse)
        + &site.constant("EXCLUSIVE", "bool", exclusive)
        + &site.function("step", &[("sum", r), ("x", r)], r, if prod { "sum * x" } else { "sum + x" });
    let body = Body::of("reduce/cumulative", vec![Entry::threads("cumulative")]).with(code);
    Ok(Body { scratch: site.cut(), ..body })
}

fn cumulative(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let axis = normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let (params, lines) = (line(&x, axis), along(&x, axis)?.1);
    repeated(
        cx,
        &Launch::map(0, params.words()?).on(Grid::Threads(lines as u64)),
        (x[axis], 1),
        lines as u64 * 8,
    )
}
