//! Members of kernels of tiles by which products of normalized rows find moments, which all other products lack.

use super::gates;
use crate::dialect::CUDA;
use crate::frame::element;
use crate::kernels::constants::constants;
use kiln_codegen::site::Site;
use kiln_ir::Op;
use kiln_ops::matmul::normed::NORM_MATMUL;

/// Whether a site is such a product.
pub fn is(site: &Site<'_>) -> bool {
    let gated = |op: &Op| gates::is(site) && op.attrs().bool("normalized").is_ok_and(|yes| yes);
    site.op().is_ok_and(|op| op.is(NORM_MATMUL) || gated(op))
}

/// The members that kernel files of products ask for.
pub fn members(site: &Site<'_>) -> String {
    let normed = is(site);
    // The input that has the sums of columns.
    let sums = if gates::is(site) { 3 } else { 2 };
    let centered = normed && site.dtype(sums).is_some();
    let mut code = constants(&[], &[("NORMED", normed), ("CENTERED", centered)]);
    if centered {
        code += &(CUDA.function)("column_sums", &[], "const f32*", &format!("bx{sums}"));
    }
    if normed {
        let epsilon = site.op().ok().and_then(|op| op.attrs().float("epsilon").ok()).unwrap_or(0.0) as f32;
        code += &element("NormCell", "norm_value", site.first_dtype());
        code += &site.function("epsilon", &[], "f32", &format!("cf({:#x}u)", epsilon.to_bits()));
    }
    code
}
