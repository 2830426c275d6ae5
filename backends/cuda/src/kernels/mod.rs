//! Kernels that only this backend has, preferred over the generic ones.

mod gemm;

use kiln_families::Kernel;

/// All of them, by family.
pub const FAMILIES: &[&[Kernel]] = &[gemm::KERNELS];
