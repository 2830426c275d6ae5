//! The first elements of each line in an order.

use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of("topk", &["topk"], source, launch)];

crate::params! {
    /// The first elements of lines along an axis.
    struct TopkParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Elements of a line of the result.
        kept: u32,
    }
}

/// The function `precedes(a, b)`: does `a` stand before `b`?
pub fn precedes(site: &Site<'_>) -> Result<String, BackendError> {
    let largest = site.op()?.attrs().bool("largest").map_err(op_error)?;
    let r = register(site.out_dtype(0));
    let test = match (largest, site.out_dtype(0).is_float()) {
        (true, true) => "(is_nan(a) && !is_nan(b)) || flt(b, a)",
        (false, true) => "(!is_nan(a) && is_nan(b)) || flt(a, b)",
        (true, false) => "a > b",
        (false, false) => "a < b",
    };
    Ok(site.function("precedes", &[("a", r), ("b", r)], "bool", test))
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body::of("sort/topk", vec![Entry::threads("topk")]).with(precedes(site)?))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = cx.axis(x.len())?;
    let n: usize = x.iter().product();
    let params = TopkParams { count: x[axis], inner: x[axis + 1..].iter().product(), kept: out[axis] };
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Threads(n as u64))])
}
