//! Sums of products under labels.

use crate::long::{continued, long_sum};
use crate::scalar::{register, zero};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::matmul::einsum::walk;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of("einsum", &["einsum"], source, launch).framed()];

crate::params! {
    /// Sums of products under labels.
    struct EinsumParams {
        /// Number of products that an element sums.
        terms: u32,
        /// Dimensions of the result.
        dims: [u32],
        /// Strides of every input along them, input by input.
        strides: [u32],
        /// Dimensions that are summed.
        inner: [u32],
        /// Strides of every input along them, input by input.
        inner_strides: [u32],
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let n = site.device_inputs().len();
    let t = site.out_dtype(0);
    let product: Vec<String> = (0..n).map(|k| format!("x{k}(places[{k}])")).collect();
    let code = site.alias("Value", t)
        + &site.constant("ZERO", "Value", zero(t))
        + &site.constant("INPUTS", "u32", format_args!("{n}u"))
        + &site.function("product", &[("places", &format!("[u32; {n}]"))], register(t), &product.join(" * "));
    Ok(long_sum(site, "matmul/einsum", ("einsum", "einsum_sum"), t).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let shapes = (0..cx.inputs.len()).map(|i| cx.shape(i)).collect::<Result<Vec<_>, _>>()?;
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let equation = cx.op()?.attrs().str("equation").map_err(op_error)?;
    let plan = walk(equation, &shapes).map_err(op_error)?;
    let terms = plan.inner.iter().product();
    // A round, and a loop over dimensions with one over inputs in it.
    let cost = 2 + plan.inner.len() * (2 + shapes.len());
    let params = EinsumParams {
        terms,
        dims: cx.out_shape(0)?,
        strides: plan.outer.into_iter().flatten().collect(),
        inner: plan.inner,
        inner_strides: plan.within.into_iter().flatten().collect(),
    };
    continued(cx, params.words()?, terms, cost)
}
