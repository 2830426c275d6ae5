//! The position of the greatest or least element along an axis.

use super::lines;
use crate::long::{continued, long_sum};
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::reduce::argreduce::ARGMAX;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of("argreduce", &["argmax", "argmin"], source, launch).framed()];

/// The functions `better(a, b)`, whether one element beats another, and `replaces(best, x)`, whether a later one takes the place
/// of the best one so far.
pub fn order(site: &Site<'_>) -> Result<String, BackendError> {
    let op = site.op()?;
    let t = site.first_dtype();
    let better = match (op.is(ARGMAX), t.is_float()) {
        (true, true) => "(is_nan(a) && !is_nan(b)) || flt(b, a)",
        (false, true) => "(is_nan(a) && !is_nan(b)) || flt(a, b)",
        (true, false) => "a > b",
        (false, false) => "a < b",
    };
    let last = op.attrs().bool("select_last").map_err(op_error)?;
    let replaces = if last { "!better(best, x)" } else { "better(x, best)" };
    let r = register(t);
    Ok(site.function("better", &[("a", r), ("b", r)], "bool", better)
        + &site.function("replaces", &[("best", r), ("x", r)], "bool", replaces))
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let body = long_sum(site, "reduce/argreduce", ("argreduce", "argreduce_part"), DType::I32);
    Ok(body.with(order(site)?))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.axis(x.len())?;
    continued(cx, lines(&x, axis).0.words()?, x[axis], 1)
}
