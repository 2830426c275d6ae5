//! Gated products, a thread for each element, and the text of their activations.

use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::matmul::gated::SIDE;

/// The kernels.
pub const KERNELS: &[Kernel] =
    &[Kernel { tactics, ..Kernel::of("gated_matmul.naive", &["gated_matmul"], source, launch) }];

crate::params! {
    /// A gated product.
    struct GatedMatmulParams {
        /// Elements of a row.
        depth: u32,
        /// Columns of the result.
        columns: u32,
        /// Elements of W from one row to the next.
        w_row: u32,
        /// Elements of W from one column to the next.
        w_column: u32,
        /// Added to the variance.
        epsilon: f32,
    }
}

/// Elements of a row at most where loops are cut into spans.
const LONGEST: i64 = 32_768;

/// An activation of the value `v`.
pub fn activation(name: &str) -> &'static str {
    match name {
        "sigmoid" => "1.0f / (1.0f + kexp(-v))",
        "swish" => "v / (1.0f + kexp(-v))",
        "gelu" => "0.5f * v * (1.0f + kerf(0.70710678f * v))",
        "gelu_tanh" => "0.5f * v * (1.0f + ktanh(0.79788456f * (v + 0.044715f * v * v * v)))",
        "relu" => "select(v, 0.0f, v < 0.0f)",
        "tanh" => "ktanh(v)",
        _ => "v",
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let depth = site.input(0).and_then(|x| site.graph.ty(x).dims.last()?.as_const());
    if site.cut() && depth.is_none_or(|k| k > LONGEST) {
        return unsupported(format!("rows that are not known to have at most {LONGEST} elements"));
    }
    crate::plain("gated_matmul.naive")
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let attrs = site.op()?.attrs();
    let mut code = site.constant("SIDE", "u32", format_args!("{SIDE}u"));
    code += &site.constant("HAS_BIAS", "bool", site.dtype(2).is_some());
    code += &site.constant("NORMALIZED", "bool", attrs.bool("normalized").map_err(op_error)?);
    code += &site.constant("CENTERED", "bool", site.dtype(3).is_some());
    for half in ["gate", "value"] {
        let own = activation(attrs.str(half).map_err(op_error)?);
        code += &site.function(&format!("{half}_of"), &[("v", "f32")], "f32", own);
    }
    Ok(Body::element("matmul/gated", "gated_product").with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, w, attrs) = (cx.shape(0)?, cx.shape(1)?, cx.op()?.attrs());
    let (&[.., depth], &[rows, columns]) = (&x[..], &w[..]) else {
        return unsupported("gated products by other weights than a matrix");
    };
    let trans = attrs.bool("trans_b").map_err(op_error)?;
    let (columns, w_row, w_column) = if trans { (rows / 2, 1, columns) } else { (columns / 2, columns, 1) };
    let epsilon = attrs.float("epsilon").map_err(op_error)? as f32;
    let params = GatedMatmulParams { depth, columns, w_row, w_column, epsilon };
    Ok(vec![Launch::map(0, params.words()?)])
}
