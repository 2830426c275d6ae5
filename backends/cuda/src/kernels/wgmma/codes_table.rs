//! Tiles of products by weights that stay codes, by `wgmma`: rows of the table that the tuner chooses from.

use crate::kernels::matmul::codes_wgmma as matmul_codes;
use crate::kernels::matmul::codes_wgmma::Tile;
use kiln_codegen::Kernel;

#[rustfmt::skip]
tile_kernels! { Tile, "wgmma_":
    "192x128" [matmul_codes] Tile { rows: 192, groups: 2, stages: 8, split: 1 };
    "96x192" [matmul_codes] Tile { rows: 96, groups: 3, stages: 8, split: 1 };
    "128x128" [matmul_codes] Tile { rows: 128, groups: 2, stages: 8, split: 1 };
    "64x128" [matmul_codes] Tile { rows: 64, groups: 2, stages: 12, split: 1 };
    "128x128_split2" [matmul_codes] Tile { rows: 128, groups: 2, stages: 8, split: 2 };
    "64x128_split4" [matmul_codes] Tile { rows: 64, groups: 2, stages: 12, split: 4 };
    "32x128_split4" [matmul_codes] Tile { rows: 32, groups: 2, stages: 12, split: 4 };
    "16x128_split4" [matmul_codes] Tile { rows: 16, groups: 2, stages: 12, split: 4 };
    "16x128_split8" [matmul_codes] Tile { rows: 16, groups: 2, stages: 12, split: 8 };
}
