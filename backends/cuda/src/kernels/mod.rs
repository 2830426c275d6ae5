//! Kernels that only this backend has, preferred over the generic ones.

mod conv;
mod cost;
mod few;
mod gemm;
mod mma;
mod recurrent;
mod wgmma;

use kiln_backend::Target;
use kiln_families::Kernel;
use kiln_families::site::Site;

/// All of them, by family.
pub const FAMILIES: &[&[Kernel]] =
    &[few::KERNELS, wgmma::KERNELS, gemm::KERNELS, conv::KERNELS, recurrent::KERNELS];

/// What a library of the vendor is expected to take for a product, in nanoseconds.
pub fn expected_ns(site: &Site<'_>) -> Option<f64> {
    Some(cost::Product::of(site)?.at_best(site.target, mma::Kind::of_types(site).ok()?))
}

/// What a generic kernel of a product is expected to take, in nanoseconds.
pub fn generic_ns(site: &Site<'_>, name: &str, target: &Target) -> Option<f64> {
    let tiled = match name {
        "matmul.tiled" | "conv.tiled" => true,
        "matmul.naive" | "conv.direct" => false,
        _ => return None,
    };
    Some(cost::Product::of(site)?.by_generic(target, tiled))
}
