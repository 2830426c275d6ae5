//! Members of kernels of tiles by which two sums become one result in gated products.

use crate::kernels::constants::constants;
use kiln_codegen::matmul::gated::activation;
use kiln_codegen::site::Site;
use kiln_ir::DType;
use kiln_ops::matmul::gated::{GATED_MATMUL, SIDE};

/// Whether a site is such a product.
pub fn is(site: &Site<'_>) -> bool {
    site.op().is_ok_and(|op| op.is(GATED_MATMUL))
}

/// Whether activations of such a product take many instructions.
pub fn have_functions(site: &Site<'_>) -> bool {
    let plain = |half| site.op().is_ok_and(|op| op.attrs().str(half).is_ok_and(|name| name == "none"));
    is(site) && !(plain("gate") && plain("value"))
}

/// The members that `wgmma/results.cuh` asks for. Results of 16 bits need no activation that is exact to f32.
pub fn members(site: &Site<'_>) -> String {
    let gated = is(site);
    let mut code = constants(&[("SIDE", SIDE)], &[("GATED", gated)]);
    for half in ["gate", "value"].into_iter().filter(|_| gated) {
        let name = site.op().ok().and_then(|op| op.attrs().str(half).ok()).unwrap_or("none");
        let near = Some(name).filter(|_| site.out_dtype(0) != DType::F32).and_then(near);
        code += &format!(
            "DEV static f32 {half}_of(f32 v) {{ return {}; }}\n",
            near.unwrap_or_else(|| activation(name))
        );
    }
    code
}

/// An activation by functions that are a few units of f32 off; `None` where the exact one is as fast.
fn near(name: &str) -> Option<&'static str> {
    Some(match name {
        "sigmoid" => "ksigmoid_near(v)",
        "swish" => "v * ksigmoid_near(v)",
        "gelu" => "kgelu_near(v)",
        "gelu_tanh" => "0.5f * v * (1.0f + ktanh_near(0.79788456f * (v + 0.044715f * v * v * v)))",
        "tanh" => "ktanh_near(v)",
        _ => return None,
    })
}
