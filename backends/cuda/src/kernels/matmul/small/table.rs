//! Blocks of small products: rows of the table that the tuner chooses from.
//!
//! A block has `matrices` of them, `warps` for each. The sizes of a product are constants of its kernel, so that one row serves all
//! sizes for whose sums its warps have registers.

use super::{self as matmul, Row};
use kiln_codegen::Kernel;

#[rustfmt::skip]
tile_kernels! { Row, "mma_small_":
    "8x1" [matmul] Row { matrices: 8, warps: (1, 1) };
    "4x1" [matmul] Row { matrices: 4, warps: (1, 1) };
    "4x2" [matmul] Row { matrices: 4, warps: (2, 1) };
    "2x4" [matmul] Row { matrices: 2, warps: (2, 2) };
    "1x4" [matmul] Row { matrices: 1, warps: (2, 2) };
    "1x8" [matmul] Row { matrices: 1, warps: (4, 2) };
}
