//! Running sums and products along an axis: a thread a line.

use super::lines;
use crate::long::{repeated, state};
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::infer::normalize_axis;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of("cumulative", &["cumulative"], source, launch).framed()];

/// The types, constants and the function `step(sum, x)` of a running sum or product.
pub fn hooks(site: &Site<'_>) -> Result<String, BackendError> {
    let a = site.op()?.attrs();
    let prod = a.str("op").map_err(op_error)? == "prod";
    let reverse = a.bool("reverse").map_err(op_error)?;
    let exclusive = a.bool("exclusive").map_err(op_error)?;
    let t = site.out_dtype(0);
    let r = register(t);
    Ok(site.alias("Value", t)
        + &site.constant("START", r, format_args!("{r}({})", u8::from(prod)))
        + &site.constant("REVERSE", "bool", reverse)
        + &site.constant("EXCLUSIVE", "bool", exclusive)
        + &site.function("step", &[("sum", r), ("x", r)], r, if prod { "sum * x" } else { "sum + x" }))
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let code = state(site, site.out_dtype(0)) + &hooks(site)?;
    let body = Body::of("reduce/cumulative", vec![Entry::threads("cumulative")]).with(code);
    Ok(Body { scratch: site.cut(), ..body })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let axis = normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let (params, count) = lines(&x, axis);
    let launch = Launch::map(0, params.words()?).on(Grid::Threads(count as u64));
    repeated(cx, &launch, (x[axis], 1), count as u64 * 8)
}
