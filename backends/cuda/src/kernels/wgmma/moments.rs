//! Members of kernels of tiles by which products of normalized rows find moments, which all other products lack.

use crate::frame::element;
use crate::kernels::constants::constants;
use kiln_codegen::site::Site;
use kiln_ops::matmul::normed::NORM_MATMUL;

/// Whether a site is such a product.
pub fn is(site: &Site<'_>) -> bool {
    site.op().is_ok_and(|op| op.is(NORM_MATMUL))
}

/// The members that kernel files of products ask for.
pub fn members(site: &Site<'_>) -> String {
    let normed = is(site);
    let mut code = constants(&[], &[("NORMED", normed), ("CENTERED", normed && site.dtype(2).is_some())]);
    if normed {
        let epsilon = site.op().ok().and_then(|op| op.attrs().float("epsilon").ok()).unwrap_or(0.0) as f32;
        code += &element("NormCell", "norm_value", site.first_dtype());
        code += &site.function("epsilon", &[], "f32", &format!("cf({:#x}u)", epsilon.to_bits()));
    }
    code
}
