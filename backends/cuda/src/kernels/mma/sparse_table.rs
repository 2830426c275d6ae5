//! Tiles of products by packed 2:4 sparse weights (`mma.sp`): rows of the table that the tuner chooses from.
//!
//! A tile has `m` rows and `n` columns of the result, and `bytes` of the depth in a stage.

use super::tile::Tile;
use crate::kernels::matmul::sparse as matmul_sparse;
use kiln_codegen::Kernel;

#[rustfmt::skip]
tile_kernels! { Tile, "mma_":
    "128x256" [matmul_sparse] Tile { m: 128, n: 256, bytes: 128, warps: (2, 4), stages: 3 };
    "128x128" [matmul_sparse] Tile { m: 128, n: 128, bytes: 128, warps: (4, 2), stages: 3 };
    "64x128" [matmul_sparse] Tile { m: 64, n: 128, bytes: 128, warps: (2, 2), stages: 4 };
    "128x64" [matmul_sparse] Tile { m: 128, n: 64, bytes: 128, warps: (4, 1), stages: 4 };
    "64x64" [matmul_sparse] Tile { m: 64, n: 64, bytes: 256, warps: (2, 2), stages: 3 };
    "32x128" [matmul_sparse] Tile { m: 32, n: 128, bytes: 256, warps: (1, 4), stages: 3 };
    "16x128" [matmul_sparse] Tile { m: 16, n: 128, bytes: 256, warps: (1, 4), stages: 4 };
}
