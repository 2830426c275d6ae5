//! Products of normalized rows, a thread for each element.

use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] =
    &[Kernel { tactics, ..Kernel::of("norm_matmul.naive", &["norm_matmul"], source, launch) }];

crate::params! {
    /// A product of normalized rows.
    struct NormMatmulParams {
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

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let depth = site.input(0).and_then(|x| site.graph.ty(x).dims.last()?.as_const());
    if site.cut() && depth.is_none_or(|k| k > LONGEST) {
        return unsupported(format!("rows that are not known to have at most {LONGEST} elements"));
    }
    crate::plain("norm_matmul.naive")
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let centered = site.constant("CENTERED", "bool", site.dtype(2).is_some());
    Ok(Body::element("matmul/normed", "norm_product").with(centered))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, w, attrs) = (cx.shape(0)?, cx.shape(1)?, cx.op()?.attrs());
    let (&[.., depth], &[rows, columns]) = (&x[..], &w[..]) else {
        return unsupported("products of normalized rows by other weights than a matrix");
    };
    let trans = attrs.bool("trans_b").map_err(op_error)?;
    let (columns, w_row, w_column) = if trans { (rows, 1, columns) } else { (columns, columns, 1) };
    let epsilon = attrs.float("epsilon").map_err(op_error)? as f32;
    let params = NormMatmulParams { depth, columns, w_row, w_column, epsilon };
    Ok(vec![Launch::map(0, params.words()?)])
}
